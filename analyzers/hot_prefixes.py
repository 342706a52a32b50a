"""Prefixes so popular that one engine cannot carry them.

LMetric's failure test (arXiv 2603.15202, phase 1 of its detector): when a share x of the requests has a
common prefix that the engines M hold, scoring by misses times load is safe while x / (1 - x) <= |M| / |rest|.
Here for the moment after the prefix appeared, |M| = 1: on n engines x / (1 - x) <= 1 / (n - 1), so x <= 1/n.

A prefix is told by its first shared block after what all requests of the trace have in common: that is on
every engine at once and favours none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.analyzers.strands import count_uses
from agentctl.trace import PrefixTree

N_LISTED = 5


@dataclass(frozen=True)
class Prefix:
    """Requests whose chains have the same first block after the common ones, two of them or more."""

    node: int
    requests: int
    sessions: int
    request_ratio: float  # x
    odds: float  # x / (1 - x)
    common_tokens: int  # what all of them share, from the root
    safe_engines: int  # the largest cluster on which one engine may hold it alone


class HotPrefixes(NamedTuple):
    most_used: tuple[Prefix, ...]
    hot: dict[int, int]  # by number of engines: prefixes that fail the test
    common_tokens: int  # what all requests of the trace share


def hot_prefixes(
    tree: PrefixTree,
    tip: NDArray[np.uint32],
    session: NDArray[np.int64],
    block_tokens: int,
    engines: tuple[int, ...],
) -> HotPrefixes:
    """The test for every prefix of two requests or more; x is its share of all requests in the trace."""
    uses = count_uses(tree.parent, tip).astype(np.int64)
    trunk = int(np.flatnonzero(uses == tip.size).max(initial=0))  # last block of all requests; 0: the root
    top, common_depth = _tops(tree.parent, tree.depth, uses, trunk)
    chosen = top[tip] > 0
    first_block, requests = np.unique(top[tip[chosen]], return_counts=True)
    width = int(session.max(initial=0)) + 1
    pairs = np.unique(top[tip[chosen]].astype(np.int64) * width + session[chosen])
    sessions = np.unique(pairs // width, return_counts=True)[1]
    order = np.lexsort((first_block, -requests))
    order = order[requests[order] >= 2]
    total = tip.size
    most_used = tuple(
        Prefix(
            node=int(first_block[i]),
            requests=int(requests[i]),
            sessions=int(sessions[i]),
            request_ratio=float(requests[i] / total),
            odds=float(requests[i] / (total - requests[i])),
            common_tokens=int(common_depth[first_block[i]]) * block_tokens,
            safe_engines=int(total // requests[i]),
        )
        for i in order[:N_LISTED]
    )
    hot = {n: int((requests[order] * n > total).sum()) for n in engines}
    return HotPrefixes(most_used, hot, int(tree.depth[trunk]) * block_tokens)


@njit(cache=True, nogil=True)
def _tops(parent, depth, uses, trunk):
    """The first block below `trunk` of each node's chain (0: none); there, the depth its requests share."""
    top = np.zeros(parent.size, np.uint32)
    common_depth = np.zeros(parent.size, np.int32)
    for node in range(1, parent.size):
        top[node] = node if parent[node] == trunk else top[parent[node]]
        if uses[node] == uses[top[node]]:
            common_depth[top[node]] = depth[node]
    return top, common_depth
