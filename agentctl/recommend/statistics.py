"""Peaks, intervals and comparisons from paired replicates.

A replicate is a resampled workload that every candidate meets at every load; differences are taken inside a
replicate. The trace itself is the estimate, their spread its error: the outputs of one run are never
resampled, since they depend on each other through the queues.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
ALPHA = 0.05  # of a whole family of comparisons (Holm)


class Peak(NamedTuple):
    """The highest load that holds the objectives, as a multiple of the trace's load.

    side  "": between two loads tried; "above": every load tried holds, the peak is at least this;
          "below": none holds, the peak is at most this
    """

    load: float
    side: Literal["", "above", "below"] = ""


class Estimate(NamedTuple):
    """A value with its 95 % interval (Student's t); None: unknown or open at that end."""

    value: float
    low: float | None
    high: float | None
    p: float | None = None  # two-sided, of "the value is 0"
    error: float | None = None  # of the value, with `n` - 1 degrees of freedom
    n: int = 1

    def beyond(self, level: float) -> float:
        """The lower end of the one-sided interval of that level; -inf without an error."""
        if self.error is None:
            return -math.inf
        return self.value - float(stats.t.ppf(1 - level, self.n - 1)) * self.error


def decreasing_fit(values: Sequence[float]) -> Floats:
    """The closest non-increasing sequence in least squares (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []  # mean, size
    for value in values:
        blocks.append((value, 1))
        while len(blocks) > 1 and blocks[-2][0] < blocks[-1][0]:
            (mean_a, n_a), (mean_b, n_b) = blocks[-2:]
            blocks[-2:] = [((mean_a * n_a + mean_b * n_b) / (n_a + n_b), n_a + n_b)]
    return np.concatenate([np.full(n, mean) for mean, n in blocks])


def peak_load(scores: dict[float, float]) -> Peak:
    """Where the isotonic fit of score against load crosses 0, linear in the logarithm of the load.

    A score of 0 or more holds the objectives. Raises ValueError without scores.
    """
    loads = sorted(scores)
    fit = decreasing_fit([scores[load] for load in loads])
    if fit[0] < 0:
        return Peak(loads[0], "below")
    if fit[-1] >= 0:
        return Peak(loads[-1], "above")
    k = int(np.flatnonzero(fit >= 0)[-1])
    share = fit[k] / (fit[k] - fit[k + 1])
    return Peak(loads[k] * (loads[k + 1] / loads[k]) ** float(share))


def estimate(replicates: Sequence[float], whole: float) -> Estimate:
    """The value of the whole trace, and how far it may be from what the trace's source would give.

    A resample errs about the trace as the trace errs about its source: the spread of the resamples is the
    error of the trace. Their mean is not the estimate: a resample repeats sessions and is burstier than its
    source, so that it carries less. Normal form; percentile intervals of so few cover too little. Fewer than
    two give no interval.
    """
    n = len(replicates)
    if n < 2:
        return Estimate(whole, None, None, None)
    error = float(np.std(replicates, ddof=1))
    half = float(stats.t.ppf(1 - ALPHA / 2, n - 1)) * error
    p = 1.0 if whole == 0 else 0.0  # without spread only an exact tie is a tie
    if error > 0:
        p = 2 * float(stats.t.sf(abs(whole) / error, n - 1))
    return Estimate(whole, whole - half, whole + half, p, error, n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p values: below ALPHA, the comparison stands although several were made."""
    order = sorted(range(len(p_values)), key=lambda i: (p_values[i], i))
    adjusted, worst = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = worst
    return adjusted
