"""Beginnings of prompts that were met before, told by their bytes before any JSON is read.

Each request of an agent repeats all that was said before, so that nearly every byte of a log of prompts
stands in it already. A JSON array of messages is hashed in blocks of 1 KiB from its bracket on, each with all
that is before it; as far as the blocks are known, whole messages are cut out of the line and a mark stands
for them. What is left is read as ever, and `recall` gives back what a mark stands for.

That cutting changes nothing rests on two facts. JSON is read from left to right: where `"messages": [` has
just been read, a reader is in error or at the start of an array, whatever came before; and what is cut are
whole values that were read there before. And equal hashes mean equal bytes: NH, a universal hash, gives two
blocks the same 256 bits with a probability of 2^-128 under keys drawn for the run, which no log can foresee.
No text is kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.ingest.prefix_table import (
    ABOVE,
    BLOCK_BYTES,
    COUNT,
    END,
    LANES,
    NODE,
    START,
    WORDS,
    fill_table,
    find,
    learn_all,
)  # fmt: skip

_MAX_BLOCKS = 1 << 17  # 128 MB of different text, in 8 MB; then all is forgotten
_TOKEN_BYTES = 16


Place = tuple[int, int, int]  # where an array begins, the last entry whose node is known, the last one it has


class Recalled(NamedTuple):
    """What is known of an array of messages after some node."""

    node: int  # where the messages lead that are known after it
    n_messages: int  # how many these are
    text: bytes  # of known messages whose nodes are not, as they stand in the array
    place: Place  # for `learn`


class Prefixes:
    """Blocks of arrays of messages. Entry 0 is the beginning of any array; that of a block has one above.

    Facts of an entry, about the text up to the end of its block: number of blocks (level), where the last
    whole message ends (end, bytes from the bracket), whole messages (count), and the node (node) to which
    they lead after another (start); more of these pairs are in `_others`.
    """

    def __init__(self) -> None:
        self._secret = np.frombuffer(os.urandom(8 * (WORDS + 2 * LANES)), dtype=np.uint64)
        self._words = np.zeros(WORDS + LANES, dtype=np.uint64)  # scratch: a block and the hash before it
        self._mark = b'"' + os.urandom(_TOKEN_BYTES).hex().encode() + b" "  # no log can hold it
        self._any_mark = re.compile(re.escape(self._mark) + rb'(\d+) (\d+)",?')
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._data = np.empty(0, dtype=np.uint8)
        self._n = 1
        self._hash = np.zeros((1 << 8, LANES), dtype=np.uint64)
        self._facts = np.zeros((1 << 8, 6), dtype=np.int32)
        self._table = np.zeros(1 << 9, dtype=np.uint32)
        self._others: dict[tuple[int, int], int] = {}

    def fold(self, data: bytes, n_lines: int, key: bytes) -> bytes:
        """Lines of JSON with marks in place of the known messages in the first array called `key` of each.

        Marks hold until the next call.
        """
        if self._n > _MAX_BLOCKS:
            self.clear()
        self._data = np.frombuffer(data, dtype=np.uint8)
        name = np.frombuffer(key + b'"', dtype=np.uint8)
        found = np.empty((n_lines, 3), dtype=np.int64)
        n = find(self._data, name, self._secret, self._words, self._hash, self._facts, self._table, found)
        if not n:
            return data
        view, done = memoryview(data), 0
        parts: list[bytes | memoryview] = []
        for at, entry, end in found[:n].tolist():
            parts += view[done:at], b"%b%d %d%b" % (self._mark, at, entry, b'"' if end else b'",')
            done = at + end
        parts.append(view[done:])
        return b"".join(parts)

    def recall(self, start: int, array: bytes) -> Recalled | None:
        """What the mark that `array` begins with stands for after the node `start`; None: it has no mark."""
        if not self.is_marked(array):
            return None
        begin = 1 + len(self._mark)
        at, entry = map(int, array[begin : array.index(b'"', begin)].split())
        known = entry
        while (node := self._node(start, known)) < 0:
            known = int(self._facts[known, ABOVE])
        text = self._data[at + self._facts[known, END] : at + self._facts[entry, END]].tobytes()
        return Recalled(node, int(self._facts[known, COUNT]), text, (at, known, entry))

    def is_marked(self, array: bytes) -> bool:
        return array.startswith(self._mark, 1)

    def unfold(self, text: bytes) -> bytes:
        """Text as it was: the first array of a line need not be the one that matters."""
        return self._any_mark.sub(self._cut_out, text) if self._mark in text else text

    def learn(
        self,
        places: Mapping[int, tuple[int, Place]],
        first: NDArray[np.int64],
        counts: NDArray[np.int64],
        lengths: Sequence[int],
        nodes: NDArray[np.int64],
    ) -> None:
        """Take down the messages after those recalled, for prompts whose start and place are in `places`.

        first, counts  by prompt, where its messages are in the rest
        lengths        of each message in bytes
        nodes          where each leads
        """
        if not places:
            return
        for row, (start, (_, known, entry)) in places.items():
            n_more = int(self._facts[entry, COUNT] - self._facts[known, COUNT])
            if n_more:
                self._others[start, entry] = int(nodes[first[row] + n_more - 1])
        rows = np.fromiter(places, dtype=np.int64, count=len(places))
        where = np.array([(*place, start) for start, place in places.values()])
        sizes = np.array(lengths, dtype=np.int64)
        self._make_room(int(sizes.sum()) // BLOCK_BYTES + sizes.size + len(places))
        self._n = learn_all(
            self._data, where, first[rows], counts[rows], sizes, nodes,
            self._secret, self._words, self._hash, self._facts, self._table, self._n,
        )  # fmt: skip

    def _cut_out(self, mark: re.Match[bytes]) -> bytes:
        at, entry = map(int, mark.groups())
        end = int(self._facts[entry, END])
        comma = b"," if end and mark[0].endswith(b",") else b""
        return self._data[at : at + end].tobytes() + comma

    def _node(self, start: int, entry: int) -> int:
        """To which the messages of an entry lead after `start`; -1: not known."""
        if not self._facts[entry, COUNT]:
            return start
        if self._facts[entry, START] == start:
            return int(self._facts[entry, NODE])
        return self._others.get((start, entry), -1)

    def _make_room(self, n_new: int) -> None:
        size = self._hash.shape[0]
        while self._n + n_new > size:
            size *= 2
        if size > self._hash.shape[0]:
            self._hash = np.concatenate((self._hash, np.zeros((size - len(self._hash), LANES), np.uint64)))
            self._facts = np.concatenate((self._facts, np.zeros((size - len(self._facts), 6), np.int32)))
            self._table = np.zeros(2 * size, dtype=np.uint32)
            fill_table(self._table, self._hash, self._n)
