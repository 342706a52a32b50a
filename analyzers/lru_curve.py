"""Exact LRU hits for every cache size, in one pass (Mattson et al., "Evaluation techniques for storage
hierarchies", 1970), with one counter per request instead of one per block.

The cache is one pool of blocks, as an engine keeps them: a request hits the longest beginning of its chain
that the pool holds at its arrival, then touches its blocks from the tip to the root (vLLM frees them in that
order), and the pool forgets the blocks touched longest ago. A block is hit when fewer blocks than the
capacity are more recent than it. Within a stretch that number rises by one per block, so a stretch adds one
run to the histogram of distances, and a Fenwick tree over requests (Fenwick, 1994) tells where it begins.

Not modelled: blocks pinned by running requests, blocks of generated tokens, several pools.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.analyzers.stretches import Stretches


def lru_hit_tokens(
    reuse: Stretches,
    n_blocks: NDArray[np.int64],
    prompt_tokens: NDArray[np.int64],
    block_tokens: int,
    since: int = 0,
) -> NDArray[np.int64]:
    """Tokens hit at a capacity of 0, 1, 2, ... blocks, by the requests before `since` and by those after.

    Shape (2, n): the last column is the smallest capacity that hits all that an infinite cache would. A hit
    block counts block_tokens, a partial last block what the prompt has in it; with block_tokens = 1 and
    prompt_tokens = n_blocks the unit is blocks. All requests fill the cache, whichever row counts them.
    """
    n_blocks = np.asarray(n_blocks, dtype=np.int64)
    missing = np.maximum(n_blocks * block_tokens - prompt_tokens, 0)  # of a full last block
    distinct = int((n_blocks - reuse.hit_blocks()).sum())
    hits = np.zeros((2, distinct + 2), dtype=np.int64)
    enough = _mark_capacities(reuse, n_blocks, missing, block_tokens, since, hits)
    hits = hits[:, : enough + 1]  # what lies beyond was never touched: no memory is spent on it
    _sum_twice(hits)
    return hits


@njit(cache=True, nogil=True)
def _mark_capacities(reuse, n_blocks, missing, block_tokens, since, marks):
    """Add to `marks` where the tokens that one more block of capacity brings rise and fall.

    Returns the smallest capacity beyond which nothing is gained.
    """
    n = n_blocks.size
    largest = 0
    fenwick = np.zeros(n + 1, np.int64)  # over requests: blocks that each touched last
    cached = 0  # distinct blocks so far
    for r in range(n):
        side = np.int64(r >= since)
        hit = np.int64(0)
        for s in range(reuse.offset[r], reuse.offset[r + 1]):
            last, blocks = np.int64(reuse.previous[s]), np.int64(reuse.blocks[s])
            hit += blocks
            newer = cached - _blocks_upto(fenwick, last)
            _count(fenwick, last, -blocks)  # from here on they are newer than the rest of the chain
            enough = newer + 1  # the capacity that holds the stretch's first block
            short = missing[r] if hit == n_blocks[r] else 0
            marks[side, enough] += block_tokens
            marks[side, enough + blocks - 1] -= short
            marks[side, enough + blocks] -= block_tokens - short
            largest = max(largest, enough + blocks - 1)
        cached += n_blocks[r] - hit
        _count(fenwick, r, n_blocks[r])
    return largest


@njit(cache=True, nogil=True)
def _count(fenwick, r, blocks):
    """Add blocks to request r."""
    i = r + 1
    while i < fenwick.size:
        fenwick[i] += blocks
        i += i & -i


@njit(cache=True, nogil=True)
def _blocks_upto(fenwick, r):
    """Blocks of the requests 0 .. r."""
    total = 0
    i = r + 1
    while i > 0:
        total += fenwick[i]
        i &= i - 1
    return total


@njit(cache=True, nogil=True)
def _sum_twice(rows):
    """Marks to gains per block of capacity to hits, in place."""
    for row in rows:
        gain, hits = 0, 0
        for capacity in range(row.size):
            gain += row[capacity]
            hits += gain
            row[capacity] = hits
