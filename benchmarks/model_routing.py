"""Routing between models as the latency-aware routing paper (SFS, arXiv 2607.18253) set it up.

    python benchmarks/model_routing.py [--requests 16000] [--seeds 5] [--part auc,errors,time]

Qwen3 0.6B, 8B (one H100 each) and 32B (two), with the paper's coefficients, prices, judge means, limits and
tau; prompts and answers of its four tasks have assumed lengths (`agentctl synth model-routing`). Scores and
lengths are predicted for sessions left out. Each seed draws another order of the requests and other arrivals.

auc      on-time utility at 5 to 8.3 requests/s and its AUC over 5, 6 and 7 (trapezoid, over the width),
         Poisson and MMPP-2 with r = 3: means and the spread over seeds; and the share of first tokens in time
errors   every estimator against the simulation, with true, predicted and wrong lengths of answers, at 7
         requests/s under `hard`, asked about the engine that a request is sent to
time     of one SFS estimate on the states that `hard` met at 7 requests/s, each by itself, best of five
"""

from __future__ import annotations

import argparse
import tempfile
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from processes import machine
from sfs import one_after_the_other

from agentctl.cluster import Cluster, parse_cluster
from agentctl.estimators.sfs import Probe, late_records
from agentctl.estimators.sfs_replay import make_scratch
from agentctl.estimators.sfs_simulated import snapshot_of
from agentctl.fleet import Question, models_of, with_fleet
from agentctl.fleet_use import fleet_facts
from agentctl.labels import read_labels
from agentctl.metrics import measure_of
from agentctl.policies.base import load_policy
from agentctl.predictions import Predictions, predict
from agentctl.sim import driver
from agentctl.sim.driver import simulate
from agentctl.sim.outcome import Outcome
from agentctl.synth.labelled import labels_path, synthesise_labelled
from agentctl.trace import Trace, open_trace
from agentctl.workload import Workload, compile_workload
from agentctl.workload.arriving import arrange
from agentctl.workload.process import Process

POOL = """
[[pool]]
name = "{0}"
profile = "h100-qwen3-{0}-sfs"
price_per_million_prompt_tokens = {1}
price_per_million_output_tokens = {2}
max_num_batched_tokens = 32768
max_num_seqs = 512
prefix_caching = false
"""
POOLS = (("0.6b", 0.044, 0.173), ("8b", 0.072, 0.287), ("32b-tp2", 0.287, 0.640))
RATES, CLAIMED = (5.0, 6.0, 7.0, 8.0, 8.3), 3  # of which so many are in the AUC
PROCESSES = {"Poisson": Process("poisson"), "MMPP r = 3": Process("mmpp", ratio=3.0)}
BASELINES = ("round-robin", "least-loaded", "latency-agnostic")
ROUTERS = (
    "hard",
    "soft",
    "hard@quantile",
    "hard@throughput",
    "hard@score-proxy",
    "hard@lps",
    "hard@lps-paper",
)
OUTPUTS = ("true", "predicted", "x0.5", "x1.5")
PASSES = 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=16_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--part", default="auc,errors,time")
    args = parser.parse_args()
    print(machine())
    parts = args.part.split(",")
    with tempfile.TemporaryDirectory() as folder:
        trace, cluster, told = paper(Path(folder), args.requests)
        workload = with_fleet(compile_workload(trace), cluster, told)
        if "auc" in parts:
            auc(workload, cluster, args.seeds)
        if "errors" in parts:
            estimator_errors(trace, cluster, told, args.seeds)
        if "time" in parts:
            timed(workload, cluster)


def paper(folder: Path, requests: int) -> tuple[Trace, Cluster, Predictions]:
    text = 'schema = "agentctl/cluster/1"\n' + "".join(POOL.format(*pool) for pool in POOLS)
    cluster = parse_cluster(tomllib.loads(text), "paper")
    synthesise_labelled(folder / "mix.trace", requests=requests)
    trace = open_trace(folder / "mix.trace")
    return trace, cluster, predict(trace, read_labels(labels_path(folder / "mix.trace")), models_of(cluster))


def arriving(workload: Workload, process: Process, rate: float, seed: int) -> Workload:
    return arrange(workload, Process(**{**vars(process), "rate": rate, "order": "shuffled"}), seed)


def run(workload: Workload, cluster: Cluster, policy: str, seed: int, audits: bool = False) -> Outcome:
    return simulate(workload, cluster, load_policy(policy), seed=seed, audits=audits)


def auc(workload: Workload, cluster: Cluster, seeds: int) -> None:
    for name, process in PROCESSES.items():
        gained = {policy: np.zeros((seeds, len(RATES))) for policy in (*ROUTERS, *BASELINES)}
        in_time = {policy: np.zeros((seeds, len(RATES))) for policy in gained}
        for seed in range(seeds):
            for k, rate in enumerate(RATES):
                on = arriving(workload, process, rate, seed)
                for policy in gained:
                    found = run(on, cluster, policy, seed).run()
                    gained[policy][seed, k] = measure_of("on_time_utility", found)
                    in_time[policy][seed, k] = measure_of("on_time_ratio", found)
        width = RATES[CLAIMED - 1] - RATES[0]
        areas = {
            policy: np.trapezoid(values[:, :CLAIMED], RATES[:CLAIMED], axis=1) / width
            for policy, values in gained.items()
        }
        best = np.max([areas[policy] for policy in BASELINES], axis=0)
        print(f"\n{name}, {seeds} x {workload.n_requests:,} requests: on-time utility (least-most), in time")
        print(f"{'':18}{'AUC':>22}{'over best baseline':>22}" + "".join(f"{rate:>28} /s" for rate in RATES))
        for policy, values in gained.items():
            over = areas[policy] / best - 1
            cells = [
                f"{v.mean():.3f} ({v.min():.3f}-{v.max():.3f}) {100 * t.mean():5.1f} %"
                for v, t in zip(values.T, in_time[policy].T, strict=True)
            ]
            area = f"{areas[policy].mean():.3f} ({areas[policy].min():.3f}-{areas[policy].max():.3f})"
            gain = f"{100 * over.mean():+.1f} % ({100 * over.min():+.1f})"
            print(f"{policy:18}{area:>22}{gain:>22}" + "".join(f"{cell:>31}" for cell in cells))


def estimator_errors(trace: Trace, cluster: Cluster, told: Predictions, seeds: int) -> None:
    print("\nTTFT at 7 requests/s under hard: MAPE / median / bias of estimates, over all seeds")
    for outputs in OUTPUTS:
        workload = with_fleet(compile_workload(trace), cluster, told, Question(outputs=outputs))
        made: dict[str, list[tuple[float, float, float]]] = {}
        for seed in range(seeds):
            out = run(arriving(workload, PROCESSES["Poisson"], 7.0, seed), cluster, "hard", seed, audits=True)
            facts = fleet_facts(out, out.run())
            assert facts is not None
            for one in facts["estimates"]:
                if one["part"] == "all":
                    made.setdefault(one["estimator"], []).append(
                        (one["mape"], one["median_ape"], one["bias"])
                    )
        for name, values in made.items():
            mape, median, bias = np.mean(values, axis=0)
            print(f"  outputs {outputs:10} {name:12} {mape:10.1%} {median:10.1%} {bias:+10.1%}")


def timed(workload: Workload, cluster: Cluster) -> None:
    """Of every engine at every decision; states are taken through a policy in plain Python."""
    on, hard, states, seen = arriving(workload, PROCESSES["Poisson"], 7.0, 0), load_policy("hard"), [], []
    real = driver.make_state
    driver.make_state = lambda *what: states.append(real(*what)) or states[-1]  # type: ignore[assignment]
    assert on.fleet is not None
    fleet, pools = on.fleet, cluster.pools

    def choose(view, requests, r, my):  # type: ignore[no-untyped-def]
        state, row = states[-1], []
        for e, pool in enumerate(pools):
            snapshot = snapshot_of(state, e, pool, view.now, state.forecasts["predicted"])
            probe = Probe(int(fleet.prompt_tokens[r, e]), int(fleet.predicted_output[r, e]))
            row.append((e, snapshot, late_records([(view.now, probe)])))
        seen.append(row)
        return hard.choose.py_func(view, requests, r, my)

    plain = SimpleNamespace(name="hard", my=hard.my, choose=choose, estimator="sfs", sees=hard.sees)
    simulate(on, cluster, plain)
    driver.make_state = real
    us = []
    for e, pool in enumerate(pools):
        rows = [row[e] for row in seen]
        largest = max(len(snapshot.requests) for _, snapshot, _ in rows)
        scratch = make_scratch(states[-1].limits[e : e + 1].copy().view(np.recarray), largest + 2)
        best = np.array([_best(scratch, snapshot, late) for _, snapshot, late in rows])
        us.append(best)
        print(
            f"{pool.name:8} {len(rows):,} estimates: median {np.median(best):.1f} us, p99 "
            f"{np.quantile(best, 0.99):.1f} us, most {best.max():.1f} us; at most {largest} requests there"
        )
    everything = np.concatenate(us)
    print(f"all: median {np.median(everything):.1f} us, p99 {np.quantile(everything, 0.99):.1f} us")


def _best(scratch, snapshot, late) -> float:  # type: ignore[no-untyped-def]
    times = np.zeros((2, 2), np.int64)
    arrays = (
        snapshot.limits,
        snapshot.head,
        snapshot.records,
        np.array([0, len(snapshot.records)]),
        late,
        times,
    )
    best = np.inf
    for _ in range(PASSES):
        one_after_the_other(scratch, *arrays)
        ns = times[:, 0] * 10**9 + times[:, 1]
        best = min(best, (ns[1] - ns[0]) / 1e3)
    return best


if __name__ == "__main__":
    main()
