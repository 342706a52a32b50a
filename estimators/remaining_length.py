"""How many tokens a request that outlived its predicted length still has to go: a table of medians.

Source: latency-aware routing paper (SFS), its code's remaining-length table ("running_all, q50"); rows are
bins of the predicted length here, where its rows are bins of the prompt's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

ROWS = 8  # bins of the predicted length, at most
FEWEST_IN_ROW = 100  # answers
FEWEST_IN_CELL = 20  # answers that got that far
STEP = 2**0.5  # from one column to the next, from FIRST tokens on
FIRST = 8


class RemainingArrays(NamedTuple):
    """The table as plain arrays, for compiled code.

    predicted  f64[p] lower edges of the bins of the predicted length, the first 0; ascending
    emitted    f64[e] tokens emitted at which `tokens` holds, the first 0; ascending
    tokens     f64[p, e] median of what remains there, tokens, at least 1
    """

    predicted: np.ndarray
    emitted: np.ndarray
    tokens: np.ndarray


@dataclass(frozen=True)
class RemainingLength:
    """Medians of the tokens left, by predicted length and tokens emitted.

    count  i64[p, e] requests that got that far, from which each cell comes. Cells with too few take their
           value from the row's last cell that has enough
    """

    arrays: RemainingArrays
    count: np.ndarray

    def median(self, predicted: np.ndarray | float, emitted: np.ndarray | float) -> np.ndarray:
        """Tokens left of requests with this predicted length that have emitted so many: linear between
        columns, the last column's beyond it."""
        table = self.arrays
        told = np.asarray(emitted, dtype=float)
        row = np.clip(np.searchsorted(table.predicted, predicted, side="right") - 1, 0, None)
        right = np.clip(np.searchsorted(table.emitted, told, side="right"), 1, table.emitted.size - 1)
        left = right - 1
        width = table.emitted[right] - table.emitted[left]
        share = np.clip((told - table.emitted[left]) / width, 0.0, 1.0)
        return (1 - share) * table.tokens[row, left] + share * table.tokens[row, right]


def remaining_of(predicted: np.ndarray, tokens: np.ndarray) -> RemainingLength:
    """The table from answers of known length and what was predicted of them, all above 0."""
    edges = _edges(predicted)
    longest = float(tokens.max(initial=1.0))
    columns = int(np.ceil(np.log(max(longest / FIRST, 1.0)) / np.log(STEP))) + 1
    emitted = np.concatenate(([0.0], np.unique(np.round(FIRST * STEP ** np.arange(columns)))))
    row = np.searchsorted(edges, predicted, side="right") - 1
    median = np.full((edges.size, emitted.size), np.nan)
    count = np.zeros(median.shape, np.int64)
    for r in range(edges.size):
        lengths = tokens[row == r]
        for e, gone in enumerate(emitted):
            left = lengths[lengths > gone] - gone
            count[r, e] = left.size
            if left.size >= FEWEST_IN_CELL or e == 0:
                median[r, e] = np.median(left) if left.size else 1.0
            else:
                median[r, e] = median[r, e - 1]
    return RemainingLength(RemainingArrays(edges, emitted, np.maximum(median, 1.0)), count)


def _edges(predicted: np.ndarray) -> np.ndarray:
    """Lower edges of bins of equally many predictions, the first 0."""
    n_rows = max(1, min(ROWS, predicted.size // FEWEST_IN_ROW))
    inner = np.quantile(predicted, np.arange(1, n_rows) / n_rows) if n_rows > 1 else np.zeros(0)
    return np.concatenate(([0.0], np.unique(inner[inner > predicted.min(initial=np.inf)])))
