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

Source: Black, Halevi, Krawczyk, Krovetz, Rogaway, UMAC (CRYPTO 1999), sections 4 and 5.3: NH, four times with
shifted keys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.ingest.placing import mix

BLOCK_BYTES = 1024
_WORDS = BLOCK_BYTES // 8
_LANES = 4  # 32 bits of certainty each
_MAX_BLOCKS = 1 << 17  # 128 MB of different text, in 8 MB; then all is forgotten
_TOKEN_BYTES = 16


_LEVEL, _END, _COUNT, _START, _NODE, _ABOVE = range(6)


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
        self._secret = np.frombuffer(os.urandom(8 * (_WORDS + 2 * _LANES)), dtype=np.uint64)
        self._words = np.zeros(_WORDS + _LANES, dtype=np.uint64)  # scratch: a block and the hash before it
        self._mark = b'"' + os.urandom(_TOKEN_BYTES).hex().encode() + b" "  # no log can hold it
        self._any_mark = re.compile(re.escape(self._mark) + rb'(\d+) (\d+)",?')
        self._data = np.empty(0, dtype=np.uint8)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._n = 1
        self._hash = np.zeros((1 << 8, _LANES), dtype=np.uint64)
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
        n = _find(self._data, name, self._secret, self._words, self._hash, self._facts, self._table, found)
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
            known = int(self._facts[known, _ABOVE])
        text = self._data[at + self._facts[known, _END] : at + self._facts[entry, _END]].tobytes()
        return Recalled(node, int(self._facts[known, _COUNT]), text, (at, known, entry))

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
            n_more = int(self._facts[entry, _COUNT] - self._facts[known, _COUNT])
            if n_more:
                self._others[start, entry] = int(nodes[first[row] + n_more - 1])
        rows = np.fromiter(places, dtype=np.int64, count=len(places))
        where = np.array([(*place, start) for start, place in places.values()])
        sizes = np.array(lengths, dtype=np.int64)
        self._make_room(int(sizes.sum()) // BLOCK_BYTES + sizes.size + len(places))
        self._n = _learn_all(
            self._data, where, first[rows], counts[rows], sizes, nodes,
            self._secret, self._words, self._hash, self._facts, self._table, self._n,
        )  # fmt: skip

    def _cut_out(self, mark: re.Match[bytes]) -> bytes:
        at, entry = map(int, mark.groups())
        end = int(self._facts[entry, _END])
        comma = b"," if end and mark[0].endswith(b",") else b""
        return self._data[at : at + end].tobytes() + comma

    def _node(self, start: int, entry: int) -> int:
        """To which the messages of an entry lead after `start`; -1: not known."""
        if not self._facts[entry, _COUNT]:
            return start
        if self._facts[entry, _START] == start:
            return int(self._facts[entry, _NODE])
        return self._others.get((start, entry), -1)

    def _make_room(self, n_new: int) -> None:
        size = self._hash.shape[0]
        while self._n + n_new > size:
            size *= 2
        if size > self._hash.shape[0]:
            self._hash = np.concatenate((self._hash, np.zeros((size - len(self._hash), _LANES), np.uint64)))
            self._facts = np.concatenate((self._facts, np.zeros((size - len(self._facts), 6), np.int32)))
            self._table = np.zeros(2 * size, dtype=np.uint32)
            _fill_table(self._table, self._hash, self._n)


@njit(cache=True, nogil=True)
def _find(data, name, secret, words, hash_, facts, table, found):  # type: ignore[no-untyped-def]
    """Fills found: where an array begins, its last entry, and that one's end. Returns how many there are."""
    n, at = 0, 0
    while at < data.size:
        at += 1
        if data[at - 1] != 34:  # "
            continue
        begin = _array_of(data, at, name)
        if begin < 0:
            continue
        entry = _match(data, begin, secret, words, hash_, facts, table)
        end = np.int64(facts[entry, _END])
        at = begin + end
        while at < data.size and data[at] != 10:
            at += 1
        if entry or at - begin > BLOCK_BYTES:
            found[n, 0], found[n, 1], found[n, 2] = begin, entry, end
            n += 1
    return n


@njit(cache=True, nogil=True)
def _array_of(data, at, name):  # type: ignore[no-untyped-def]
    """Behind the bracket of an array that is not empty, where `at` stands before its name; else -1."""
    if at + name.size >= data.size:
        return -1
    for k in range(name.size):
        if data[at + k] != name[k]:
            return -1
    at = _skip(data, at + name.size)
    if at == data.size or data[at] != 58:  # :
        return -1
    at = _skip(data, at + 1)
    if at == data.size or data[at] != 91:  # [
        return -1
    after = _skip(data, at + 1)
    return -1 if after == data.size or data[after] == 93 else at + 1  # ]


@njit(cache=True, nogil=True)
def _skip(data, at):  # type: ignore[no-untyped-def]
    """Past the white space that may stand inside of a line."""
    while at < data.size and (data[at] == 32 or data[at] == 9 or data[at] == 13):
        at += 1
    return at


@njit(cache=True, nogil=True)
def _match(data, at, secret, words, hash_, facts, table):  # type: ignore[no-untyped-def]
    """The last entry that the text from `at` on has."""
    entry = np.int64(0)
    while at + BLOCK_BYTES <= data.size:
        following = np.int64(table[_slot(hash_, table, _after(data, at, secret, words, hash_[entry]))])
        if following == 0:
            break
        entry = following
        at += BLOCK_BYTES
    return entry


@njit(cache=True, nogil=True)
def _learn_all(data, where, first, counts, lengths, nodes, secret, words, hash_, facts, table, n):  # type: ignore[no-untyped-def]
    """Returns the number of entries."""
    for row in range(first.size):
        at, known, entry, start = where[row]
        own = slice(first[row], first[row] + counts[row])
        n = _learn(
            data, at, known, entry, start, lengths[own], nodes[own], secret, words, hash_, facts, table, n
        )
    return n


@njit(cache=True, nogil=True)
def _learn(data, at, known, entry, start, lengths, nodes, secret, words, hash_, facts, table, n):  # type: ignore[no-untyped-def]
    """Add the blocks after `entry` up to the end of the last message. Returns the number of entries."""
    begin, k, level = at, 0, np.int64(facts[entry, _LEVEL])
    end, node = np.int64(facts[known, _END]), np.int64(facts[known, _NODE])
    count = n_known = np.int64(facts[known, _COUNT])
    at = begin + end
    while n < hash_.shape[0]:
        block_end = begin + (level + 1) * BLOCK_BYTES
        while k < lengths.size:
            while data[at] == 32 or data[at] == 44 or data[at] == 9 or data[at] == 13:
                at += 1
            if at + lengths[k] > block_end:
                break
            at += lengths[k]
            if data[at - 1] == 125 or data[at - 1] == 34:  # } and ": no longer value begins so (1 begins 12)
                end, count, node = at - begin, n_known + k + 1, nodes[k]
            k += 1
        if k == lengths.size and at < block_end:
            break
        digest = _after(data, block_end - BLOCK_BYTES, secret, words, hash_[entry])
        slot = _slot(hash_, table, digest)
        level += 1
        if table[slot] == 0:
            table[slot] = n
            hash_[n, 0], hash_[n, 1], hash_[n, 2], hash_[n, 3] = digest
            facts[n, _LEVEL], facts[n, _END], facts[n, _COUNT] = level, end, count
            facts[n, _START], facts[n, _NODE], facts[n, _ABOVE] = start, node, entry
            n += 1
        entry = np.int64(table[slot])
    return n


@njit(cache=True, nogil=True)
def _after(data, at, secret, words, before):  # type: ignore[no-untyped-def]
    """The hash of a block that follows those with the hash `before`."""
    part, scratch = data[at : at + BLOCK_BYTES], words.view(np.uint8)
    for k in range(part.size):  # as one array goes into another, numba looks for overlaps, five times as long
        scratch[k] = part[k]
    for k in range(_LANES):
        words[_WORDS + k] = before[k]
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a, b, c, d = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    for k in range(_WORDS + _LANES):
        x, y = words[k] & low, words[k] >> half
        s0, s1, s2, s3 = secret[k], secret[k + 1], secret[k + 2], secret[k + 3]
        a += ((x + (s0 & low)) & low) * ((y + (s0 >> half)) & low)
        b += ((x + (s1 & low)) & low) * ((y + (s1 >> half)) & low)
        c += ((x + (s2 & low)) & low) * ((y + (s2 >> half)) & low)
        d += ((x + (s3 & low)) & low) * ((y + (s3 >> half)) & low)
    return a, b, c, d


@njit(cache=True, nogil=True)
def _slot(hash_, table, digest):  # type: ignore[no-untyped-def]
    """Where an entry with this hash is, or would be."""
    a, b, c, d = digest
    mask = np.uint64(table.size - 1)
    slot = mix(a) & mask
    while table[slot] != 0:
        e = table[slot]
        if hash_[e, 0] == a and hash_[e, 1] == b and hash_[e, 2] == c and hash_[e, 3] == d:
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(cache=True, nogil=True)
def _fill_table(table, hash_, n):  # type: ignore[no-untyped-def]
    for entry in range(1, n):
        h = hash_[entry]
        table[_slot(hash_, table, (h[0], h[1], h[2], h[3]))] = entry
