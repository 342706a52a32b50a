"""Steps of an engine whose coefficients are known: what a fit must find again."""

from __future__ import annotations

import numpy as np

from agentctl.estimators.batch_time import BatchTime, batch_time, chunk_pairs
from agentctl.estimators.steps import Chunk, Steps, composed

# about Qwen3-8B on H100, as the latency-aware routing paper's code has it
HIDDEN = BatchTime("hinge", 7.3e-3, 2.08e-5, 2.56e-5, 4.65e-8, 4.65e-8, 9.0e-10)


def seconds_of(batch: list[Chunk], c: BatchTime) -> float:
    prefill = [chunk for chunk in batch if chunk.is_prefill]
    decodes = [chunk for chunk in batch if not chunk.is_prefill]
    return batch_time(
        c,
        sum(chunk.tokens for chunk in prefill),
        sum(chunk_pairs(chunk.tokens, chunk.context) for chunk in prefill),
        sum(chunk.context for chunk in prefill),
        len(prefill),
        len(decodes),
        sum(chunk.context for chunk in decodes),
    )


def batches(n: int, seed: int) -> list[list[Chunk]]:
    """Prefill only, decode only and mixed; batch sizes and contexts are drawn apart, so that each is seen."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(n):
        n_decode = 0 if number % 4 == 0 else int(2 ** rng.uniform(0, 8))
        context = 2 ** rng.uniform(5, 14)
        batch = [Chunk(float(int(context * rng.uniform(0.5, 1.5))), 1, False) for _ in range(n_decode)]
        if number % 4 in (0, 1):
            past = float(rng.choice([0, 0, 1024, 8192, 32768]))
            batch += [Chunk(past, float(int(2 ** rng.uniform(4, 13))), True) for _ in range(1 + number % 3)]
        made.append(batch)
    return made


def noisy_steps(
    n: int = 4000, seed: int = 1, c: BatchTime = HIDDEN, noise: float = 0.03, stalls: float = 0.001
) -> Steps:
    """n steps of `c` with log-normal noise; a share `stalls` of them lasts 50 ms longer."""
    rng = np.random.default_rng(seed + 1)
    composition = batches(n, seed)
    exact = np.array([seconds_of(batch, c) for batch in composition])
    seconds = exact * np.exp(noise * rng.standard_normal(n)) + 0.05 * (rng.random(n) < stalls)
    return composed(composition, list(seconds), list(np.cumsum(seconds)))
