"""The kernels of prefixes.py: arrays found in lines, and a table of their blocks.

Source of the hash: Black, Halevi, Krawczyk, Krovetz, Rogaway, UMAC (CRYPTO 1999), sections 4 and 5.3: NH,
four times with shifted keys.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from agentctl.ingest.placing import mix

BLOCK_BYTES = 1024
WORDS = BLOCK_BYTES // 8
LANES = 4  # 32 bits of certainty each
LEVEL, END, COUNT, START, NODE, ABOVE = range(6)  # facts of an entry


@njit(cache=True, nogil=True)
def find(data, name, secret, words, hash_, facts, table, found):  # type: ignore[no-untyped-def]
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
        end = np.int64(facts[entry, END])
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
def learn_all(data, where, first, counts, lengths, nodes, secret, words, hash_, facts, table, n):  # type: ignore[no-untyped-def]
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
    begin, k, level = at, 0, np.int64(facts[entry, LEVEL])
    end, node = np.int64(facts[known, END]), np.int64(facts[known, NODE])
    count = n_known = np.int64(facts[known, COUNT])
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
            facts[n, LEVEL], facts[n, END], facts[n, COUNT] = level, end, count
            facts[n, START], facts[n, NODE], facts[n, ABOVE] = start, node, entry
            n += 1
        entry = np.int64(table[slot])
    return n


@njit(cache=True, nogil=True)
def _after(data, at, secret, words, before):  # type: ignore[no-untyped-def]
    """The hash of a block that follows those with the hash `before`."""
    part, scratch = data[at : at + BLOCK_BYTES], words.view(np.uint8)
    for k in range(part.size):  # as one array goes into another, numba looks for overlaps, five times as long
        scratch[k] = part[k]
    for k in range(LANES):
        words[WORDS + k] = before[k]
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a, b, c, d = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    for k in range(WORDS + LANES):
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
def fill_table(table, hash_, n):  # type: ignore[no-untyped-def]
    for entry in range(1, n):
        h = hash_[entry]
        table[_slot(hash_, table, (h[0], h[1], h[2], h[3]))] = entry
