"""Randomness: a hash of the seed and the request's number, so that every policy meets the same arrivals."""

from __future__ import annotations

from numba import njit


@njit(cache=True)
def tie_hash(seed: int, r: int) -> int:
    """A well mixed number below 2^32 of the seed and the request's number."""
    return _mix(_mix(seed & 0xFFFFFFFF) ^ (r & 0xFFFFFFFF))


@njit(cache=True)
def gateway_of(seed: int, r: int, n_gateways: int) -> int:
    """The gateway that request r comes to. Hashed once more: it tells nothing of what a policy draws by
    `tie_hash`, or a gateway would break its ties towards the same engines again and again."""
    return tie_hash(tie_hash(seed, r), 1) % n_gateways


@njit(cache=True)
def _mix(x: int) -> int:
    """32-bit finaliser with multipliers below 2^31, so that products stay within int64 (hash-prospector's
    16-21f0aaad-15-735a2d97-15)."""
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x735A2D97) & 0xFFFFFFFF
    return x ^ (x >> 15)
