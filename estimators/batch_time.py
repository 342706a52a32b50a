"""How long one batch takes: linear in what it computes and reads, bounded below by the host's work.

With one slope for prefill and decode, one context coefficient, no past term and no host time this is Eq. 9 of
the latency-aware routing paper ("eq9"); the general form is "hinge". Asynchronous scheduling is not modelled.
"""

from __future__ import annotations

from typing import NamedTuple


class BatchTime(NamedTuple):
    """Coefficients of a batch's duration. Those that a calibration does not use are 0."""

    model: str = "hinge"  # eq9 | hinge
    b0: float = 0.0  # s per batch
    b_prefill: float = 0.0  # s per prefill token
    b_decode: float = 0.0  # s per decode
    b_context: float = 0.0  # s per context token of a decode, in a batch of decodes only
    b_context_mixed: float = 0.0  # the same in a batch that also carries prefill
    b_attention: float = 0.0  # s per pair of prefill token and earlier token (itself included)
    b_past: float = 0.0  # s per context token that a prefill chunk reads
    h0: float = 0.0  # s of host work per batch
    h_seq: float = 0.0  # s of host work per sequence


def batch_time(
    c: BatchTime,
    prefill_tokens: float,
    prefill_pairs: float,
    prefill_context: float,
    n_prefill: int,
    n_decode: int,
    decode_context: float,
) -> float:
    """Duration of one batch in seconds: the longer of the GPU's part and the host's."""
    gpu = gpu_time(c, prefill_tokens, prefill_pairs, prefill_context, n_prefill, n_decode, decode_context)
    return max(gpu, host_time(c, n_prefill + n_decode))


def gpu_time(
    c: BatchTime,
    prefill_tokens: float,
    prefill_pairs: float,
    prefill_context: float,
    n_prefill: int,
    n_decode: int,
    decode_context: float,
) -> float:
    """Seconds of GPU work in one batch. A decode computes just the token sampled last; all else is prefill.

    prefill_tokens   sum over chunks of their length p
    prefill_pairs    sum over chunks of p*c + p(p+1)/2 on a context of c tokens computed before
    prefill_context  sum over chunks of c
    n_prefill        number of chunks; n_decode, number of decodes
    decode_context   sum over decodes of their context
    """
    b_context = c.b_context_mixed if n_prefill else c.b_context
    return (
        c.b0
        + c.b_prefill * prefill_tokens
        + c.b_decode * n_decode
        + b_context * decode_context
        + c.b_attention * prefill_pairs
        + c.b_past * prefill_context
    )


def host_time(c: BatchTime, n_sequences: int) -> float:
    """Seconds of host work in one batch."""
    return c.h0 + c.h_seq * n_sequences


def chunk_pairs(tokens: float, context: float) -> float:
    """Pairs of a token and one that it attends to, in a chunk of `tokens` after `context` others."""
    return tokens * context + tokens * (tokens + 1) / 2
