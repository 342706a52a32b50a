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
def _round(v, m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, ma, mb, mc, md, me, mf):  # type: ignore[no-untyped-def]
    v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, va, vb, vc, vd, ve, vf = v
    v0, v4, v8, vc = _mix(v0, v4, v8, vc, m0, m1)
    v1, v5, v9, vd = _mix(v1, v5, v9, vd, m2, m3)
    v2, v6, va, ve = _mix(v2, v6, va, ve, m4, m5)
    v3, v7, vb, vf = _mix(v3, v7, vb, vf, m6, m7)
    v0, v5, va, vf = _mix(v0, v5, va, vf, m8, m9)
    v1, v6, vb, vc = _mix(v1, v6, vb, vc, ma, mb)
    v2, v7, v8, vd = _mix(v2, v7, v8, vd, mc, md)
    v3, v4, v9, ve = _mix(v3, v4, v9, ve, me, mf)
    return v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, va, vb, vc, vd, ve, vf


# fmt: off
@njit(cache=True, nogil=True)
def _compress(h, m, n_bytes, is_last):  # type: ignore[no-untyped-def]
    """F of the RFC: mix the 16 words `m` into the state `h`, in place; a loop takes three times as long."""
    m0, m1, m2, m3, m4, m5, m6, m7 = m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7]
    m8, m9, ma, mb, mc, md, me, mf = m[8], m[9], m[10], m[11], m[12], m[13], m[14], m[15]
    last = ~_IV[6] if is_last else _IV[6]
    v = (
        h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7],
        _IV[0], _IV[1], _IV[2], _IV[3], _IV[4] ^ n_bytes, _IV[5], last, _IV[7],
    )
    v = _round(v, m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, ma, mb, mc, md, me, mf)
    v = _round(v, me, ma, m4, m8, m9, mf, md, m6, m1, mc, m0, m2, mb, m7, m5, m3)
    v = _round(v, mb, m8, mc, m0, m5, m2, mf, md, ma, me, m3, m6, m7, m1, m9, m4)
    v = _round(v, m7, m9, m3, m1, md, mc, mb, me, m2, m6, m5, ma, m4, m0, mf, m8)
    v = _round(v, m9, m0, m5, m7, m2, m4, ma, mf, me, m1, mb, mc, m6, m8, m3, md)
    v = _round(v, m2, mc, m6, ma, m0, mb, m8, m3, m4, md, m7, m5, mf, me, m1, m9)
    v = _round(v, mc, m5, m1, mf, me, md, m4, ma, m0, m7, m6, m3, m9, m2, m8, mb)
    v = _round(v, md, mb, m7, me, mc, m1, m3, m9, m5, m0, mf, m4, m8, m6, m2, ma)
    v = _round(v, m6, mf, me, m9, mb, m3, m0, m8, mc, m2, md, m7, m1, m4, ma, m5)
    v = _round(v, ma, m2, m8, m4, m7, m6, m1, m5, mf, mb, m9, me, m3, mc, md, m0)
    v = _round(v, m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, ma, mb, mc, md, me, mf)
    v = _round(v, me, ma, m4, m8, m9, mf, md, m6, m1, mc, m0, m2, mb, m7, m5, m3)
    for k in range(8):
        h[k] ^= v[k] ^ v[k + 8]
# fmt: on


@njit(cache=True, nogil=True)
def _chain(state, parent, data, first, step, digests, sizes, words):  # type: ignore[no-untyped-def]
    """Fills digests and sizes; `words` u64[16] is scratch."""
    h = np.empty(8, dtype=np.uint64)
    start = 0
    end = min(first, data.size)
    for k in range(digests.size):
        h[:] = state
        parent = hash_piece(h, parent, data, start, end, words)
        digests[k] = parent
        sizes[k] = end - start
        start = end
        end = min(end + step, data.size)


@njit(cache=True, nogil=True)
def hash_piece(h, parent, data, start, end, words):  # type: ignore[no-untyped-def]
    """Digest of the 8 bytes of `parent` and data[start:end], from the keyed state `h` (modified in place)."""
    scratch = words.view(np.uint8)
    words[0] = parent
    n_before, n_bytes = 8, np.uint64(_BLOCK)
    while True:
        n = min(_BLOCK - n_before, end - start)
        part, room, rest = data[start : start + n], scratch[n_before:], scratch[n_before + n :]
        for k in range(part.size):  # slices, so that no index can be negative: LLVM copies 16 bytes at a time
            room[k] = part[k]
        for k in range(rest.size):
            rest[k] = 0
        n_bytes += np.uint64(n_before + n)
        start += n
        is_last = start >= end
        _compress(h, words, n_bytes, is_last)
        if is_last:
            return h[0]
        n_before = 0
