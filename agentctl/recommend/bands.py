"""How surely a finalist holds the objectives at each load: the finalists on one ladder of loads, the same
resampled workloads at every load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agentctl.recommend.decision import Row
from agentctl.recommend.pairs import Range
from agentctl.recommend.scenario import Scenario
from agentctl.recommend.search import Candidate, Ladder, Measured
from agentctl.recommend.statistics import estimate
from agentctl.recommend.study import Task, Work, nearest_rung

MOST_RUNGS = 5
MOST_REPLICATES = 8  # a band is drawn and decides nothing: it need not be as sure as a peak


class Band(NamedTuple):
    """Share of requests within all objectives by rung: on the trace, with the 95 % interval that the spread
    of the resampled workloads gives it."""

    candidate: Candidate
    at: dict[int, Range]


def bands(rows: Sequence[Row], work: Work, n_replicates: int) -> list[Band]:
    """Of each row; none with fewer than two replicates. What the study has run already is known."""
    known = [row for row in rows if row.found.peak is not None]
    most = min(n_replicates, MOST_REPLICATES)
    if most < 2 or not known:
        return []
    rungs = common_rungs([nearest_rung(row.found.peak, work.ladder) for row in known], work.ladder)
    tasks = [
        Task(place, Scenario(replicate), nearest_rung(row.found.peak, work.ladder))
        for replicate in range(most + 1)  # 0: the trace itself
        for place, row in enumerate(known)
    ]
    candidates = [row.candidate for row in known]
    results = work.search_all(tasks, candidates, "the finalists at the same loads", rungs=rungs)
    found = []
    for place, candidate in enumerate(candidates):
        runs = [at for task, (_, at) in zip(tasks, results, strict=True) if task.candidate == place]
        found.append(Band(candidate, {rung: band for rung in rungs if (band := _band(runs, rung))}))
    return found


def common_rungs(peaks: Sequence[int], ladder: Ladder) -> tuple[int, ...]:
    """From below the lowest peak to above the highest: at most MOST_RUNGS, evenly."""
    low, high = max(min(peaks) - 1, ladder.bottom), min(max(peaks) + 1, ladder.top)
    n = min(high - low, MOST_RUNGS - 1)
    return tuple(sorted({low + round(step * (high - low) / max(n, 1)) for step in range(n + 1)}))


def _band(runs: Sequence[Mapping[int, Measured]], rung: int) -> Range | None:
    """The first of `runs` are of the trace itself."""
    whole, *replicates = (run[rung].attained if rung in run else None for run in runs)
    values = [value for value in replicates if value is not None]
    if whole is None or len(values) < 2:
        return None
    found = estimate(values, whole)
    assert found.low is not None and found.high is not None
    return Range(found.value, max(found.low, 0.0), min(found.high, 1.0))
