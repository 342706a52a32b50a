"""Draws from the seed and the request's number: the same seed draws the same for every policy."""

from __future__ import annotations

import math
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
    number, total = tie_hash(seed, r), weight.sum()
    if total == 0:
        return number % weight.size
    left, chosen = number / 2**32 * total, 0
    for engine in range(weight.size):
        if weight[engine] > 0 and left >= 0:
            chosen = engine
            left -= weight[engine]
    return chosen


@njit(cache=True)
def softmax(cost: NDArray[Any], temperature: float) -> NDArray[np.float64]:
    """Weights that fall with the cost, scaled to 0..1 over the engines: by e for each `temperature` of it.
    An engine of infinite cost weighs nothing."""
    least, most = np.inf, -np.inf
    for value in cost:
        if value < np.inf:
            least, most = min(least, value), max(most, value)
    weight = np.empty(cost.size)
    for engine in range(cost.size):
        scaled = (cost[engine] - least) / (most - least) if most > least else 0.0
        weight[engine] = math.exp(-scaled / temperature) if cost[engine] < np.inf else 0.0
    return weight
