"""Batches of dense layers alone, of many sizes and three times each, into a step log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from agentctl.inprocess.clocks import Clock
from agentctl.inprocess.plan import ROUNDS
from agentctl.inprocess.step_file import WARM, StepFile
from agentctl.inprocess.stepping import WARM_STEPS, Progress, Taken

PREFILL = (8, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192)
DECODE = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MOST_TOKENS = 8192


class Dense(Protocol):
    version: str
    device_name: str
    clock: Clock

    def mode(self) -> dict[str, Any]: ...
    def step(self, tokens: int, sequences: int) -> Taken: ...


def measure_dense(
    dense: Dense, asked: dict[str, Any], file: StepFile, seed: int, seconds: float, progress: Progress | None,
    now: Callable[[], float] = time.monotonic,
) -> None:  # fmt: skip
    """Time what the file lacks, for `seconds` at most; interrupted, it keeps what there is.

    A size that alone would take a tenth of the time is left out.
    """
    is_new = not file.facts
    file.open({
        "asked": asked, "engine": dense.version, "device": dense.device_name, "clock": dense.clock.name,
        "mode": dense.mode(), "limits": {}, "room": {},
    })  # fmt: skip
    warm = [dense.step(64, 1) for _ in range(WARM_STEPS)]
    if is_new:
        file.write(warm, 0, WARM, {**_row("prefill", 64)})
    todo = [one for one in sizes(seed) if (one[0], f"{one[1]}-{one[2]}") not in file.done]
    began, slowest = now(), 0.0  # seconds a token
    for i, (number, kind, tokens) in enumerate(todo):
        share = max(i / len(todo), (now() - began) / seconds)
        if share >= 1:
            break
        if progress:
            progress(share, f"timing: {kind} of {tokens}")
        if tokens * slowest > seconds / 10:
            continue
        taken = dense.step(tokens, tokens if kind == "decode" else 1)
        slowest = max(slowest, taken.wall_s / tokens) if tokens >= DECODE[-1] else slowest
        file.write([taken], number, f"{kind}-{tokens}", _row(kind, tokens))


def sizes(seed: int) -> list[tuple[int, str, int]]:
    """(round, kind, tokens), each round in an order of its own."""
    every = [("prefill", n) for n in PREFILL] + [("decode", n) for n in DECODE]
    random = np.random.default_rng(seed)
    return [(r, *every[i]) for r in range(ROUNDS) for i in random.permutation(len(every))]


def _row(kind: str, tokens: int) -> dict[str, Any]:
    """Totals of the batch; of contexts it says nothing, since there are none."""
    if kind == "decode":
        return {"prefill_tokens": 0, "n_prefill": 0, "n_decode": tokens}
    return {"prefill_tokens": tokens, "n_prefill": 1, "n_decode": 0}
