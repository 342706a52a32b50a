"""The least and the most of some engines' values, in loops: boolean indexing takes seconds to compile."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Candidates = NDArray[np.bool_]  # whether each engine is one


@njit(cache=True)
def least_among(values: NDArray[Any], among: Candidates) -> float:
    """Infinite when there are no candidates."""
    least = np.inf
    for engine in range(values.size):
        if among[engine]:
            least = min(least, float(values[engine]))
    return least


@njit(cache=True)
def most_among(values: NDArray[Any], among: Candidates) -> float:
    """Minus infinite when there are no candidates."""
    most = -np.inf
    for engine in range(values.size):
        if among[engine]:
            most = max(most, float(values[engine]))
    return most
