"""Consistent hashing: where keys lie on a ring of engines.

Routers hash the engines' addresses; here an engine's number and the seed take their place. Which engine
gets which key is as arbitrary as there, and as lasting.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies.base import tie_hash

_KEYS, _NODES = 0x9E3779B9, 0x7F4A7C15  # hash keys apart from nodes, and both apart from ties


@njit(cache=True)
def ring_distances(key: int, n_engines: int, virtual_nodes: int, seed: int) -> NDArray[np.int64]:
    """How far each engine's next virtual node lies behind `key`: the ring's choice is the least, and a walk
    along the ring meets the engines in this order."""
    distances = np.empty(n_engines, np.int64)
    place = tie_hash(seed ^ _KEYS, key)
    for engine in range(n_engines):
        least = 1 << 32
        for node in range(engine * virtual_nodes, (engine + 1) * virtual_nodes):
            least = min(least, (tie_hash(seed ^ _NODES, node) - place) & 0xFFFFFFFF)
        distances[engine] = least
    return distances


@njit(cache=True)
def rendezvous(key: int, n_engines: int, seed: int) -> NDArray[np.int64]:
    """A hash of key and each engine: among any engines a key always prefers the same one."""
    hashes = np.empty(n_engines, np.int64)
    place = tie_hash(seed ^ _KEYS, key)
    for engine in range(n_engines):
        hashes[engine] = tie_hash(place, engine)
    return hashes
