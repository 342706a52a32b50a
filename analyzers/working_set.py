"""The working set over time: blocks that requests touch, and blocks that will be used again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentctl.analyzers.counted import Counted
from agentctl.analyzers.elapsed import elapsed, to_clock
from agentctl.analyzers.stretches import Stretches

WINDOWS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)
N_WINDOWS = 120  # at most, unless days are not long enough


@dataclass(frozen=True)
class Window:
    start_s: float
    touched_tokens: int  # distinct blocks touched in the window, in tokens of pool space
    waiting_tokens: int  # the most that waited for their next use at one moment of it


@dataclass(frozen=True)
class WorkingSet:
    window_s: float
    peak_waiting_tokens: int  # the least cache that can hold every reuse, if it knew the future
    windows: tuple[Window, ...]


def waiting_blocks(reuse: Stretches) -> NDArray[np.int64]:
    """Blocks that will be used again, after each request: what an all-knowing cache would hold."""
    n_requests = reuse.offset.size - 1
    starts = np.bincount(reuse.previous, reuse.blocks, n_requests)
    ends = np.diff(np.concatenate(([0], np.cumsum(reuse.blocks, dtype=np.int64)))[reuse.offset])
    return np.cumsum(starts.astype(np.int64) - ends)


def working_set(counted: Counted, reuse: Stretches) -> WorkingSet:
    """Windows of one length over the trace, from its first arrival; at least one request."""
    since_start = elapsed(counted.arrival, counted.arrival[0])
    window_s = next((w for w in WINDOWS_S if since_start[-1] < w * N_WINDOWS), WINDOWS_S[-1])
    window = (since_start // window_s).astype(np.int64)
    n_windows = int(window[-1]) + 1
    new = np.bincount(window, counted.n_blocks - reuse.hit_blocks(), n_windows)
    again = window[reuse.request()]
    first_in_window = again != window[reuse.previous]
    touched = new + np.bincount(again[first_in_window], reuse.blocks[first_in_window], n_windows)
    waiting = waiting_blocks(reuse)
    edges = np.searchsorted(window, np.arange(n_windows + 1))
    return WorkingSet(
        window_s=float(window_s),
        peak_waiting_tokens=int(waiting.max()) * counted.block_tokens,
        windows=tuple(
            Window(
                float(to_clock(counted.arrival[0] + k * window_s)),
                int(touched[k]) * counted.block_tokens,
                int(waiting[max(edges[k] - 1, 0) : edges[k + 1]].max()) * counted.block_tokens,
            )
            for k in range(n_windows)
        ),
    )
