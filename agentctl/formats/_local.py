"""Times without a zone, and without a year: what the user said about them, and what is assumed.

The zone is the one of --timezone, else UTC; the dataset says which. A year-less log begins in the year of
--year; each later line lies in the year that puts it nearest to the line before, so that New Year is crossed
(also back, where the lines of several processes are not quite in order).
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo

from agentctl.errors import UsageError
from agentctl.formats._cells import NS_PER, Instant
from agentctl.formats.base import Reading
from agentctl.ingest.zones import parse_zone

_DAY_NS = 86_400 * NS_PER["s"]
_SLOT_NS = 900 * NS_PER["s"]  # clocks are changed at quarters of an hour
_EPOCH = date(1970, 1, 1)


class LocalTime:
    """Local times of one file as nanoseconds since the epoch."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._zone: tzinfo | None = None
        self._offset_ns: dict[int, int] = {}  # by quarter of an hour of local time
        self._day, self._day_ns = (0, 0), -1  # the last month and day, and when that day began

    def epoch_ns(self, local_ns: int) -> int:
        """local_ns: what the clock on the wall showed, in nanoseconds since it showed 1970."""
        slot = local_ns // _SLOT_NS
        offset = self._offset_ns.get(slot)
        if offset is None:
            offset = self._offset_ns[slot] = self._offset_of(slot)
        return local_ns - offset

    def utc_ns(self, instant: Instant | None) -> int | None:
        """A date as nanoseconds since the epoch; in the zone that it names, else in the user's."""
        if instant is None:
            return None
        return instant.ns if instant.zoned else self.epoch_ns(instant.ns)

    def yearless_ns(self, month: int, day: int, of_day_ns: int) -> int:
        """Since the epoch; `of_day_ns` since midnight. Raises ValueError for a day that no year has near."""
        if (month, day) != self._day:
            self._day_ns = self._nearest(month, day)
            self._day = (month, day)
        return self.epoch_ns(self._day_ns + of_day_ns)

    def _nearest(self, month: int, day: int) -> int:
        if self._day_ns < 0:
            return _days(date(self._first_year(), month, day))
        last = _EPOCH + timedelta(days=self._day_ns // _DAY_NS)
        found = []
        for year in (last.year - 1, last.year, last.year + 1):
            try:
                found.append(date(year, month, day))
            except ValueError:  # 29 February, in some years
                continue
        return _days(min(found, key=lambda other: abs(other - last)))

    def _first_year(self) -> int:
        year = self._reading.options.year
        if year is None:
            raise UsageError(
                "its times have no year",
                place=self._reading.source.name,
                hint="--year 2026 says that it begins in 2026 (New Year within it is noticed)",
            )
        self._reading.year_assumed = year
        return year

    def _offset_of(self, slot: int) -> int:
        if self._zone is None:
            name = self._reading.options.timezone or "UTC"
            self._zone, self._reading.tz_assumed = parse_zone(name), name
        local = datetime.fromtimestamp(slot * _SLOT_NS // NS_PER["s"], UTC).replace(tzinfo=self._zone)
        offset, later = local.utcoffset(), local.replace(fold=1).utcoffset()
        assert offset is not None and later is not None
        if offset != later:
            self._warn(is_repeated=offset > later, hour=local)
        return int(offset.total_seconds()) * NS_PER["s"]

    def _warn(self, is_repeated: bool, hour: datetime) -> None:
        place = f"{self._reading.source.name}: {hour:%Y-%m-%d %H} o'clock"
        if is_repeated:
            text = f"{place} happened twice when the clocks went back; times in it are read as the first"
        else:
            text = f"{place} was left out when the clocks went forward: is --timezone right?"
        if text not in self._reading.warnings:
            self._reading.warnings.append(text)


def _days(day: date) -> int:
    return (day - _EPOCH).days * _DAY_NS
