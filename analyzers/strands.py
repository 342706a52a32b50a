"""The prefix tree as strands, so that a walk along a chain costs a few steps and not one per block.

A node's busiest child continues its strand, every other child starts a new one (heavy-path decomposition;
Sleator and Tarjan, "A data structure for dynamic trees", 1983). A request's chain is then a beginning of each
of a few strands. Stepping to another strand at least halves the requests that come along, so a chain crosses
at most log2(requests) strands; on agent traces one to three, however many turns have grown it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray


class Strands(NamedTuple):
    """Arrays over nodes (index 0 is the root, which is no block and lies on no strand) and over strands."""

    of_node: NDArray[np.uint32]  # strand of a node
    uses: NDArray[np.uint32]  # requests whose chain holds the node
    depth: NDArray[np.int32]  # of a node, as in the tree
    above: NDArray[np.uint32]  # node that the strand hangs from
    start: NDArray[np.int64]  # where the strand's blocks lie when all strands are laid end to end
    level: NDArray[np.int32]  # strands from the root down to this one, itself included


def weave(parent: NDArray[np.uint32], depth: NDArray[np.int32], tip: NDArray[np.uint32]) -> Strands:
    """Strands of a tree (parents before children) under the requests with these tip nodes; O(nodes)."""
    return Strands(*_weave(parent, depth, tip))


@njit(cache=True, nogil=True)
def _weave(parent, depth, tip):
    uses = count_uses(parent, tip)
    heir = _heirs(parent, uses)
    n_strands = 0
    for node in range(1, parent.size):
        if parent[node] == 0 or heir[parent[node]] != node:
            n_strands += 1
    of_node = np.zeros(parent.size, np.uint32)
    above = np.empty(n_strands, np.uint32)
    level = np.empty(n_strands, np.int32)
    start = np.zeros(n_strands + 1, np.int64)
    strand = 0
    for node in range(1, parent.size):
        p = parent[node]
        if p != 0 and heir[p] == node:
            of_node[node] = of_node[p]
        else:
            of_node[node] = strand
            above[strand] = p
            level[strand] = level[of_node[p]] + 1 if p != 0 else 1
            strand += 1
        start[of_node[node] + 1] += 1
    for s in range(n_strands):
        start[s + 1] += start[s]
    return of_node, uses, depth, above, start, level


@njit(cache=True, nogil=True)
def count_uses(parent, tip):
    """Requests whose chain holds each node (u32[m])."""
    uses = np.zeros(parent.size, np.uint32)
    for r in range(tip.size):
        uses[tip[r]] += 1
    for node in range(parent.size - 1, 0, -1):
        uses[parent[node]] += uses[node]
    return uses


@njit(cache=True, nogil=True)
def _heirs(parent, uses):
    """The busiest child of each node; ties: the lowest number."""
    heir = np.zeros(parent.size, np.uint32)
    for node in range(1, parent.size):
        p = parent[node]
        if heir[p] == 0 or uses[node] > uses[heir[p]]:
            heir[p] = node
    return heir
