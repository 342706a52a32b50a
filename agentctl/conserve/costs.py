"""What a batch, a transfer and a misplaced turn cost on the paper's machine: Qwen3-0.6B, four A40, one host.

Source: the authors' decode grid, refitted (5.27 ms, 56 us a decode and 0.188 us a token read, never below
14.33 ms: mean error 3.3 %), and `per_turn_cost_model.py` of their code, in seconds.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

BLOCK_TOKENS = 16


class Machine(NamedTuple):
    """Seconds and tokens."""

    h0: float = 14.33e-3  # no batch is shorter
    b0: float = 5.27e-3  # s per batch
    b_prefill: float = 4.0e-5  # s per prefill token: 25,000 tokens/s
    b_decode: float = 5.6e-5  # s per decode
    b_context: float = 1.88e-7  # s per token of KV that decodes read
    batch_tokens: int = 2944
    kv_tokens: int = 308_448  # of one engine
    prefill_kv_tokens: int = 308_448


A40 = Machine()


@njit(cache=True)
def transfer_s(tokens: float) -> float:
    """Moving the KV of so many tokens to another engine."""
    return 4.849e-3 if tokens <= 1024 else 5.27e-3 + 0.985e-6 * tokens


@njit(cache=True)
def cached_prefill_s(tokens: float) -> float:
    """A prompt that is in the cache, but for its end."""
    return 14.5e-3 if tokens <= 12_000 else 5.6e-3 + 0.95e-6 * tokens


@njit(cache=True)
def bookkeeping_s(tokens: float) -> float:
    """Finding and packing blocks, on both sides."""
    return 2 * (2e-3 + 5e-6 * tokens / BLOCK_TOKENS)


@njit(cache=True)
def wrong_turn_s(history: float, fresh: float) -> float:
    """A later turn at the prefill engine: history there, its end computed, KV back; without queueing."""
    whole = history + fresh
    return transfer_s(history) + cached_prefill_s(whole) + transfer_s(fresh) + bookkeeping_s(whole)
