"""Columns of dates in ISO 8601, as exporters of spans write them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from agentctl.formats._cells import instant
from agentctl.formats._columns import Columns
from agentctl.formats._local import LocalTime
from agentctl.formats.base import Reading


def dates(
    columns: Columns, reading: Reading, texts: Sequence[str | None], path: str, required: bool = False
) -> list[int | None]:
    """Nanoseconds since the epoch; dates without a zone are in that of --timezone, else in UTC."""
    if not required and not any(texts):
        return [None] * len(texts)
    if (at_once := _utc_dates(texts, required)) is not None:
        return at_once
    found = columns.parse(instant, [text or "" for text in texts], path, required)
    local = LocalTime(reading)
    return [local.utc_ns(at) for at in found]


def _utc_dates(texts: Sequence[str | None], required: bool) -> list[int | None] | None:
    """The same for dates that all end in Z, several times faster; None where only `instant` can tell."""
    if required and not all(texts):
        return None
    if any(text and not (text[-1] == "Z" and len(text) >= len("2023-11-16T18:17:03Z")) for text in texts):
        return None
    try:
        column = pa.array([text or None for text in texts], pa.string())
        return column.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    except pa.ArrowInvalid:
        return None


def between(start: Sequence[int | None], end: Sequence[int | None]) -> list[int | None]:
    """Durations in ns."""
    return [None if a is None or b is None else b - a for a, b in zip(start, end, strict=True)]
