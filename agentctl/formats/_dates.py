"""Columns of dates in ISO 8601, as exporters of spans write them."""

from __future__ import annotations

from collections.abc import Sequence

from agentctl.formats._cells import instant
from agentctl.formats._columns import Columns
from agentctl.formats.base import Reading


def dates(
    columns: Columns, reading: Reading, texts: Sequence[str | None], path: str, required: bool = False
) -> list[int | None]:
    """Nanoseconds since the epoch; a date without a zone is taken for UTC, and the reading says so."""
    found = columns.parse(instant, [text or "" for text in texts], path, required)
    if any(at is not None and not at.zoned for at in found):
        reading.tz_assumed = "UTC"
    return [at and at.ns for at in found]


def between(start: Sequence[int | None], end: Sequence[int | None]) -> list[int | None]:
    """Durations in ns."""
    return [None if a is None or b is None else b - a for a, b in zip(start, end, strict=True)]
