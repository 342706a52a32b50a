"""What a step is timed with: a mark before, a mark after, and the seconds between them.

events  CUDA events on the stream that computes: from the start of a batch's execution to its sampled tokens
cpu     on-CPU time of this process: for an engine of one thread, and blind to who else wants the core
wall    the monotonic clock, where neither can be had: several GPUs, or an engine of several threads
"""

from __future__ import annotations

import time
from typing import Any, Protocol

MEANING = {
    "events": "CUDA events, from the start of a batch's execution to its sampled tokens",
    "cpu": "on-CPU time of the engine's one thread, waits for a core left out",
    "wall": "wall time of a step",
}


class Clock(Protocol):
    name: str

    def mark(self) -> Any: ...
    def seconds(self, start: Any, end: Any) -> float: ...


class CpuClock:
    name = "cpu"
    mark = staticmethod(time.process_time)

    def seconds(self, start: float, end: float) -> float:
        return end - start


class WallClock:
    name = "wall"
    mark = staticmethod(time.perf_counter)

    def seconds(self, start: float, end: float) -> float:
        return end - start


class EventClock:
    """torch: the module, which knows the stream that the engine computes on."""

    name = "events"

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def mark(self) -> Any:
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: Any, end: Any) -> float:
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3


def clock_for(device: str, threads: int, gpus: int, torch: Any = None) -> Clock:
    """device: cuda | cpu | ..., as the engine's platform names it; threads: of the engine, on a CPU."""
    if device == "cuda" and gpus == 1 and torch is not None:
        return EventClock(torch)
    return CpuClock() if device == "cpu" and threads == 1 and gpus == 1 else WallClock()
