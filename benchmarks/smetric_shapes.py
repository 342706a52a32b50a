"""The shapes that SMetric reports, on the frozen agentic workload: ties at mild load, a gap towards the knee.

    python benchmarks/smetric_shapes.py agentic.trace [--cluster C.toml] [--engines 8] [--replicates 4]

Every policy meets the same resamples of `agentctl synth agentic` at shares of SMetric's own peak. Printed per
load: output tokens a second within the SLOs of SMetric and of the best baseline, their paired gap in
percent with its standard error, and how unevenly plain session-sticky loads the engines. Expected (SMetric,
arXiv 2607.08565, as shapes): a gap within 2 % up to 60 % of the peak, none below 0 and growing towards the
knee; a mean imbalance of session-sticky between 1.7 and 2.7. Whatever comes out is told, nothing is tuned.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from agentctl.cluster import cluster_of, load_cluster
from agentctl.engines import in_order
from agentctl.engines.forked import Forked
from agentctl.metrics import METRICS, imbalance_prefill
from agentctl.policies._settings import settled
from agentctl.profile import load_profile
from agentctl.recommend.scenario import Scenario, workload_in
from agentctl.recommend.search import RUNGS_PER_DOUBLING, Candidate, Ladder, Measured, measured
from agentctl.recommend.study import Work
from agentctl.sim.driver import simulate
from agentctl.simulate import policy_of
from agentctl.slo import DEFAULT_SLOS, parse_slos
from agentctl.trace import open_trace
from agentctl.workload import compile_workload

BASELINES = ("least-loaded", "lmetric", "prefix-affine", "round-robin", "session-sticky")
STICKY, OVER_TIME = "session-sticky", "imbalance_running_over_time"
SHARES = (0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1)  # of SMetric's peak
LADDER = Ladder(-3 * RUNGS_PER_DOUBLING, 3 * RUNGS_PER_DOUBLING)
SLOS = parse_slos(DEFAULT_SLOS)  # SMetric's own


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("trace", type=Path)
    parser.add_argument("--cluster", type=Path)
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--replicates", type=int, default=4)
    asked = parser.parse_args()
    profile = load_profile("h100-qwen3-8b")
    base = load_cluster(asked.cluster) if asked.cluster else cluster_of(profile, asked.engines)
    trace = compile_workload(open_trace(asked.trace))

    def candidate(name: str) -> Candidate:
        policy = policy_of(base, name)
        return Candidate(name, policy, settled(base, policy))

    def measure(one: Candidate, scenario: Scenario, rung: int) -> Measured:
        on = workload_in(scenario, trace, LADDER.load(rung), 0)
        return measured(simulate(on, one.cluster, one.policy).run(), SLOS)

    peak, _ = Work(measure, LADDER).search_one(candidate("smetric"), Scenario())
    assert peak is not None
    print(f"peak of smetric: {peak.load:.2f} times the trace's rate {peak.side}")

    def at(task: tuple[float, int]) -> dict[str, tuple[Measured, float | None, float | None]]:
        share, replicate = task
        on, found = workload_in(Scenario(replicate), trace, share * peak.load, 0), {}
        for name in ("smetric", *BASELINES):
            one = candidate(name)
            run = simulate(on, one.cluster, one.policy, observed=name == STICKY).run()
            over_time = METRICS[OVER_TIME].compute(run).mean() if name == STICKY else None
            found[name] = (measured(run, SLOS), imbalance_prefill(run), over_time)
        return found

    at((0.1, 0))  # compiled once, before the workers start
    tasks = [(share, replicate) for share in SHARES for replicate in range(1, asked.replicates + 1)]
    results = dict(zip(tasks, in_order(at, tasks, Forked()), strict=True))
    for share in SHARES:
        told(share, [results[share, replicate] for replicate in range(1, asked.replicates + 1)])


def told(share: float, runs: list[dict[str, tuple[Measured, float | None, float | None]]]) -> None:
    tokens = {name: np.array([run[name][0].tokens_per_s or 0.0 for run in runs]) for name in runs[0]}
    attained = {name: np.mean([run[name][0].attained for run in runs]) for name in runs[0]}
    best = max(BASELINES, key=lambda name: float(tokens[name].mean()))
    gap = 100 * (tokens["smetric"] / tokens[best] - 1)
    error = gap.std(ddof=1) / np.sqrt(gap.size) if gap.size > 1 else float("nan")
    prefill, running = (np.mean([run[STICKY][k] for run in runs]) for k in (1, 2))
    print(
        f"{share:4.0%} of the peak: smetric {tokens['smetric'].mean():7.0f} tok/s, best baseline {best} "
        f"{tokens[best].mean():7.0f}, gap {gap.mean():+.2f} +- {error:.2f} %; session-sticky busiest / mean "
        f"prefill {prefill:.2f}, running at an instant {running:.2f}; within SLOs "
        + ", ".join(f"{name} {value:.3f}" for name, value in attained.items())
    )


if __name__ == "__main__":
    main()
