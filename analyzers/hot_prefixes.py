"""Prefixes so popular that one engine cannot carry them.

LMetric's failure test (arXiv 2603.15202, phase 1 of its detector): when a share x of the requests has a
common prefix that the engines M hold, scoring by misses times load is safe while x / (1 - x) <= |M| / |rest|.
Here for the moment after the prefix appeared, |M| = 1: on n engines x / (1 - x) <= 1 / (n - 1), so x <= 1/n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.trace import PrefixTree

N_LISTED = 5


@dataclass(frozen=True)
class Prefix:
    """Requests whose chains begin with the same block, used by two of them or more."""

    node: int
    requests: int
    sessions: int
    request_ratio: float  # x
    odds: float | None  # x / (1 - x); None when every request begins so
    common_tokens: int  # what all of them share
    safe_engines: int  # the largest cluster on which one engine may hold it alone


class HotPrefixes(NamedTuple):
    most_used: tuple[Prefix, ...]
    hot: dict[int, int]  # by number of engines: prefixes that fail the test


def hot_prefixes(
    tree: PrefixTree,
    tip: NDArray[np.uint32],
    session: NDArray[np.int64],
    block_tokens: int,
    engines: tuple[int, ...],
) -> HotPrefixes:
    """The test for every first block that two requests share; x is the share of all requests in the trace."""
    top, common_depth = _tops(tree.parent, tree.depth, _uses(tree.parent, tip))
    chosen = tip > 0
    first_block, requests = np.unique(top[tip[chosen]], return_counts=True)
    pairs = np.unique(np.stack([top[tip[chosen]].astype(np.int64), session[chosen]]), axis=1)
    sessions = np.unique(pairs[0], return_counts=True)[1]
    order = np.lexsort((first_block, -requests))
    order = order[requests[order] >= 2]
    total = tip.size
    most_used = tuple(
        Prefix(
            node=int(first_block[i]),
            requests=int(requests[i]),
            sessions=int(sessions[i]),
            request_ratio=float(requests[i] / total),
            odds=float(requests[i] / (total - requests[i])) if requests[i] < total else None,
            common_tokens=int(common_depth[first_block[i]]) * block_tokens,
            safe_engines=int(total // requests[i]),
        )
        for i in order[:N_LISTED]
    )
    return HotPrefixes(most_used, {n: int((requests[order] * n > total).sum()) for n in engines})


@njit(cache=True, nogil=True)
def _uses(parent, tip):
    """Requests whose chain holds each node."""
    uses = np.zeros(parent.size, np.int64)
    for r in range(tip.size):
        uses[tip[r]] += 1
    for node in range(parent.size - 1, 0, -1):
        uses[parent[node]] += uses[node]
    return uses


@njit(cache=True, nogil=True)
def _tops(parent, depth, uses):
    """The first block of each node's chain; at a first block, also how many blocks all its requests share."""
    top = np.zeros(parent.size, np.uint32)
    common_depth = np.zeros(parent.size, np.int32)
    for node in range(1, parent.size):
        top[node] = node if parent[node] == 0 else top[parent[node]]
        if uses[node] == uses[top[node]]:
            common_depth[top[node]] = depth[node]
    return top, common_depth
