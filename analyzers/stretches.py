"""Who used a chain last: every reuse of a trace as a short list of stretches.

A request touches its blocks from the tip to the root. A parent is therefore always more recent than its
child, and the blocks of a chain that were last touched by the same earlier request lie side by side: one
stretch. A trace of 100 M block references has a few million stretches, and all else follows from them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.analyzers.strands import Strands


class Stretches(NamedTuple):
    """Stretches offset[r] .. offset[r + 1] are those of request r, root first; `previous` never rises in it.

    Blocks of r's chain beyond its stretches are used for the first time.
    """

    offset: NDArray[np.int64]
    previous: NDArray[np.uint32]  # the latest earlier request that touched these blocks
    blocks: NDArray[np.uint32]  # how many

    def request(self) -> NDArray[np.uint32]:
        """The request of each stretch."""
        n_requests = self.offset.size - 1
        return np.repeat(np.arange(n_requests, dtype=np.uint32), np.diff(self.offset))

    def hit_blocks(self) -> NDArray[np.int64]:
        """Blocks of each request that an infinite cache holds: any earlier request touched them."""
        total = np.concatenate(([0], np.cumsum(self.blocks, dtype=np.int64)))
        return total[self.offset[1:]] - total[self.offset[:-1]]


def stretches(strands: Strands, tip: NDArray[np.uint32]) -> Stretches:
    """The stretches of requests in the given order. tip 0: no block.

    Cost: about one step per strand of the chain and per stretch, whatever the number of blocks.
    """
    tip = np.ascontiguousarray(tip, dtype=np.uint32)
    crossings = int(strands.level[strands.of_node[tip[tip > 0]]].sum(dtype=np.int64))
    # A request adds one segment per strand that it crosses, and cuts at most one there.
    previous = np.empty(2 * crossings, np.uint32)
    blocks = np.empty(2 * crossings, np.uint32)
    offset = np.zeros(tip.size + 1, np.int64)
    _collect(strands, tip, offset, previous, blocks)
    return Stretches(offset, previous[: offset[-1]], blocks[: offset[-1]])


@njit(cache=True, nogil=True)
def _collect(strands, tip, offset, previous, blocks):
    """Fill the three arrays.

    Touches of a strand are beginnings of it, so its segments of equal last toucher form a stack: the youngest
    ends nearest to the root and lies on top. A touch of `reach` blocks pops what it covers and cuts the next.
    """
    end = np.empty(strands.start[-1], np.int32)  # of a segment: blocks from the strand's first, exclusive
    toucher = np.empty(strands.start[-1], np.uint32)
    height = np.zeros(strands.above.size, np.int32)  # segments on a strand's stack
    way = np.empty(64, np.uint32)  # strands of the chain from the tip up; at most log2(requests) + 1
    reach = np.empty(64, np.int32)  # blocks of the chain on each
    n = 0
    for r in range(tip.size):
        node, n_way = tip[r], 0
        while node != 0:
            strand = strands.of_node[node]
            above = strands.above[strand]
            way[n_way], reach[n_way] = strand, strands.depth[node] - strands.depth[above]
            node = above
            n_way += 1
        for w in range(n_way - 1, -1, -1):
            strand, goal = way[w], reach[w]
            bottom = strands.start[strand]
            top = bottom + height[strand]
            at = 0
            while top > bottom and at < goal:
                upto = min(end[top - 1], goal)
                previous[n], blocks[n] = toucher[top - 1], upto - at
                n += 1
                if end[top - 1] <= goal:
                    top -= 1
                at = upto
            end[top], toucher[top] = goal, r
            height[strand] = top + 1 - bottom
        offset[r + 1] = n
