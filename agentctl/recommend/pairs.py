"""Two candidates on the same resamples: what each reaches, how they differ, who is surely worse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from agentctl.recommend.objectives import Objective
from agentctl.recommend.search import Found, Ladder
from agentctl.recommend.statistics import ALPHA, Estimate, estimate

INDIFFERENCE = 0.02  # of the best: a difference that nobody would change a configuration for


class Range(NamedTuple):
    """A value, or a difference of two, with its 95 % interval. Loads are multiples of the trace's load.

    None: unknown, or open because a peak was above every load that was tried.
    """

    value: float
    low: float | None
    high: float | None


def side_of(f: Found) -> str:
    sides = {peak.side for peak in (f.peak, *f.replicates) if peak}
    return sides.pop() if len(sides) == 1 else ""


def peak_of(f: Found) -> Range | None:
    if f.peak is None:
        return None
    found = estimate([peak.load for peak in f.replicates], f.peak.load)
    low = None if found.low is None else max(found.low, 0.0)
    return Range(found.value, low, None if is_open(f) else found.high)


def is_open(f: Found) -> bool:
    return any(peak.side == "above" for peak in (f.peak, *f.replicates) if peak)


class Values(NamedTuple):
    """An objective on the trace itself and on every replicate; None: not defined there."""

    whole: float | None
    replicates: list[float | None]


def values_of(f: Found, objective: Objective, ladder: Ladder) -> Values:
    if objective.missing(f.candidate) is not None or f.peak is None:
        return Values(None, [])
    runs = f.at_replicates or [{}] * len(f.replicates)  # an objective of the peak alone needs none
    of_replicates = zip(f.replicates, runs, strict=True)
    return Values(
        objective.value(f.candidate, f.peak, f.at, ladder),
        [objective.value(f.candidate, peak, at, ladder) for peak, at in of_replicates],
    )


def compare(a: Found, b: Found | None, objective: Objective, ladder: Ladder) -> Estimate | None:
    """How much better `a` is than `b` (above 0: better), paired by replicate, over those that both have."""
    if b is None or a.peak is None or b.peak is None:
        return None
    if not objective.at_trace and side_of(a) == side_of(b) != "":  # beyond the ladder on the same side
        return Estimate(0.0, None, None, 1.0 if len(a.replicates) > 1 else None)
    mine, theirs = values_of(a, objective, ladder), values_of(b, objective, ladder)
    if mine.whole is None or theirs.whole is None:
        return None
    pairs = zip(mine.replicates, theirs.replicates, strict=False)
    known = [objective.sign * (x - y) for x, y in pairs if x is not None and y is not None]
    return estimate(known, objective.sign * (mine.whole - theirs.whole))


def estimate_of(f: Found, objective: Objective, ladder: Ladder) -> float:
    """The estimate; above: better. Without a value the worst."""
    whole = values_of(f, objective, ladder).whole
    return -math.inf if whole is None else objective.sign * whole


def is_surely_better(pair: Estimate | None) -> bool:
    return pair is not None and pair.p is not None and pair.p < ALPHA and pair.value > 0


def surely_worse(found: Sequence[Found], objectives: Sequence[Objective], ladder: Ladder) -> list[bool]:
    """Who may drop out: in every objective worse than one and the same leader by more than the indifference
    zone, with 95 % confidence for all who are left together.

    In the manner of Kim and Nelson's elimination, but with the spread of the replicates themselves and not of
    their mean: a resample errs about the trace as the trace about its source, and more of them do not help.
    """
    leaders = [max(found, key=lambda f: estimate_of(f, one, ladder)) for one in objectives] if found else []
    level = ALPHA / max(len(found) - 1, 1)

    def worse_than(f: Found, leader: Found) -> bool:
        for one in objectives:
            pair = compare(leader, f, one, ladder)
            zone = INDIFFERENCE * abs(estimate_of(leader, one, ladder))
            if pair is None or pair.beyond(level) <= zone:
                return False
        return True

    return [any(worse_than(f, leader) for leader in leaders if leader is not f) for f in found]
