"""The best that any replacement could do: Belady's optimum over whole requests.

Keeping a block from one use to the next is an interval of time; a cache of c blocks can carry c intervals at
any moment, and may refuse a block (bypass). Most intervals are carried by always giving up the one that ends
last (Belady, "A study of replacement algorithms", 1966; for intervals: Carlisle and Lloyd, 1995). An ancestor
is never needed later than its descendants, so what is kept of a chain is its beginning, as in a real cache.

All blocks count alike, a partial last block too. It knows the future: an upper bound, not a policy.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.analyzers.stretches import Stretches


class Intervals(NamedTuple):
    """Stretches by the request that they start from: `first[r]`, then `after[stretch]`, until -1."""

    end: NDArray[np.int64]  # request that uses the stretch again
    blocks: NDArray[np.uint32]
    first: NDArray[np.int64]
    after: NDArray[np.int64]


def intervals(reuse: Stretches) -> Intervals:
    first, after = _chain(reuse.previous, reuse.offset.size - 1)
    return Intervals(reuse.request().astype(np.int64), reuse.blocks, first, after)


def belady_hit_blocks(to_carry: Intervals, capacity: int) -> NDArray[np.int64]:
    """Blocks that each request finds in an optimal cache of `capacity` blocks: the first of its chain."""
    hits = np.zeros(to_carry.first.size, dtype=np.int64)
    _carry(to_carry, capacity, hits)
    return hits


@njit(cache=True, nogil=True)
def _chain(previous, n_requests):
    first = np.full(n_requests, -1, np.int64)
    after = np.empty(previous.size, np.int64)
    for s in range(previous.size):
        after[s] = first[previous[s]]
        first[previous[s]] = s
    return first, after


@njit(cache=True, nogil=True)
def _carry(to_carry, capacity, kept):
    """Fill `kept`: blocks carried to each request. Ties do not change the count."""
    ends = [0]  # heap of -request, the furthest on top; requests that have passed stay at its bottom
    ends.pop()
    load = 0
    for r in range(to_carry.first.size):
        load -= kept[r]
        s = to_carry.first[r]
        while s >= 0:
            end = to_carry.end[s]
            if load < capacity or (capacity > 0 and end < -ends[0]):  # else it would be given up at once
                if kept[end] == 0:
                    heappush(ends, -end)
                kept[end] += to_carry.blocks[s]
                load += to_carry.blocks[s]
            s = to_carry.after[s]
        while load > capacity:
            furthest = -ends[0]
            drop = min(kept[furthest], load - capacity)
            kept[furthest] -= drop
            load -= drop
            if kept[furthest] == 0:
                heappop(ends)
