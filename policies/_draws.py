"""Draws from the seed and the request's number: the same seed draws the same for every policy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies.base import tie_hash


@njit(cache=True)
def draw_two(n: int, seed: int, r: int) -> tuple[int, int]:
    """Two different engines of n, all ordered pairs equally likely; the same one twice when n is 1."""
    draw = tie_hash(seed, r)
    first = draw % n
    return first, (first + 1 + draw // n % max(n - 1, 1)) % n


@njit(cache=True)
def draw(weight: NDArray[Any], seed: int, r: int) -> int:
    """An engine with probability in proportion to its weight, which is not below 0; any when all are 0."""
    number = tie_hash(seed, r)
    up_to = np.cumsum(weight)
    if up_to[-1] == 0:
        return number % weight.size
    return int(np.searchsorted(up_to, number / 2**32 * up_to[-1], side="right"))


@njit(cache=True)
def softmax(cost: NDArray[Any], temperature: float) -> NDArray[np.float64]:
    """Weights that fall with the cost, scaled to 0..1 over the engines: by e for each `temperature` of it."""
    least = cost.min()
    spread = cost.max() - least
    return np.exp(-(cost - least) / ((spread if spread > 0 else 1.0) * temperature))
