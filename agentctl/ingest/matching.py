"""Which rows of several logs are of one request."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]


class Matches(NamedTuple):
    """One entry per request, in the order of its outermost row."""

    rows: I64  # [request, layer] -> row, -1 where the layer does not have it
    key: I64  # code of the shared id, -1 without one
    attempt: I64  # among the requests of the same key, from 0

    @property
    def n_layers_each(self) -> I64:
        return np.count_nonzero(self.rows >= 0, axis=1)

    @property
    def owner(self) -> I64:
        """The outermost row of each request; layers stand from the outside in."""
        return self.rows[np.arange(len(self.rows)), np.argmax(self.rows >= 0, axis=1)]


def match(key: I64, layer: I64, arrival: I64, n_layers: int) -> Matches:
    """Match the rows of all layers by their key; rows without one (-1) stay alone.

    A key that a layer holds several times is one of several attempts. They are matched in the order of their
    arrival (then of the rows) from the last one backwards: the attempt that ended the request is in all logs,
    while an outer layer may know of one attempt where an inner one saw three.
    Time O(n log n).
    """
    rows = np.arange(key.size)
    alone = key < 0
    own = np.where(alone, key.max(initial=-1) + 1 + rows, key)  # nobody else has it
    order = np.lexsort((rows, arrival, layer, own))
    starts = np.flatnonzero(np.diff(own[order], prepend=-1) | np.diff(layer[order], prepend=-1))
    lengths = np.diff(np.append(starts, key.size))
    from_end = np.empty(key.size, dtype=np.int64)
    from_end[order] = np.repeat(starts + lengths, lengths) - 1 - np.arange(key.size)

    attempts = np.zeros(int(own.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(attempts, own, from_end + 1)
    pair = own * (int(attempts.max(initial=0)) + 1) + from_end
    _, first, request = np.unique(pair, return_index=True, return_inverse=True)
    table = np.full((first.size, n_layers), -1, dtype=np.int64)
    table[request, layer] = rows
    found = Matches(table, key[first], attempts[own[first]] - 1 - from_end[first])
    by_owner = np.argsort(found.owner, kind="stable")
    return Matches(*(column[by_owner] for column in found))
