"""Requests that are in the logs more than once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agentctl.ingest.options import IngestOptions
from agentctl.ingest.rows import Rows


def drop_duplicates(rows: Rows, options: IngestOptions) -> tuple[dict[str, int], dict[int, str]]:
    """Drop later rows of a request id that came before, or name them apart (`id#2`).

    A row without an end gives way to one that has it: a log was rotated while the request ran.
    """
    codes, _ = rows.codes("request_id")
    if np.bincount(codes + 1)[1:].max(initial=0) <= 1:
        return {}, {}
    occurrence = _occurrences(codes)
    again = occurrence > 1
    if options.duplicates == "keep":
        return {}, {int(row): f"#{occurrence[row]}" for row in np.flatnonzero(again)}
    has_ended = ~np.isnan(rows.floats("e2e_s"))
    ends_elsewhere = ~has_ended & (codes >= 0) & np.isin(codes, codes[has_ended])
    again = ends_elsewhere | (_occurrences(np.where(ends_elsewhere, -1, codes)) > 1)
    rows.keep(~again)
    return {"duplicate_request_id": int(again.sum())}, {}


def count_equal(rows: Rows, tips: NDArray[np.uint32]) -> int:
    """Rows without a request id that repeat another in everything that matters here."""
    tied = np.zeros(len(rows) + 1, dtype=np.bool_)  # rows are in order of arrival: the others need no sorting
    tied[1:-1] = np.diff(rows.arrival_ns) == 0
    at = np.flatnonzero((tied[1:] | tied[:-1]) & (rows.codes("request_id")[0] < 0))
    columns = (rows.arrival_ns, rows.ints("prompt_tokens"), rows.ints("output_tokens"), tips)
    keys = [column[at].astype(np.int64) for column in columns]
    order = np.lexsort(keys)
    equal = np.ones(max(order.size - 1, 0), dtype=np.bool_)
    for key in keys:
        equal &= np.diff(key[order]) == 0
    return int(np.count_nonzero(equal))


def _occurrences(codes: NDArray[np.int32]) -> NDArray[np.int64]:
    """How often each row's code has occurred up to it (1 for the first, and for code -1)."""
    result = np.ones(codes.size, dtype=np.int64)
    by_code = np.argsort(codes, kind="stable")
    ordered = codes[by_code]
    starts = np.flatnonzero(np.diff(ordered, prepend=np.int64(-2)))
    lengths = np.diff(np.append(starts, codes.size))
    counts = np.arange(codes.size) - np.repeat(starts, lengths) + 1
    result[by_code] = np.where(ordered < 0, 1, counts)
    return result
