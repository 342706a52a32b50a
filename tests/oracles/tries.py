"""Prefix trees from lists of block ids, grown one look-up at a time, and random lists to grow them from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st


class Trie(NamedTuple):
    parent: np.ndarray  # u32, node 0 is the root
    depth: np.ndarray  # i32
    tip: np.ndarray  # u32, one per chain


def plant(chains: Iterable[Sequence[int]]) -> Trie:
    """Nodes are numbered in order of first use; two chains share exactly the nodes of their common start."""
    node_of: dict[tuple[int, int], int] = {}
    parent, depth, tips = [0], [0], []
    for chain in chains:
        node = 0
        for block in chain:
            above, node = node, node_of.setdefault((node, block), len(parent))
            if node == len(parent):
                parent.append(above)
                depth.append(depth[above] + 1)
        tips.append(node)
    return Trie(np.array(parent, np.uint32), np.array(depth, np.int32), np.array(tips, np.uint32))


def branching_chains(max_size: int = 30) -> st.SearchStrategy[list[list[int]]]:
    """Requests whose chains part often and meet often; an id names its whole prefix."""
    paths = st.lists(st.lists(st.integers(0, 2), max_size=7).map(tuple), max_size=max_size)
    return paths.map(_named)


def _named(paths: list[tuple[int, ...]]) -> list[list[int]]:
    ids: dict[tuple[int, ...], int] = {}
    return [[ids.setdefault(path[: d + 1], len(ids)) for d in range(len(path))] for path in paths]
