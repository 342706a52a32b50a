"""Differences of times, as exact as the log: 100.1 - 0.1 is 100 s, not 99.99999999999999.

A log tells decimals, floats hold binary fractions. Where a difference is held against a limit, or two are
held against each other, the last bit would decide.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

DECIMALS = 7  # the finest clock of a log that we read counts 100 ns; floats of seconds hold that for years


def elapsed(later: ArrayLike, earlier: ArrayLike) -> NDArray[np.float64]:
    """Seconds from `earlier` to `later`, rounded to the clock of the logs; NaN stays."""
    return to_clock(np.subtract(later, earlier))


def to_clock(seconds: ArrayLike) -> NDArray[np.float64]:
    """Seconds rounded to the clock of the logs."""
    return np.asarray(seconds, dtype=np.float64).round(DECIMALS)
