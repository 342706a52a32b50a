"""Continuous batching step by step: whole prompts, one token a step for all others, no KV limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Steps(NamedTuple):
    """Seconds of a step: fixed, for each decode, for each prefill (of the request at that place)."""

    fixed: float
    decode: float
    prefill: Sequence[float]


def continuous_batching(
    arrivals: Sequence[float], outputs: Sequence[int], steps: Steps, limit: int | None = None
) -> tuple[list[float], list[float], list[float]]:
    """Start of service, first token and end of every request, in order of arrival."""
    start, first, finish = ([0.0] * len(arrivals) for _ in range(3))
    clock, coming, running = 0.0, 0, {}
    while coming < len(arrivals) or running:
        if not running and arrivals[coming] > clock:
            clock = arrivals[coming]
        new: list[int] = []
        while (
            coming < len(arrivals)
            and arrivals[coming] <= clock
            and (limit is None or len(running) + len(new) < limit)
        ):
            start[coming] = clock
            new.append(coming)
            coming += 1
        clock += steps.fixed + steps.decode * len(running) + sum(steps.prefill[r] for r in new)
        for r in new:
            first[r], running[r] = clock, outputs[r]
        for r in list(running):
            running[r] -= 1
            if running[r] == 0:
                finish[r] = clock
                del running[r]
    return start, first, finish
