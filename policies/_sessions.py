"""Which engine each session is bound to, kept in a policy's memory: two numbers per session from `at` on.

The engine + 1, so that the zeros of a fresh memory mean none, and the time of the session's last request.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Memory = NDArray[np.float64]


@njit(cache=True)
def home_of(memory: Memory, at: int, session: int, now: float, idle_s: float) -> int:
    """The engine that `session` is bound to; -1 when none, or when its last request is idle_s ago."""
    place = at + 2 * session
    if memory[place] == 0 or now - memory[place + 1] >= idle_s:
        return -1
    return int(memory[place]) - 1


@njit(cache=True)
def bind(memory: Memory, at: int, session: int, engine: int, now: float) -> None:
    """Bind `session`, which has a request now, to `engine`."""
    memory[at + 2 * session] = engine + 1
    memory[at + 2 * session + 1] = now
