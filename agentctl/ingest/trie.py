"""The prefix tree of all block chains, built while the log streams by.

An edge is (parent node, block id): exact whether or not the ids are chained hashes. A node is 12 bytes plus
its slot in an open-addressing table (4 bytes at a load of at most 0.6). A chain seen before lies in
consecutive nodes, so that most blocks are matched by looking at the next node, without the table.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.ingest.ids import Ids

UNKNOWN_TIP = np.uint32(0xFFFFFFFF)
_MAX_NODES = 1 << 31
_LOAD = 0.6


class Trie:
    """Grows by `insert`; `parent` and `hash` describe nodes 1..n_nodes (index 0 is the root)."""

    def __init__(self) -> None:
        self._parent = np.zeros(1 << 12, dtype=np.uint32)
        self._hash = np.zeros(1 << 12, dtype=np.uint64)
        self._table = np.zeros(1 << 13, dtype=np.uint32)
        self.n_nodes = 0

    @property
    def parent(self) -> NDArray[np.uint32]:
        return self._parent[: self.n_nodes + 1]

    @property
    def hash(self) -> NDArray[np.uint64]:
        return self._hash[: self.n_nodes + 1]

    def insert(self, ids: Ids) -> NDArray[np.uint32]:
        """The tip node of every chain (0: empty; UNKNOWN_TIP: unknown), adding the nodes that are new."""
        tips = np.empty(ids.unknown.size, dtype=np.uint32)
        row = 0
        while row < tips.size:
            self._make_room(int(ids.starts[row + 1] - ids.starts[row]))
            row, self.n_nodes = _insert(
                self._parent, self._hash, self._table, self.n_nodes, ids.values, ids.starts, row, tips
            )
        tips[ids.unknown] = UNKNOWN_TIP
        return tips

    def merge(self, parent: NDArray[np.uint32], hash_: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Add another trie's nodes (index 0 its root); returns the number here of each of its nodes."""
        number = np.zeros(parent.size, dtype=np.uint32)
        node = 1
        while node < parent.size:
            self._make_room(1)
            node, self.n_nodes = _merge(
                self._parent, self._hash, self._table, self.n_nodes, parent, hash_, node, number
            )
        return number

    def drop_table(self) -> None:
        """Free the lookup table once nothing is inserted any more."""
        self._table = np.zeros(1, dtype=np.uint32)

    def clear(self) -> None:
        """Free everything."""
        self.__init__()  # type: ignore[misc]

    def _make_room(self, n_new: int) -> None:
        need = self.n_nodes + n_new + 1
        if need > _MAX_NODES:
            raise MemoryError("more than 2^31 distinct blocks")
        if need > self._parent.size:
            size = max(need, self._parent.size + self._parent.size // 2)
            self._parent = grown(self._parent, size)
            self._hash = grown(self._hash, size)
        if need > _LOAD * self._table.size:
            size = self._table.size
            while need > _LOAD * size:
                size *= 2
            self._table = np.zeros(size, dtype=np.uint32)
            _fill_table(self._table, self._parent, self._hash, self.n_nodes)


def grown(array: NDArray, size: int) -> NDArray:
    """The array with room for `size` values, zeros behind it."""
    new = np.zeros(size, dtype=array.dtype)
    new[: array.size] = array
    return new


@njit(cache=True, nogil=True, inline="always")
def _slot(parent, hash_, mask):  # type: ignore[no-untyped-def]
    """splitmix64 of the edge, cut to the table."""
    x = np.uint64(hash_) ^ (np.uint64(parent) * np.uint64(0x9E3779B97F4A7C15))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))) & mask


@njit(cache=True, nogil=True)
def find_or_add(parent, hash_, table, n_nodes, above, value):  # type: ignore[no-untyped-def]
    """Node of the edge (above, value); a node number of n_nodes + 1 means that it was added."""
    mask = np.uint64(table.size - 1)
    slot = _slot(above, value, mask)
    while table[slot] != 0:
        node = np.int64(table[slot])
        if parent[node] == above and hash_[node] == value:
            return node
        slot = (slot + np.uint64(1)) & mask
    node = n_nodes + 1
    table[slot] = node
    parent[node] = above
    hash_[node] = value
    return node


@njit(cache=True, nogil=True)
def _insert(parent, hash_, table, n_nodes, values, starts, row, tips):  # type: ignore[no-untyped-def]
    """Insert rows from `row` on while there is room; returns (next row, nodes). Arrays modified in place."""
    room = min(parent.size - 1, np.int64(_LOAD * table.size) - 1)
    while row < tips.size:
        if n_nodes + starts[row + 1] - starts[row] > room:
            break
        node = np.int64(0)
        for k in range(starts[row], starts[row + 1]):
            follower = node + 1
            if follower <= n_nodes and hash_[follower] == values[k] and parent[follower] == node:
                node = follower
            else:
                node = find_or_add(parent, hash_, table, n_nodes, node, values[k])
                n_nodes = max(n_nodes, node)
        tips[row] = node
        row += 1
    return row, n_nodes


@njit(cache=True, nogil=True)
def _merge(parent, hash_, table, n_nodes, other_parent, other_hash, node, number):  # type: ignore[no-untyped-def]
    """As `_insert`, over the nodes of another trie in their order (parents first)."""
    room = min(parent.size - 1, np.int64(_LOAD * table.size) - 1)
    while node < other_parent.size and n_nodes + 1 <= room:
        above = np.int64(number[other_parent[node]])
        found = find_or_add(parent, hash_, table, n_nodes, above, other_hash[node])
        number[node] = found
        n_nodes = max(n_nodes, found)
        node += 1
    return node, n_nodes


@njit(cache=True, nogil=True)
def _fill_table(table, parent, hash_, n_nodes):  # type: ignore[no-untyped-def]
    mask = np.uint64(table.size - 1)
    for node in range(1, n_nodes + 1):
        slot = _slot(parent[node], hash_[node], mask)
        while table[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = node


@njit(cache=True, nogil=True)
def salt_ids(values, starts, salts):  # type: ignore[no-untyped-def]
    """Mix each row's salt into its ids, in place: ids of two scopes meet by chance only (2^-64 a pair)."""
    for row in range(salts.size):
        for k in range(starts[row], starts[row + 1]):
            x = values[k] + salts[row] * np.uint64(0x9E3779B97F4A7C15)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            values[k] = x ^ (x >> np.uint64(31))


class NumberedTree(NamedTuple):
    """The nodes that the rows use, numbered in the order of first use (index 0 is the root)."""

    parent: NDArray[np.uint32]
    depth: NDArray[np.int32]
    hash: NDArray[np.uint64]
    first_row: NDArray[np.int64]
    tips: NDArray[np.uint32]  # of the rows


class Chains(Protocol):
    """A tree of chains: parent and hash of each node, index 0 its root. A parent's number is the smaller."""

    @property
    def parent(self) -> NDArray[np.uint32]: ...
    @property
    def hash(self) -> NDArray[np.uint64]: ...


def number_by_first_use(trie: Chains, tips: NDArray[np.uint32]) -> NumberedTree:
    """Renumber a tree for rows in their final order, so that node numbers do not depend on reading order."""
    number, first_row = _number(tips, trie.parent)
    parent = np.zeros(first_row.size, dtype=np.uint32)
    depth = np.zeros(first_row.size, dtype=np.int32)
    hash_ = np.zeros(first_row.size, dtype=np.uint64)
    _renumber(number, trie.parent, trie.hash, parent, depth, hash_)
    known = tips != UNKNOWN_TIP
    new_tips = np.full(tips.size, UNKNOWN_TIP, dtype=np.uint32)
    new_tips[known] = number[tips[known]]
    return NumberedTree(parent, depth, hash_, first_row, new_tips)


@njit(cache=True, nogil=True)
def _number(tips, parent):  # type: ignore[no-untyped-def]
    number = np.zeros(parent.size, dtype=np.uint32)
    first_row = np.full(parent.size, -1, dtype=np.int64)
    used = 0
    for row in range(tips.size):
        if tips[row] == UNKNOWN_TIP:
            continue
        n_new = 0
        node = tips[row]
        while node != 0 and number[node] == 0:
            n_new += 1
            node = parent[node]
        used += n_new
        node = tips[row]
        for new in range(used, used - n_new, -1):
            number[node] = new
            first_row[new] = row
            node = parent[node]
    return number, first_row[: used + 1].copy()


@njit(cache=True, nogil=True)
def _renumber(number, old_parent, old_hash, parent, depth, hash_):  # type: ignore[no-untyped-def]
    for old in range(1, number.size):
        new = number[old]
        if new != 0:
            parent[new] = number[old_parent[old]]
            hash_[new] = old_hash[old]
    for new in range(1, parent.size):
        depth[new] = depth[parent[new]] + 1


def count_conflicts(hash_: NDArray[np.uint64]) -> int:
    """Distinct ids that stand under more than one parent; 0 where ids are chained hashes (index 0: root)."""
    ids = np.sort(hash_[1:])
    repeated = ids[1:] == ids[:-1]
    return int(np.count_nonzero(repeated[1:] & ~repeated[:-1]) + (repeated.size > 0 and repeated[0]))
