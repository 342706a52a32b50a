"""Tries whose ids are keyed hashes of text: hash, look up and add in one go.

h_i = BLAKE2b(key, h_{i-1} || piece), see hashing.py. Two ways to go on from a node: along whole texts
(messages), or along the pieces into which texts are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.ingest.blake2b import hash_piece
from agentctl.ingest.trie import Trie, find_or_add


class Cut(NamedTuple):
    """What became of some texts: the last node of each, and the sizes of the nodes that are new."""

    nodes: NDArray[np.int64]
    new_sizes: NDArray[np.uint32]


class TextTrie(Trie):
    """`state` is blake2b.keyed_state; `seed` is the hash before the first text, where `node` is the root."""

    def follow(
        self, state: NDArray[np.uint64], node: int, seed: int, texts: Sequence[bytes]
    ) -> tuple[NDArray[np.int64], int]:
        """The node after each text from `node` on, and how many of them, the last ones, are new."""
        self._make_room(len(texts))
        path = np.empty(len(texts), dtype=np.int64)
        before = self.n_nodes
        data = np.frombuffer(b"".join(texts), dtype=np.uint8)
        self.n_nodes = _follow(
            self._parent,
            self._hash,
            self._table,
            before,
            state,
            node,
            np.uint64(seed),
            data,
            _ends(texts),
            path,
        )
        return path, self.n_nodes - before

    def cut(
        self, state: NDArray[np.uint64], node: int, seed: int, texts: Sequence[bytes], first: int, step: int
    ) -> Cut:
        """Go on along pieces of `step` bytes, the first one of `first`; the end of a text ends a piece."""
        data = np.frombuffer(b"".join(texts), dtype=np.uint8)
        n_most = data.size // step + 2 * len(texts)
        self._make_room(n_most)
        nodes, sizes = np.empty(len(texts), dtype=np.int64), np.empty(n_most, dtype=np.uint32)
        before = self.n_nodes
        self.n_nodes = _cut(
            self._parent, self._hash, self._table, before, state, node, np.uint64(seed), data, _ends(texts),
            first, step, nodes, sizes,
        )  # fmt: skip
        return Cut(nodes, sizes[: self.n_nodes - before])


def _ends(texts: Sequence[bytes]) -> NDArray[np.int64]:
    return np.cumsum(np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)))


@njit(cache=True, nogil=True)
def _follow(parent, hash_, table, n_nodes, state, node, seed, data, ends, path):  # type: ignore[no-untyped-def]
    """Fills path; returns the number of nodes."""
    h, words = np.empty(8, dtype=np.uint64), np.empty(16, dtype=np.uint64)
    start = 0
    for k in range(ends.size):
        h[:] = state
        digest = hash_piece(h, hash_[node] if node else seed, data, start, ends[k], words)
        node = find_or_add(parent, hash_, table, n_nodes, node, digest)
        n_nodes = max(n_nodes, node)
        path[k] = node
        start = ends[k]
    return n_nodes


@njit(cache=True, nogil=True)
def _cut(parent, hash_, table, n_nodes, state, node, seed, data, ends, first, step, nodes, sizes):  # type: ignore[no-untyped-def]
    """Fills nodes and sizes; returns the number of nodes."""
    h, words = np.empty(8, dtype=np.uint64), np.empty(16, dtype=np.uint64)
    n_before = n_nodes
    start, room = 0, first
    for k in range(ends.size):
        while start < ends[k]:
            end = min(start + room, ends[k])
            h[:] = state
            digest = hash_piece(h, hash_[node] if node else seed, data, start, end, words)
            node = find_or_add(parent, hash_, table, n_nodes, node, digest)
            if node > n_nodes:
                n_nodes = node
                sizes[node - n_before - 1] = end - start
            room = room - (end - start) if end - start < room else step
            start = end
        nodes[k] = node
    return n_nodes
