"""Every candidate at every load it needs: first on the whole trace, then on paired resampled workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from agentctl.metrics import Run
from agentctl.recommend.parallel import in_order
from agentctl.recommend.search import RUNGS_PER_DOUBLING, Candidate, Found, Ladder, Measured, measured, search
from agentctl.recommend.statistics import Peak
from agentctl.result import Progress
from agentctl.slo import Slo

W = TypeVar("W")  # a workload
R = TypeVar("R")

LEAST_REPLICATES, MOST_REPLICATES = 6, 20
RUNS_PER_REPLICATE = 3  # what a search costs that starts near its peak
BUDGET = 1_000_000  # simulated requests of all replicates together when nobody says how many; tens of seconds


def study(
    candidates: Sequence[Candidate],
    workload_at: Callable[[int, float], W],
    run: Callable[[Candidate, W], Run],
    ladder: Ladder,
    slos: tuple[Slo, ...],
    replicates: int | None = None,
    progress: Progress | None = None,
    workers: int = 1,
) -> list[Found]:
    """Search the peak of every candidate on the trace and on `replicates` resamples of it.

    workload_at  (replicate, multiple of the trace's load) -> workload; replicate 0 is the trace itself. The
                 same arguments give the same workload, so that candidates meet the same sessions
    run          simulates a candidate on a workload
    replicates   None: as many as BUDGET allows, from LEAST_REPLICATES to MOST_REPLICATES
    workers      processes; they change no result
    """

    def search_one(task: _Task) -> tuple[Peak | None, dict[int, Measured]]:
        candidate = candidates[task.candidate]

        def measure(rung: int) -> Measured:
            return measured(run(candidate, workload_at(task.replicate, ladder.load(rung))), slos)

        stride = RUNGS_PER_DOUBLING if task.replicate == 0 else 1
        return search(measure, ladder, task.start, stride)

    tasks = [_Task(c, 0, start=0) for c in range(len(candidates))]
    results = _watched(in_order(search_one, tasks, workers), len(tasks), 0.0, 0.3, "the trace", progress)
    found = [Found(candidate, at, peak) for candidate, (peak, at) in zip(candidates, results, strict=True)]
    judged = [c for c, f in enumerate(found) if f.peak is not None]
    wanted = replicates
    if wanted is None:
        wanted = affordable([found[c] for c in judged], ladder)
    tasks = [
        _Task(c, replicate, start=nearest_rung(found[c], ladder))
        for replicate in range(1, wanted + 1)
        for c in judged
    ]
    what = f"{wanted} resampled workloads"
    results = _watched(in_order(search_one, tasks, workers), len(tasks), 0.3, 1.0, what, progress)
    for task, (peak, _) in zip(tasks, results, strict=True):
        # A resample in which the objectives count no request cannot miss them.
        found[task.candidate].replicates.append(peak or Peak(ladder.load(ladder.top), "above"))
    return found


class _Task(NamedTuple):
    candidate: int
    replicate: int
    start: int  # rung


def _watched(
    results: Iterator[R], n: int, begin: float, end: float, what: str, progress: Progress | None
) -> Iterator[R]:
    """The results, telling `progress` as they come; n of them take it from `begin` to `end`."""
    if progress:
        progress(begin, what)
    for done, result in enumerate(results, 1):
        if progress:
            progress(begin + (end - begin) * done / n, what)
        yield result


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
