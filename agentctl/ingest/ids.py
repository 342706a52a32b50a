"""Block ids of a chunk: JSON arrays of unsigned 64-bit integers, parsed without making Python integers.

Accepted: whole numbers 0 .. 2^64-1; or, in a list of nothing else, hexadecimal strings (up to 16 digits are
the number they write; longer ones, such as sha256, are folded with BLAKE2b). null is an unknown chain.
Everything else (negative, 2^64, floats, nested lists, null inside, mixed) makes the record bad.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numba import njit
from numpy.typing import NDArray

_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]+)")
_UNUSUAL, _UNKNOWN = 1, 2


class Ids(NamedTuple):
    """Chains of block ids: row r has values[starts[r]:starts[r + 1]]; unknown[r]: no list was given."""

    values: NDArray[np.uint64]
    starts: NDArray[np.int64]
    unknown: NDArray[np.bool_]

    def take(self, keep: NDArray[np.bool_]) -> Ids:
        """The chains of the rows in the mask `keep`."""
        if keep.all():
            return self
        lengths = np.diff(self.starts)
        values = self.values[np.repeat(keep, lengths)]
        starts = np.concatenate(([0], np.cumsum(lengths[keep])))
        return Ids(values, starts, self.unknown[keep])


def parse_ids(lists: Sequence[msgspec.Raw | bytes]) -> tuple[Ids, NDArray[np.bool_]]:
    """Ids of the JSON arrays in `lists`, and a mask of the rows whose list is no chain of block ids."""
    text = np.frombuffer(b"".join(lists), dtype=np.uint8)
    ends = np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)))
    values = np.empty(len(text) // 2 + 1, dtype=np.uint64)
    starts = np.zeros(len(lists) + 1, dtype=np.int64)
    kind = np.zeros(len(lists), dtype=np.uint8)
    n = _parse(text, ends, values, starts, kind)
    ids = Ids(values[:n], starts, kind == _UNKNOWN)
    if not (kind == _UNUSUAL).any():
        return ids, np.zeros(len(lists), dtype=np.bool_)
    return _parse_unusual(lists, ids, kind)


def _parse_unusual(
    lists: Sequence[msgspec.Raw | bytes], ids: Ids, kind: NDArray[np.uint8]
) -> tuple[Ids, NDArray[np.bool_]]:
    chains: list[NDArray[np.uint64]] = []
    bad = np.zeros(len(lists), dtype=np.bool_)
    for row, raw in enumerate(lists):
        chain = ids.values[ids.starts[row] : ids.starts[row + 1]]
        if kind[row] == _UNUSUAL:
            parsed = _hex_chain(bytes(raw))
            bad[row] = parsed is None
            chain = np.array(parsed or [], dtype=np.uint64)
        chains.append(chain)
    starts = np.concatenate(([0], np.cumsum([len(chain) for chain in chains]))).astype(np.int64)
    return Ids(np.concatenate(chains), starts, ids.unknown), bad


def _hex_chain(raw: bytes) -> list[int] | None:
    try:
        items = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        return None
    matches = [_HEX.fullmatch(item) for item in items]
    if not all(matches):
        return None
    return [_fold(match.group(1)) for match in matches if match]


def _fold(digits: str) -> int:
    if len(digits) <= 16:
        return int(digits, 16)
    return int.from_bytes(hashlib.blake2b(digits.lower().encode(), digest_size=8).digest(), "little")


@njit(cache=True, nogil=True)
def _parse(text, ends, values, starts, kind):  # type: ignore[no-untyped-def]
    """Parse the arrays that end at `ends`; fills values, starts and kind in place; returns their number."""
    n = 0
    at = 0
    ten_to_19 = np.uint64(10_000_000_000_000_000_000)
    for row in range(ends.size):
        end = ends[row]
        first = n
        ok = text[at] == 91  # [
        if not ok and end - at == 4 and text[at] == 110:  # null
            kind[row] = _UNKNOWN
        i = at + 1
        expect_more = False
        while ok:
            while text[i] == 32 or text[i] == 9 or text[i] == 13 or text[i] == 10:
                i += 1
            c = text[i]
            if c == 93 and not expect_more:  # ]
                ok = i == end - 1
                break
            if c < 48 or c > 57:
                ok = False
                break
            value = np.uint64(0)
            digits = i
            while 48 <= text[i] <= 57:
                value = value * np.uint64(10) + np.uint64(text[i] - 48)
                i += 1
            # 20 digits are below 2^64 when they begin with 1 and the product has not wrapped around
            if i - digits > 19 and (i - digits > 20 or c != 49 or value < ten_to_19):
                ok = False
            while text[i] == 32 or text[i] == 9 or text[i] == 13 or text[i] == 10:
                i += 1
            expect_more = text[i] == 44  # ,
            if not expect_more and text[i] != 93:
                ok = False
            i += expect_more
            values[n] = value
            n += 1
        if not ok:
            n = first
            if kind[row] != _UNKNOWN:
                kind[row] = _UNUSUAL
        starts[row + 1] = n
        at = end
    return n
