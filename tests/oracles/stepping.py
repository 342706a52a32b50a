"""Steps of an engine whose coefficients are known: what a fit must find again."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from oracles.reference_simulator import BatchCoefficients, Limits, Request
from oracles.reference_simulator import Cluster as ReferenceCluster
from oracles.reference_simulator import Engine as ReferenceEngine

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


class RecordedEngine(ReferenceEngine):
    """The reference simulator's engine, whose steps are noisy and written down."""

    log: ClassVar[list[tuple[float, float, list[Chunk]]]] = []  # time, seconds, batch; one engine at a time
    noise: ClassVar[float] = 0.03
    stalls: ClassVar[float] = 0.001
    rng: ClassVar[np.random.Generator] = np.random.default_rng(0)

    def schedule(self, now: float) -> None:
        self.now = now
        super().schedule(now)

    def duration(self) -> float:
        noisy = super().duration() * float(np.exp(self.noise * self.rng.standard_normal()))
        seconds = noisy + 0.05 * (self.rng.random() < self.stalls)
        batch = [Chunk(float(q.context), float(q.tokens), not q.is_decode) for q in self.batch]
        self.log.append((self.now, seconds, batch))
        return seconds


class RecordedCluster(ReferenceCluster):
    engine_type = RecordedEngine


def served_steps(n_requests: int, seed: int, c: BatchTime = HIDDEN) -> Steps:
    """Steps of one engine that serves short chats in crowds and long documents alone, in turns."""
    rng = np.random.default_rng(seed)
    requests, arrival = [], 0.0
    for number in range(n_requests):
        is_chat = (number // 40) % 2 == 0
        prompt = int(2 ** (rng.uniform(5, 9) if is_chat else rng.uniform(11, 14.5)))
        arrival += rng.exponential(0.01 if is_chat else 0.5) + (15.0 if number % 40 == 0 else 0.0)
        requests.append(Request(prompt, int(rng.integers(20, 150)), arrival, session=number))
    coefficients = BatchCoefficients(
        **{name: getattr(c, name) for name in BatchTime._fields if name != "model"}
    )
    limits = Limits(20_000, 16, 2048, 256, prefix_caching=False, batch_time=coefficients)
    RecordedEngine.log, RecordedEngine.rng = [], np.random.default_rng(seed + 1)
    RecordedCluster(requests, [limits], lambda view, r: 0, trace_block=None).run()
    times, seconds, made = zip(*RecordedEngine.log, strict=True)
    return composed(list(made), list(seconds), list(times))
