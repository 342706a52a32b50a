"""How many tokens a request that outlived its predicted length still has to go: a table of medians.

Source: latency-aware routing paper (SFS), its code's remaining-length table ("running_all, q50"); rows are
bins of the predicted length here, where its rows are bins of the prompt's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


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
