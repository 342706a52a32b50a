"""A column of times whose kind is not known beforehand: dates, epoch times of some unit, or a given unit.

What the column holds is decided once, on the first records; a record that holds something else is bad. Epoch
times between 2001 and 2286 have 10, 13, 16 or 19 digits before the point in s, ms, us and ns, so that their
size tells the unit. Any other number is ambiguous and needs the unit in the name of the column. Dates without
a zone are in that of --timezone, else in UTC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from types import NoneType
from typing import Any

import numpy as np

from agentctl.errors import UsageError
from agentctl.formats._cells import NS_PER, Instant, decimal, instant, nanoseconds
from agentctl.formats._columns import Columns
from agentctl.formats._local import LocalTime
from agentctl.formats._mapping import Field
from agentctl.formats.base import Reading

_EPOCH_NS = 10**18  # 2001-09-09: times from here on count from 1970, those below from the start of the log
_DATE = "date"


class Clock:
    """Reads one column of times. `is_absolute` is None until the first time has been read."""

    def __init__(self, field: Field, reading: Reading) -> None:
        self._field = field
        self._local = LocalTime(reading)
        self._kind = field.unit
        self.is_absolute: bool | None = None

    def read(self, columns: Columns, cells: Sequence[Any], required: bool) -> list[int | None]:
        """Nanoseconds since the epoch or the start of the log."""
        if (at_once := self._read_at_once(cells, required)) is not None:
            return at_once
        path = self._field.path
        values = columns.parse(_time, cells, path, required)
        kinds = [_kind(value) for value in values]
        if self._kind is None and any(value is not None for value in values):
            said = [kind for kind, value in zip(kinds, values, strict=True) if value is not None]
            self._kind = self._find_kind(said)
        other = [
            value is not None and self._is_other(kind) for value, kind in zip(values, kinds, strict=True)
        ]
        usable = [None if is_other else value for value, is_other in zip(values, other, strict=True)]
        times = columns.parse(self._nanoseconds, usable, path)
        columns.reject(np.array(other, dtype=np.bool_), "mixed_times", path)
        columns.reject(np.array(self._on_another_scale(times), dtype=np.bool_), "mixed_times", path)
        return times

    def _read_at_once(self, cells: Sequence[Any], required: bool) -> list[int | None] | None:
        """Cells that need no second look: nothing at all, or seconds since 1970 where these are expected."""
        kinds = set(map(type, cells))
        if kinds == {NoneType} and not required:
            return [None] * len(cells)
        if kinds == {float} and self._kind == "s" and self.is_absolute and not self._field.unit:
            since_1970 = _EPOCH_NS // NS_PER["s"]
            if all(since_1970 <= cell < 10 * since_1970 for cell in cells):
                return [_seconds_to_ns(cell) for cell in cells]
        return None

    def _is_other(self, kind: str | None) -> bool:
        return kind == _DATE if self._field.unit else kind != self._kind

    def _nanoseconds(self, value: Instant | Decimal | None) -> int | None:
        if value is None or isinstance(value, Instant):
            return self._local.utc_ns(value)
        assert self._kind is not None
        return nanoseconds(value, self._kind)

    def _on_another_scale(self, times: list[int | None]) -> list[bool]:
        """Times from 1970 among times from the start, or the reverse."""
        absolute = [time is not None and time >= _EPOCH_NS for time in times]
        known = [time is not None for time in times]
        if self.is_absolute is None and any(known):
            self.is_absolute = self._kind == _DATE or 2 * sum(absolute) > sum(known)
        if self._kind == _DATE:
            return [False] * len(times)
        return [k and a != self.is_absolute for k, a in zip(known, absolute, strict=True)]

    def _find_kind(self, kinds: list[str | None]) -> str:
        kind, _ = Counter(kind for kind in kinds).most_common(1)[0]
        if kind is None:
            column = self._field.column
            raise UsageError(
                f"the unit of the times in {self._field.path!r} cannot be told from their size",
                place="--map",
                expected="dates, or seconds, ms, us or ns since 1970",
                hint=f"--map {column}_ms={self._field.path} says that they are ms; also {column}_s, _us, _ns",
            )
        return kind


def _seconds_to_ns(seconds: float) -> int:
    """As it is written: such a number has at most seven digits behind the point."""
    whole, _, fraction = repr(seconds).partition(".")
    return int(whole) * NS_PER["s"] + int(fraction.ljust(9, "0"))


def _time(value: Any) -> Instant | Decimal | None:
    if isinstance(value, Instant):
        return value
    try:
        return decimal(value)
    except ValueError:
        if isinstance(value, str):
            return instant(value)
        raise


def _kind(value: Instant | Decimal | None) -> str | None:
    """date, the unit in which a number lies between 2001 and 2286, or None."""
    if isinstance(value, Instant):
        return _DATE
    for unit, per_unit in NS_PER.items():
        if value is not None and _EPOCH_NS <= value * per_unit < 10 * _EPOCH_NS:
            return unit
    return None
