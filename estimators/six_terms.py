"""The six numbers of the latency-aware routing paper's code (`legacy`), as a model that is simulated.

Their squares stand in for attention: p^2 of a chunk for the pairs inside it, s^2 of a sequence for how much
slower long contexts are read. The hinge with no host time (`batch_terms.HINGE`) is fitted to the times that
the six numbers give on a stated grid of batches, in relative error.

On a chunk that continues a prompt the two part: the six numbers have no product of chunk and context, the
hinge charges its attention. The grid holds no such chunk, since prefix caching was off where the numbers were
measured and a budget of 32,768 tokens cuts few prompts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from agentctl.estimators.batch_fit import fit
from agentctl.estimators.batch_terms import HINGE, LEGACY, batch_time_of, design
from agentctl.estimators.batch_time import BatchTime
from agentctl.estimators.steps import KINDS, Steps, steps_of

BUDGET = 32_768  # tokens of a batch
MOST_SEQS = 512
CHUNKS = (0, 1, 2, 4, 8)  # of one length each
CHUNK_TOKENS = tuple(2**k for k in range(4, 16))
DECODES = (0, *(2**k for k in range(10)))  # on one context each
CONTEXTS = tuple(2**k for k in range(6, 16))


class SixTerms(NamedTuple):
    """Seconds: per batch, prefill token, decode, token of all sequences after the batch, p^2 and s^2."""

    intercept: float
    prefill: float
    decode: float
    sum_tokens: float
    prefill_sq: float
    sum_sq: float


@dataclass(frozen=True)
class Mapped:
    """The hinge, and by how much it misses the six numbers on the grid (relative, absolute values)."""

    batch_time: BatchTime
    rows: int
    mape: float
    median_ape: float
    worst_ape: float
    by_kind: dict[str, float]  # mape by kind of batch


def hinge_of(six: SixTerms, kv_tokens: int) -> Mapped:
    """`kv_tokens`: what the engine's KV cache holds; the grid has no batch of more."""
    steps = grid(kv_tokens)
    steps = replace(steps, seconds=design(steps, LEGACY) @ np.array(six))
    found = fit(steps, HINGE)
    error = np.abs(found.predict(steps) / steps.seconds - 1)
    values = dict(zip(found.names, map(float, found.values), strict=True))
    return Mapped(
        batch_time_of("hinge", values),
        len(steps),
        float(error.mean()),
        float(np.median(error)),
        float(error.max()),
        {kind: float(error[steps.kind == number].mean()) for number, kind in enumerate(KINDS)},
    )


def grid(kv_tokens: int) -> Steps:
    """Batches of equal chunks from the beginning of a prompt, of equal decodes, and of both."""
    axes = np.meshgrid(CHUNKS, CHUNK_TOKENS, DECODES, CONTEXTS, indexing="ij")
    n, p, m, c = (axis.ravel().astype(np.float64) for axis in axes)
    once = ((n > 0) | (p == CHUNK_TOKENS[0])) & ((m > 0) | (c == CONTEXTS[0]))  # no chunk has no length
    held, computed = n * p + m * (c + 1), n * p + m
    fits = (n + m > 0) & (n + m <= MOST_SEQS) & (computed <= BUDGET) & (held <= kv_tokens)
    n, p, m, c = (axis[once & fits] for axis in (n, p, m, c))
    return steps_of(
        n.size,
        time_s=np.zeros(n.size),
        prefill_tokens=n * p,
        n_prefill=n,
        prefill_pairs=n * p * (p + 1) / 2,
        prefill_context=np.zeros(n.size),
        n_decode=m,
        decode_context=m * c,
        prefill_squares=n * p**2,
        sequence_tokens=n * p + m * (c + 1),
        sequence_squares=n * p**2 + m * (c + 1) ** 2,
    )
