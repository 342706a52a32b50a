"""Tries whose ids are keyed hashes of text: hash, look up and add, for the prompts of a whole batch.

h_i = BLAKE2b(key, h_{i-1} || piece), see hashing.py. `MessageTrie` goes along whole texts, `UnitTrie` along
the pieces into which texts are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.ingest.blake2b import hash_piece
from agentctl.ingest.trie import Trie, find_or_add, grown

I64 = NDArray[np.int64]


class Followed(NamedTuple):
    """Where texts lead: the node after each, and whether it is new (once one is new, all below it are)."""

    node: I64
    is_new: NDArray[np.bool_]


class MessageTrie(Trie):
    def follow(
        self, state: NDArray[np.uint64], starts: I64, counts: I64, texts: Sequence[bytes], seed: int = 0
    ) -> Followed:
        """Go on from each node in `starts` along as many texts as `counts` says, adding what is missing.

        state  blake2b.keyed_state
        seed   the hash before the first text of those that start at the root
        """
        self._make_room(len(texts))
        found = Followed(np.empty(len(texts), dtype=np.int64), np.zeros(len(texts), dtype=np.bool_))
        self.n_nodes = _follow(
            self._parent, self._hash, self._table, self.n_nodes,
            state, starts, counts, np.uint64(seed), *joined(texts), *found,
        )  # fmt: skip
        return found


class Pieces(NamedTuple):
    """Texts to cut, one after the other; several may be of one message.

    node   of the message
    above  of the message before it, which the text follows; -1 where it follows nothing
    seed   the hash before a text that follows nothing
    """

    node: list[int]
    above: list[int]
    seed: list[int]
    texts: list[bytes]

    def add(self, node: int, above: int, seed: int, text: bytes) -> None:
        self.node.append(node)
        self.above.append(above)
        self.seed.append(seed)
        self.texts.append(text)


class UnitTrie(Trie):
    """`sizes` of the nodes count what a step counts, bytes or tokens.

    unit, length  by message node, once its text is cut: the last piece, and the prompt's count up to there
    """

    def __init__(self) -> None:
        super().__init__()
        self._sizes = np.zeros(self._parent.size, dtype=np.uint32)
        self.unit, self.length = np.zeros(1, dtype=np.uint32), np.zeros(1, dtype=np.uint64)

    @property
    def sizes(self) -> NDArray[np.uint32]:
        return self._sizes[: self.n_nodes + 1]

    def cut(self, state: NDArray[np.uint64], pieces: Pieces, step: int, width: int = 1) -> None:
        """Add texts in pieces, which end at multiples of a step from the prompt's start, and with the text.

        width  bytes of what a step counts
        """
        if not pieces.texts:
            return
        data, ends = joined(pieces.texts)
        self._make_room(data.size // (step * width) + 2 * ends.size)
        node = np.array(pieces.node)
        self._know(int(node.max()))
        self.n_nodes = _cut(
            self._parent, self._hash, self._table, self._sizes, self.n_nodes, self.unit, self.length,
            state, node, np.array(pieces.above), np.array(pieces.seed, dtype=np.uint64), data, ends,
            step, width,
        )  # fmt: skip

    def drop_table(self) -> None:
        super().drop_table()
        self.unit, self.length = np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.uint64)

    def _know(self, message: int) -> None:
        if message >= self.unit.size:
            size = max(message + 1, 1024, self.unit.size * 3 // 2)
            self.unit, self.length = grown(self.unit, size), grown(self.length, size)

    def _make_room(self, n_new: int) -> None:
        super()._make_room(n_new)
        if self._parent.size > self._sizes.size:
            self._sizes = grown(self._sizes, self._parent.size)


def hash_each(
    state: NDArray[np.uint64], parents: NDArray[np.uint64], texts: Sequence[bytes]
) -> NDArray[np.uint64]:
    """BLAKE2b(key, parent || text) for each text and its parent."""
    return _hash_each(state, parents, *joined(texts))


def joined(texts: Sequence[bytes]) -> tuple[NDArray[np.uint8], I64]:
    """All bytes, and where each text ends in them."""
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    return np.frombuffer(b"".join(texts), dtype=np.uint8), np.cumsum(lengths)


@njit(cache=True, nogil=True)
def _hash_each(state, parents, data, ends):  # type: ignore[no-untyped-def]
    h, words = np.empty(8, dtype=np.uint64), np.empty(16, dtype=np.uint64)
    digests = np.empty(ends.size, dtype=np.uint64)
    start = 0
    for k in range(ends.size):
        h[:] = state
        digests[k] = hash_piece(h, parents[k], data, start, ends[k], words)
        start = ends[k]
    return digests


@njit(cache=True, nogil=True)
def _follow(parent, hash_, table, n_nodes, state, starts, counts, seed, data, ends, found, is_new):  # type: ignore[no-untyped-def]
    """Fills found and is_new; returns the number of nodes."""
    h, words = np.empty(8, dtype=np.uint64), np.empty(16, dtype=np.uint64)
    k, start = 0, 0
    for row in range(starts.size):
        node = starts[row]
        for _ in range(counts[row]):
            h[:] = state
            digest = hash_piece(h, hash_[node] if node else seed, data, start, ends[k], words)
            node = find_or_add(parent, hash_, table, n_nodes, node, digest)
            if node > n_nodes:
                n_nodes = node
                is_new[k] = True
            found[k] = node
            start = ends[k]
            k += 1
    return n_nodes


@njit(cache=True, nogil=True)
def _cut(
    parent, hash_, table, sizes, n_nodes, unit, length, state, node, above, seed, data, ends, step, width
):  # type: ignore[no-untyped-def]
    """Fills sizes, and unit and length of the messages; returns the number of nodes."""
    h, words = np.empty(8, dtype=np.uint64), np.empty(16, dtype=np.uint64)
    start = 0
    for k in range(ends.size):
        last, size = np.int64(0), np.uint64(0)
        before = node[k] if k > 0 and node[k - 1] == node[k] else above[k]
        if before >= 0:
            last, size = np.int64(unit[before]), length[before]
        while start < ends[k]:
            room = np.int64(np.uint64(step) - size % np.uint64(step)) * width
            end = min(start + room, ends[k])
            h[:] = state
            digest = hash_piece(h, hash_[last] if last else seed[k], data, start, end, words)
            last = find_or_add(parent, hash_, table, n_nodes, last, digest)
            if last > n_nodes:
                n_nodes = last
                sizes[last] = (end - start) // width
            size += np.uint64((end - start) // width)
            start = end
        unit[node[k]], length[node[k]] = last, size
    return n_nodes
