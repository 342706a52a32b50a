"""Clocks that cannot be right: a file whose time steps back, and answers that are quoted before they ended.

Both are reported and changed nowhere: only the user knows which clock was wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentctl.ingest.turns import OVERLAP, Turns

STEP_S = 10.0  # several processes may write into one log a few seconds out of order
EARLY_S = 0.1  # hosts whose clocks are kept by NTP differ by less
_STRAY = 20  # more than one step back in so many rows: the file is in no order of time at all
_NS = 1_000_000_000


class Steps:
    """Steps back in the time of one file, seen batch by batch in the order of the file.

    Logs are written in the order of arrivals or of ends, and exported either way round. In all of these no
    row ends before the row before it (or behind it) arrived; one that does is a step.
    """

    def __init__(self) -> None:
        self._n_rows = self._n_up = self._n_down = 0
        self._steps = {1: 0, -1: 0}  # in a file that runs forward, and in one that runs backward
        self._widest_ns = {1: 0, -1: 0}
        self._last = np.empty((2, 0), dtype=np.int64)  # arrival and end of the last row

    def see(self, columns: dict[str, Any]) -> None:
        """Some rows: arrival_ns, and e2e_s where it is known."""
        arrival = np.asarray(columns["arrival_ns"], dtype=np.int64)
        lasts = np.nan_to_num(np.asarray(columns.get("e2e_s", np.zeros(arrival.size)), dtype=np.float64))
        rows = np.stack([arrival, arrival + np.rint(lasts * _NS).astype(np.int64)])
        arrival, end = np.concatenate([self._last, rows], axis=1)
        self._n_rows, self._last = self._n_rows + rows.shape[1], np.stack([arrival, end])[:, -1:]
        self._n_up += int(np.count_nonzero(arrival[1:] > arrival[:-1]))
        self._n_down += int(np.count_nonzero(arrival[1:] < arrival[:-1]))
        for way, back in ((1, arrival[:-1] - end[1:]), (-1, arrival[1:] - end[:-1])):
            self._steps[way] += int(np.count_nonzero(back > STEP_S * _NS))
            self._widest_ns[way] = max(self._widest_ns[way], int(back.max(initial=0)))

    def warnings(self, name: str) -> list[str]:
        way = 1 if self._n_up >= self._n_down else -1
        n, widest = self._steps[way], self._widest_ns[way] / _NS
        if not 0 < n <= max(1, self._n_rows // _STRAY):
            return []
        times = "once" if n == 1 else f"{n:,} times"
        return [
            f"{name}: time steps back {times}, by up to {widest:,.1f} s: several logs put together, or a "
            "clock that was set?"
        ]


def early_quotes(
    turns: Turns,
    arrival: NDArray[np.float64],
    end: NDArray[np.float64],
    prompt: NDArray[np.int64],
    output: NDArray[np.int64],
    resolution: float,
) -> list[str]:
    """A warning about requests whose prompt is long enough to hold an answer that had not ended yet.

    Such a prompt cannot have been sent then: its arrival and the answer's end come from different clocks.
    """
    parent = turns.parent_row
    rows = np.flatnonzero((parent >= 0) & (turns.gap_kind == OVERLAP) & (turns.after_row == parent))
    before = parent[rows]
    early = end[before] - arrival[rows]
    is_quote = (output[before] > 0) & (prompt[rows] >= prompt[before] + output[before]) & (prompt[before] > 0)
    early = early[is_quote & (early > EARLY_S + resolution)]
    if not early.size:
        return []
    n = "1 request arrives" if early.size == 1 else f"{early.size:,} requests arrive"
    return [
        f"{n} up to {early.max():,.1f} s before the answer that the prompt could hold had ended: do the "
        "clocks of two hosts differ?"
    ]
