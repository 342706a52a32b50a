"""How often the 95 % intervals of a recommendation hold the truth: traces drawn from a known source.

Bursty agent sessions (arrivals of two rates in turn, heavy-tailed numbers of turns, prompts that grow) on a
small cluster, two policies. The truth is the mean peak over many other traces of the same source. From every
trace the study makes its interval as `agentctl recommend` does: resampled workloads, re-simulated.

    nice python benchmarks/interval_coverage.py --traces 60 --replicates 20 [--truth 200] [--minutes 60]

Prints one line a quantity: true value, share of intervals that hold it, mean half width, spread of the
estimates. Needs nothing but time: 60 traces take about ten minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from agentctl.cluster import Cluster, parse_cluster
from agentctl.engines import in_order
from agentctl.engines.forked import Forked
from agentctl.policies._settings import settled
from agentctl.recommend.decision import decide
from agentctl.recommend.pairs import Range
from agentctl.recommend.scenario import Scenario, workload_in
from agentctl.recommend.search import RUNGS_PER_DOUBLING, Candidate, Ladder, Measured, measured
from agentctl.recommend.study import Plan, Work, study
from agentctl.sim.driver import simulate
from agentctl.simulate import policy_of
from agentctl.slo import parse_slos
from agentctl.trace import PrefixTree
from agentctl.workload import AFTER_END, AT_ARRIVAL, Requests, Workload
from agentctl.workload.arrays import first_children

ENGINES = 2
BLOCK_TOKENS = 64
LADDER = Ladder(-3 * RUNGS_PER_DOUBLING, 2 * RUNGS_PER_DOUBLING)
SLOS = parse_slos(["ttft < 4s @ 90%"])
POLICIES = ("round-robin", "lmetric")
CALM_PER_MIN, BUSY_PER_MIN, DWELL_S = 6.0, 24.0, 150.0
NOMINAL = 0.95


class Found(NamedTuple):
    """Of one trace: peak of each policy and their paired difference, with intervals."""

    peaks: tuple[Range | None, ...]
    difference: Range | None


def cluster() -> Cluster:
    times = {"model": "hinge", "b0": 8e-3, "b_prefill": 1e-3, "b_decode": 1e-4, "b_context": 1e-7}
    pool = {"name": "main", "engines": ENGINES, "block_tokens": BLOCK_TOKENS, "kv_blocks": 3000}
    tables = {"schema": "agentctl/cluster/1", "pool": [{**pool, "batch_time": times}]}
    return parse_cluster(tables, "benchmark")


def starts_of(random: np.random.Generator, span_s: float) -> np.ndarray:
    """Session starts of a process whose rate changes between calm and busy, s."""
    starts, now, busy = [], 0.0, bool(random.integers(2))
    while now < span_s:
        end = now + random.exponential(DWELL_S)
        rate = (BUSY_PER_MIN if busy else CALM_PER_MIN) / 60
        inside = now + np.cumsum(random.exponential(1 / rate, size=int(4 * rate * (end - now)) + 20))
        starts += inside[inside < min(end, span_s)].tolist()
        now, busy = end, not busy
    return np.array(starts)


class Asked(NamedTuple):
    """One request of a drawn trace; `before` and `tip` are numbers in the order of drawing."""

    arrival: float
    session: int
    turn: int
    prompt_tokens: int
    output_tokens: int
    gap: float
    before: int  # the request that releases it, -1
    tip: int


def drawn(seed: int, span_s: float) -> Workload:
    """A trace of the source, as the simulator takes it."""
    random = np.random.Generator(np.random.PCG64([77, seed]))
    parents, depths = [0], [0]
    rows: list[Asked] = []
    for session, start in enumerate(starts_of(random, span_s)):
        at, tip = float(start), 0
        for turn in range(int(min(np.ceil(random.pareto(1.8) + 0.5), 20))):
            for _ in range(int(random.integers(2, 10) if turn else random.integers(8, 30))):
                parents.append(tip)
                depths.append(depths[tip] + 1)
                tip = len(parents) - 1
            gap = float(random.exponential(6.0)) if turn else 0.0
            at += gap + (3.0 if turn else 0.0)  # 3 s: what the log's own engines took
            output = int(random.integers(10, 120))
            before = len(rows) - 1 if turn else -1
            rows.append(Asked(at, session, turn, depths[tip] * BLOCK_TOKENS, output, gap, before, tip))
    return compiled(rows, parents, depths)


def compiled(rows: list[Asked], parents: list[int], depths: list[int]) -> Workload:
    columns = Asked(*(np.array(values) for values in zip(*rows, strict=True)))
    order = np.argsort(columns.arrival, kind="stable")
    place = np.empty(len(rows) + 1, np.int64)
    place[order], place[-1] = np.arange(len(rows)), -1
    asked = Asked(*(values[order] for values in columns))
    before = place[asked.before].astype(np.int32)
    n = len(rows)
    nodes = len(parents)
    return Workload(
        Requests(
            arrival=asked.arrival.astype(np.float64),
            prompt_tokens=asked.prompt_tokens.astype(np.int64),
            output_tokens=asked.output_tokens.astype(np.int64),
            session=asked.session.astype(np.int32),
            turn=asked.turn.astype(np.int32),
            parent=before,
            release=np.where(before < 0, AT_ARRIVAL, AFTER_END).astype(np.int8),
            gap=asked.gap.astype(np.float64),
            deps_start=np.concatenate([[0], np.cumsum(before >= 0)]).astype(np.int64),
            deps=before[before >= 0],
            tip=asked.tip.astype(np.uint32),
            confirmed_child=first_children(before),
            priority=np.zeros(n, np.int32),
        ),
        PrefixTree(
            np.array(parents, np.uint32), np.array(depths, np.int32), np.arange(nodes, dtype=np.uint64),
            np.zeros(nodes, np.int64),
        ),
        BLOCK_TOKENS, [str(r) for r in range(n)], [str(k) for k in range(int(asked.session.max()) + 1)],
        "thinktime", {},
    )  # fmt: skip


def candidates_here() -> list[Candidate]:
    found = []
    for name in POLICIES:
        policy = policy_of(cluster(), name)
        found.append(Candidate(name, policy, settled(cluster(), policy)))
    return found


def studied(seed: int, span_s: float, replicates: int) -> tuple[list[float], Found | None]:
    """The peaks on the trace itself, and with `replicates` the intervals."""
    trace, seen = drawn(seed, span_s), {}

    def measure(candidate: Candidate, scenario: Scenario, rung: int) -> Measured:
        if (scenario, rung) not in seen:
            seen.clear()
            seen[scenario, rung] = workload_in(scenario, trace, LADDER.load(rung), seed=1000 * seed)
        run = simulate(seen[scenario, rung], candidate.cluster, candidate.policy).run()
        return measured(run, SLOS)

    candidates, work = candidates_here(), Work(measure, LADDER)
    if not replicates:
        tasks = [work.search_one(candidate, Scenario()) for candidate in candidates]
        return [peak.load for peak, _ in tasks if peak], None
    founds = study(candidates, work, Plan(replicates, reference=POLICIES[0]))
    rows = decide(founds, POLICIES[0]).rows
    found = Found(tuple(row.peak for row in rows), rows[1].difference)
    return [f.peak.load for f in founds if f.peak], found


def told(name: str, true: float, ranges: Sequence[Range | None]) -> None:
    known = [one for one in ranges if one is not None and one.low is not None]
    held = [
        one.low <= true and (one.high is None or true <= one.high) for one in known if one.low is not None
    ]
    half = [one.value - one.low for one in known if one.low is not None]
    spread = float(np.std([one.value for one in known], ddof=1))
    mean = np.mean([one.value for one in known])
    print(
        f"{name}: true {true:.3f}, held by {np.mean(held):.3f} of {len(known)} intervals (nominal "
        f"{NOMINAL}), mean half width {np.mean(half):.3f}, estimates {mean:.3f} +- {spread:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("traces", 60), ("replicates", 20), ("truth", 200), ("minutes", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    began, span_s = time.monotonic(), 60.0 * asked.minutes
    studied(0, 120.0, 0)  # compiles
    seeds = range(10_000, 10_000 + asked.truth)
    truths = [peaks for peaks, _ in in_order(lambda seed: studied(seed, span_s, 0), seeds, Forked())]
    true = np.mean(truths, axis=0)
    print(f"truth from {asked.truth} traces, {time.monotonic() - began:.0f} s", file=sys.stderr)
    traces = range(1, asked.traces + 1)
    results = in_order(lambda seed: studied(seed, span_s, asked.replicates)[1], traces, Forked())
    found = [one for one in results if one is not None]
    for k, name in enumerate(POLICIES):
        told(f"peak of {name}", float(true[k]), [one.peaks[k] for one in found])
    told("paired difference", float(true[1] - true[0]), [one.difference for one in found])
    print(f"{asked.traces} traces of {asked.minutes} min, {asked.replicates} replicates, "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip


if __name__ == "__main__":
    main()
