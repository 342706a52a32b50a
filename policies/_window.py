"""What a router sent to each engine in the last minutes, kept in a policy's memory.

Layout from the start: the oldest request that counts, the number of requests noted; per engine the seconds of
work and the number of requests that count; then time, engine and seconds of every request in order.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Memory = NDArray[np.float64]


def window_size(n_requests: int, n_sessions: int, n_engines: int) -> int:
    return 2 + 2 * n_engines + 3 * n_requests


@njit(cache=True)
def forget(memory: Memory, n_engines: int, now: float, window_s: float) -> None:
    """What is more than `window_s` ago no longer counts. Once or more often at an instant: no difference."""
    at = 2 + 2 * n_engines
    while memory[0] < memory[1] and now - memory[at + 3 * int(memory[0])] > window_s:
        place = at + 3 * int(memory[0])
        engine = int(memory[place + 1])
        memory[2 + n_engines + engine] -= 1
        # nothing left is exactly nothing: rounding must not break the tie of idle engines
        still = memory[2 + n_engines + engine] > 0
        memory[2 + engine] = memory[2 + engine] - memory[place + 2] if still else 0.0
        memory[0] += 1


@njit(cache=True)
def note(memory: Memory, n_engines: int, engine: int, now: float, seconds: float) -> None:
    place = 2 + 2 * n_engines + 3 * int(memory[1])
    memory[place], memory[place + 1], memory[place + 2] = now, engine, seconds
    memory[1] += 1
    memory[2 + engine] += seconds
    memory[2 + n_engines + engine] += 1


@njit(cache=True)
def recent_s(memory: Memory, n_engines: int) -> NDArray[np.float64]:
    """Seconds of work per engine."""
    return memory[2 : 2 + n_engines].copy()


@njit(cache=True)
def recent_requests(memory: Memory, n_engines: int) -> NDArray[np.float64]:
    return memory[2 + n_engines : 2 + 2 * n_engines].copy()
