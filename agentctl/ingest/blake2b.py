"""Keyed BLAKE2b with 8 bytes of digest over many short pieces, as a kernel.

hashlib spends most of its time on a 64-byte piece in creating the object and hashing the block that holds the
key. Here that block is hashed once (`keyed_state`), and a piece of at most 120 bytes costs one compression.
Source: RFC 7693, BLAKE2b; the judge in tests is hashlib.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

_IV = np.array(
    [
        0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
        0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
    ],
    dtype=np.uint64,
)  # fmt: skip
_SIGMA = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    ],
    dtype=np.int64,
)  # fmt: skip
_BLOCK = 128
DIGEST_BYTES = 8


def keyed_state(key: bytes, person: bytes) -> NDArray[np.uint64]:
    """u64[8], the state once the key (at most 64 bytes) is hashed; `person` (16 bytes) keeps uses apart."""
    parameters = np.zeros(8, dtype=np.uint64)
    parameters[0] = DIGEST_BYTES | len(key) << 8 | 1 << 16 | 1 << 24
    parameters[6:] = np.frombuffer(person.ljust(16, b"\0"), dtype="<u8")
    state = _IV ^ parameters
    words = np.frombuffer(key.ljust(_BLOCK, b"\0"), dtype="<u8").astype(np.uint64)
    _compress(state, words, np.uint64(_BLOCK), False)
    return state


def chain(
    state: NDArray[np.uint64], parent: int, data: NDArray[np.uint8], first: int, step: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Cut `data` into pieces of `step` bytes (the first has `first`, the last what is left) and chain them.

    Returns the digest of each piece, h_i = BLAKE2b(h_{i-1} || piece) with h_0 = `parent`, and its bytes.
    """
    n = 0 if not data.size else 1 + max(0, -(-(data.size - first) // step))
    digests, sizes = np.empty(n, dtype=np.uint64), np.empty(n, dtype=np.int64)
    _chain(state, np.uint64(parent), data, first, step, digests, sizes, np.empty(16, dtype=np.uint64))
    return digests, sizes


@njit(cache=True, nogil=True, inline="always")
def _mix(a, b, c, d, x, y):  # type: ignore[no-untyped-def]
    a = a + b + x
    d = d ^ a
    d = (d >> np.uint64(32)) | (d << np.uint64(32))
    c = c + d
    b = b ^ c
    b = (b >> np.uint64(24)) | (b << np.uint64(40))
    a = a + b + y
    d = d ^ a
    d = (d >> np.uint64(16)) | (d << np.uint64(48))
    c = c + d
    b = b ^ c
    b = (b >> np.uint64(63)) | (b << np.uint64(1))
    return a, b, c, d


@njit(cache=True, nogil=True)
def _compress(h, m, n_bytes, is_last):  # type: ignore[no-untyped-def]
    """F of the RFC: mix the 16 words `m` into the state `h`, in place."""
    v0, v1, v2, v3, v4, v5, v6, v7 = h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]
    v8, v9, v10, v11 = _IV[0], _IV[1], _IV[2], _IV[3]
    v12, v13, v14, v15 = _IV[4] ^ n_bytes, _IV[5], _IV[6], _IV[7]
    if is_last:
        v14 = ~v14
    for r in range(12):
        s = _SIGMA[r]
        v0, v4, v8, v12 = _mix(v0, v4, v8, v12, m[s[0]], m[s[1]])
        v1, v5, v9, v13 = _mix(v1, v5, v9, v13, m[s[2]], m[s[3]])
        v2, v6, v10, v14 = _mix(v2, v6, v10, v14, m[s[4]], m[s[5]])
        v3, v7, v11, v15 = _mix(v3, v7, v11, v15, m[s[6]], m[s[7]])
        v0, v5, v10, v15 = _mix(v0, v5, v10, v15, m[s[8]], m[s[9]])
        v1, v6, v11, v12 = _mix(v1, v6, v11, v12, m[s[10]], m[s[11]])
        v2, v7, v8, v13 = _mix(v2, v7, v8, v13, m[s[12]], m[s[13]])
        v3, v4, v9, v14 = _mix(v3, v4, v9, v14, m[s[14]], m[s[15]])
    h[0] ^= v0 ^ v8
    h[1] ^= v1 ^ v9
    h[2] ^= v2 ^ v10
    h[3] ^= v3 ^ v11
    h[4] ^= v4 ^ v12
    h[5] ^= v5 ^ v13
    h[6] ^= v6 ^ v14
    h[7] ^= v7 ^ v15


@njit(cache=True, nogil=True)
def _chain(state, parent, data, first, step, digests, sizes, words):  # type: ignore[no-untyped-def]
    """Fills digests and sizes; `words` u64[16] is scratch."""
    h = np.empty(8, dtype=np.uint64)
    start = 0
    end = min(first, data.size)
    for k in range(digests.size):
        h[:] = state
        parent = _hash_piece(h, parent, data, start, end, words)
        digests[k] = parent
        sizes[k] = end - start
        start = end
        end = min(end + step, data.size)


@njit(cache=True, nogil=True)
def _hash_piece(h, parent, data, start, end, words):  # type: ignore[no-untyped-def]
    """Digest of the 8 bytes of `parent` and data[start:end], from the keyed state `h` (modified in place)."""
    n_bytes = np.uint64(_BLOCK)
    at = start
    words[0] = parent
    word = 1
    while True:
        while word < 16 and at + 8 <= end:
            words[word] = (
                np.uint64(data[at])
                | np.uint64(data[at + 1]) << np.uint64(8)
                | np.uint64(data[at + 2]) << np.uint64(16)
                | np.uint64(data[at + 3]) << np.uint64(24)
                | np.uint64(data[at + 4]) << np.uint64(32)
                | np.uint64(data[at + 5]) << np.uint64(40)
                | np.uint64(data[at + 6]) << np.uint64(48)
                | np.uint64(data[at + 7]) << np.uint64(56)
            )
            at += 8
            word += 1
        n_filled = np.uint64(word * 8)
        while word < 16:
            value = np.uint64(0)
            shift = np.uint64(0)
            while at < end and shift < np.uint64(64):
                value |= np.uint64(data[at]) << shift
                shift += np.uint64(8)
                at += 1
            n_filled += shift >> np.uint64(3)
            words[word] = value
            word += 1
        n_bytes += n_filled
        is_last = at >= end
        _compress(h, words, n_bytes, is_last)
        if is_last:
            return h[0]
        word = 0
