"""Errors of many requests as few numbers with intervals: block bootstrap over blocks of time.

Errors of neighbours are alike (they shared an engine), so whole blocks of time are drawn with replacement, a
block at least twice as long as a typical request. The interval is the value plus or minus Student's t times
the spread of the draws. A log too short for FEWEST_BLOCKS has shorter ones, and it is said that they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as t_distribution

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

FEWEST_BLOCKS = 6
FEWEST_REQUESTS = 20
LONGEST_S, PARTS = 600.0, 16
DRAWS = 200
SEED = 20
LIFETIMES = 2.0  # of a typical request in a block
CONFIDENCE = 0.95
LEAST_SECONDS = 1e-9  # nothing is relative to less


class Estimate(NamedTuple):
    """A value with its 95 % interval; None: not defined, or no interval."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Blocks:
    """of: each request's block; drawn[k, b]: draw k took block b so often; caveat: why they mislead."""

    of: I64
    n: int
    length_s: float
    drawn: I64
    caveat: str | None = None

    def take(self, which: NDArray[np.bool_]) -> Blocks:
        """The same draws for some of the requests."""
        return Blocks(self.of[which], self.n, self.length_s, self.drawn, self.caveat)


def time_blocks(arrival_s: F64, duration_s: F64, seed: int = SEED) -> Blocks:
    """Blocks of equal length: a sixteenth of the log, at most ten minutes, twice the median duration.

    A log with fewer than FEWEST_BLOCKS of these is cut in sixteen all the same, with a caveat.
    """
    span = float(np.ptp(arrival_s)) if arrival_s.size else 0.0
    if arrival_s.size < FEWEST_REQUESTS or span == 0:
        what = "request that came" if arrival_s.size == 1 else "requests that came"
        when = " at one instant" if span == 0 and arrival_s.size > 1 else ""
        why = f"no intervals: {arrival_s.size:,} {what}{when}; they need {FEWEST_REQUESTS} at several times"
        return Blocks(np.zeros(arrival_s.size, np.int64), 1, span, np.empty((0, 1), np.int64), why)
    typical = float(np.nanmedian(duration_s)) if np.isfinite(duration_s).any() else 0.0
    length, caveat = max(min(span / PARTS, LONGEST_S), LIFETIMES * typical), None
    if span < FEWEST_BLOCKS * length:
        length = span / PARTS
        caveat = (
            f"intervals are too narrow: they take stretches of {length:.3g} s as independent, and a typical "
            f"request lasts {typical:.3g} s; a longer log has better ones"
        )
    n = int(np.ceil(span / length))
    of = np.minimum(((arrival_s - arrival_s.min()) / span * n).astype(np.int64), n - 1)
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=DRAWS)
    return Blocks(of, n, span / n, drawn, caveat)


def mean_of(values: F64, blocks: Blocks) -> Estimate:
    """The mean of the values."""
    if not values.size:
        return Estimate(None)
    sums = np.bincount(blocks.of, weights=values, minlength=blocks.n)
    counts = np.bincount(blocks.of, minlength=blocks.n)
    return _estimate(float(values.mean()), _ratios(blocks.drawn @ sums, blocks.drawn @ counts), blocks.n)


def ratio_of(part: F64, whole: F64, blocks: Blocks) -> Estimate:
    """The sum of `part` over the sum of `whole`."""
    if not whole.sum() > 0:
        return Estimate(None)
    above = np.bincount(blocks.of, weights=part, minlength=blocks.n)
    below = np.bincount(blocks.of, weights=whole, minlength=blocks.n)
    draws = _ratios(blocks.drawn @ above, blocks.drawn @ below)
    return _estimate(float(part.sum() / whole.sum()), draws, blocks.n)


class Sorted:
    """Values of requests, sorted once, and their percentile in each draw of blocks."""

    def __init__(self, values: F64, blocks: Blocks) -> None:
        order = np.argsort(values, kind="stable")
        self.values, self._of = values[order], blocks.of[order]
        self._drawn = blocks.drawn

    def at(self, percent: float) -> float:
        """Nearest rank: the least value that this share does not exceed."""
        return float(np.quantile(self.values, percent / 100, method="inverted_cdf"))

    def draws(self, percents: Sequence[float]) -> F64:
        """The same in each draw, [draw, percent]; NaN of a draw without values."""
        found = np.full((len(self._drawn), len(percents)), np.nan)
        shares = np.asarray(percents) / 100
        for k, times in enumerate(self._drawn):
            weight = np.cumsum(times[self._of])
            if weight.size and weight[-1]:
                found[k] = self.values[np.searchsorted(weight, shares * weight[-1] - 1e-9)]
        return found


def quantile_errors(
    simulated: Sorted, logged: Sorted, percents: Sequence[float], n_blocks: int
) -> list[Estimate]:
    """Relative error of each percentile; None where the logged one is nothing."""
    draws = _ratios(simulated.draws(percents), logged.draws(percents)) - 1
    result = []
    for place, percent in enumerate(percents):
        truth = logged.at(percent)
        known = truth >= LEAST_SECONDS
        value = simulated.at(percent) / truth - 1 if known else None
        result.append(Estimate(None) if value is None else _estimate(value, draws[:, place], n_blocks))
    return result


def _ratios(above: NDArray[np.number], below: NDArray[np.number]) -> F64:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > 0, above / below, np.nan)


def _estimate(value: float, draws: F64, n_blocks: int) -> Estimate:
    known = draws[np.isfinite(draws)]
    if known.size < 2:
        return Estimate(value)
    # a bootstrap of n blocks spreads sqrt((n - 1)/n) times too little
    spread = float(known.std(ddof=1)) * math.sqrt(n_blocks / (n_blocks - 1))
    half = float(t_distribution.ppf((1 + CONFIDENCE) / 2, n_blocks - 1)) * spread
    return Estimate(value, value - half, value + half)
