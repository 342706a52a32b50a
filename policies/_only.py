"""Rules that leave one engine or some: the others cost without bound, out of question for `--explain`.

For compiled callers: see agentctl.sim.jit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.sim.jit import INTERNAL


@njit(cache=True, **INTERNAL)
def only(engine: int, cost: NDArray[Any]) -> NDArray[Any]:
    """The cost of `engine`, infinite elsewhere."""
    alone = np.empty(cost.size)
    for e in range(cost.size):
        alone[e] = cost[e] if e == engine else np.inf
    return alone


@njit(cache=True, **INTERNAL)
def among(candidates: NDArray[Any], cost: NDArray[Any]) -> NDArray[Any]:
    """The cost of engines that are candidates, infinite elsewhere. np.where takes seconds to compile."""
    theirs = np.empty(cost.size)
    for e in range(cost.size):
        theirs[e] = cost[e] if candidates[e] else np.inf
    return theirs
