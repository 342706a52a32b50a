"""Text to chains of keyed hashes and to the token grid, the slow and obvious way."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def digest(salt: bytes, person: bytes, text: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=salt, person=person).digest(), "little")


def chain(salt: bytes, person: bytes, parent: int, data: bytes, first: int, step: int) -> list[int]:
    """h_i = BLAKE2b(h_{i-1} || piece) over pieces of `step` bytes, of which the first has `first`."""
    digests, begin, end = [], 0, first
    while begin < len(data):
        parent = digest(salt, person, parent.to_bytes(8, "little") + data[begin:end])
        digests.append(parent)
        begin, end = end, end + step
    return digests


def cut(texts: Sequence[bytes], step: int) -> list[bytes]:
    """Pieces of a prompt: cut at multiples of `step` from its start, and at the ends of its texts."""
    pieces, at = [], 0
    for text in texts:
        while text:
            n = min(step - at % step, len(text))
            pieces.append(text[:n])
            text, at = text[n:], at + n
    return pieces


def blocks(rows: Sequence[tuple[Sequence[bytes], int | None]], block: int, mean: float) -> list[list]:
    """Names of each row's full blocks, for rows of (pieces, tokens or None), in their order.

    A path of pieces from the start is a node. Rows with tokens place their new nodes first, each at its share
    of the tokens that are left; then the others, at `mean` tokens a byte.
    """
    ends: dict[tuple[bytes, ...], int] = {(): 0}

    def spread(pieces: Sequence[bytes], tokens: int | None) -> int:
        known = max(n for n in range(len(pieces) + 1) if tuple(pieces[:n]) in ends)
        base = ends[tuple(pieces[:known])]
        size = sum(map(len, pieces[known:]))
        if tokens is None:
            tokens = base + int(size * mean + 0.5)
        for n in range(known + 1, len(pieces) + 1):
            done = sum(map(len, pieces[known:n]))
            ends[tuple(pieces[:n])] = base + max(tokens - base, 0) * done // size
        return tokens

    counts = [spread(pieces, tokens) if tokens is not None else None for pieces, tokens in rows]
    counts = [spread(row[0], None) if n is None else n for row, n in zip(rows, counts, strict=True)]
    named = []
    for (pieces, _), tokens in zip(rows, counts, strict=True):
        paths = [tuple(pieces[:n]) for n in range(1, len(pieces) + 1)]
        names = []
        for k in range(1, tokens // block + 1):
            cover = next((path for path in paths if ends[path] >= k * block), paths[-1] if paths else ())
            names.append((cover, k))
        named.append(names)
    return named
