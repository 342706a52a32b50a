"""How many requests a router sent to each engine in the last seconds, kept in a policy's memory.

Layout from the start: the oldest request counted, the number of requests noted, requests counted per engine,
then time and engine of every request in order.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Memory = NDArray[np.float64]


def rates_size(n_requests: int, n_sessions: int, n_engines: int) -> int:
    return 2 + n_engines + 2 * n_requests


@njit(cache=True)
def recent_requests(memory: Memory, n_engines: int, now: float, window_s: float) -> NDArray[np.int64]:
    """Requests noted less than window_s ago, per engine. Forgets the older ones."""
    at = 2 + n_engines
    while memory[0] < memory[1] and now - memory[at + 2 * int(memory[0])] >= window_s:
        memory[2 + int(memory[at + 2 * int(memory[0]) + 1])] -= 1
        memory[0] += 1
    return memory[2:at].astype(np.int64)


@njit(cache=True)
def note_request(memory: Memory, n_engines: int, engine: int, now: float) -> None:
    place = 2 + n_engines + 2 * int(memory[1])
    memory[place], memory[place + 1] = now, engine
    memory[1] += 1
    memory[2 + engine] += 1
