"""Limited processor sharing step by step, without tricks: every event advances all in service."""

from __future__ import annotations

from collections.abc import Sequence


def lps_queue(
    arrivals: Sequence[float], sizes: Sequence[float], capacity: Sequence[float], limit: int
) -> tuple[list[float], list[float]]:
    """Start and end of every request; capacity[j - 1] is shared evenly by j, the last value holds beyond."""
    start, finish = [0.0] * len(arrivals), [0.0] * len(arrivals)
    coming, queue, remaining = list(range(len(arrivals))), [], {}
    clock = 0.0
    while coming or remaining:
        share = capacity[min(len(remaining), len(capacity)) - 1] / len(remaining) if remaining else 0.0
        next_end = min((work / share for work in remaining.values()), default=float("inf"))
        next_arrival = arrivals[coming[0]] - clock if coming else float("inf")
        elapsed = min(next_end, next_arrival)
        done = [r for r, work in remaining.items() if work / share <= elapsed]
        remaining = {r: work - share * elapsed for r, work in remaining.items() if r not in done}
        clock += elapsed
        for r in done:
            finish[r] = clock
        if next_arrival <= next_end:
            clock = arrivals[coming[0]]
            queue.append(coming.pop(0))
        while queue and len(remaining) < limit:
            request = queue.pop(0)
            start[request], remaining[request] = clock, sizes[request]
    return start, finish
