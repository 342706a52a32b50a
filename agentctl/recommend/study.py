"""Every candidate at every load it needs: first on the whole trace, then on paired resampled workloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

from agentctl.metrics import Run
from agentctl.recommend.search import RUNGS_PER_DOUBLING, Candidate, Found, Ladder, Measured, measured, search
from agentctl.recommend.statistics import Peak
from agentctl.result import Progress
from agentctl.slo import Slo

W = TypeVar("W")  # a workload

LEAST_REPLICATES, MOST_REPLICATES = 3, 20
RUNS_PER_REPLICATE = 4  # what a search costs that starts near its peak
BUDGET = 150_000  # simulated requests of all replicates together when nobody says how many; tens of seconds


def study(
    candidates: Sequence[Candidate],
    workload_at: Callable[[int, float], W],
    run: Callable[[Candidate, W], Run],
    ladder: Ladder,
    slos: tuple[Slo, ...],
    replicates: int | None = None,
    progress: Progress | None = None,
) -> list[Found]:
    """Search the peak of every candidate on the trace and on `replicates` resamples of it.

    workload_at  (replicate, multiple of the trace's load) -> workload; replicate 0 is the trace itself. The
                 same workload is given to all candidates
    run          simulates a candidate on a workload
    replicates   None: as many as BUDGET allows, from LEAST_REPLICATES to MOST_REPLICATES
    """
    found = []
    at_trace = _workloads(workload_at, 0, ladder)
    for n, candidate in enumerate(candidates):
        if progress:
            progress(0.3 * n / len(candidates), f"{candidate.name} on the trace")
        measure = _measure(candidate, at_trace, run, slos)
        peak, at = search(measure, ladder, start=0, stride=RUNGS_PER_DOUBLING)
        found.append(Found(candidate, at, peak))
    judged = [f for f in found if f.peak is not None]
    wanted = affordable(judged, ladder) if replicates is None else replicates
    for replicate in range(1, wanted + 1):
        at_replicate = _workloads(workload_at, replicate, ladder)
        for n, f in enumerate(judged):
            if progress:
                share = (replicate - 1 + n / len(judged)) / wanted
                progress(0.3 + 0.7 * share, f"replicate {replicate} of {wanted}")
            measure = _measure(f.candidate, at_replicate, run, slos)
            peak, _ = search(measure, ladder, start=nearest_rung(f, ladder), stride=1)
            # A resample in which the objectives count no request cannot miss them.
            f.replicates.append(peak or Peak(ladder.load(ladder.top), "above"))
    return found


def affordable(judged: Sequence[Found], ladder: Ladder) -> int:
    """How many replicates fit into BUDGET, by the requests that the trace has at the candidates' peaks."""
    cost = sum(RUNS_PER_REPLICATE * f.at[nearest_measured(f, ladder)].requests for f in judged)
    return min(MOST_REPLICATES, max(LEAST_REPLICATES, BUDGET // max(cost, 1)))


def nearest_rung(f: Found, ladder: Ladder) -> int:
    """The rung at or just below the peak."""
    assert f.peak is not None
    rungs = range(ladder.bottom, ladder.top + 1)
    return max(
        (rung for rung in rungs if ladder.load(rung) <= f.peak.load * (1 + 1e-9)), default=ladder.bottom
    )


def nearest_measured(f: Found, ladder: Ladder) -> int:
    rung = nearest_rung(f, ladder)
    return min(f.at, key=lambda k: (abs(k - rung), k))


def _workloads(workload_at: Callable[[int, float], W], replicate: int, ladder: Ladder) -> Callable[[int], W]:
    """The workloads of one replicate by rung, each made once for all candidates."""
    return cache(lambda rung: workload_at(replicate, ladder.load(rung)))


def _measure(
    candidate: Candidate,
    workloads: Callable[[int], W],
    run: Callable[[Candidate, W], Run],
    slos: tuple[Slo, ...],
) -> Callable[[int], Measured]:
    return lambda rung: measured(run(candidate, workloads(rung)), slos)
