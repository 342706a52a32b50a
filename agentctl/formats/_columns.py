"""Range-checked columns of one chunk; a record that fails a check is set aside alone, with its field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from types import NoneType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentctl.formats._cells import NS_PER, convert_all
from agentctl.formats.base import Batch, Reading
from agentctl.ingest.ids import Ids, parse_ids
from agentctl.ingest.prompts import Prompt
from agentctl.ingest.source import Chunk

MAX_TOKENS = 1 << 30  # no context is near a billion tokens: a larger number is another unit or a fault
MAX_NS = 1 << 62  # the year 2116
MAX_SECONDS = 366 * 86400.0


class Columns:
    """Collects the columns of some records and the reasons why some of them are bad.

    within: for records that are parts of a line, the JSON path of each; paths of faults are put behind it
    """

    def __init__(
        self,
        reading: Reading,
        chunk: Chunk | None,
        lines: NDArray[np.int64],
        within: Sequence[str] | None = None,
    ) -> None:
        self._reading, self._chunk, self._lines, self._within = reading, chunk, lines, within
        self._fault: dict[int, tuple[str, str]] = {}  # row -> first reason and path
        self._columns: dict[str, NDArray[Any] | list[Any]] = {}
        self._ids: Ids | None = None
        self._prompts: list[Prompt | None] | None = None
        self.n = lines.size

    def parse(
        self, convert: Callable[[Any], Any], cells: Sequence[Any], path: str, required: bool = False
    ) -> list[Any]:
        """Values of untyped cells; a cell that `convert` refuses (ValueError) makes its record bad."""
        if (at_once := convert_all(convert, cells)) is not None:
            return at_once
        values: list[Any] = []
        for row, cell in enumerate(cells):
            try:
                values.append(convert(cell))
            except (ValueError, ArithmeticError):
                values.append(None)
                self._fault.setdefault(row, ("wrong_type", path))
            else:
                if required and values[-1] is None:
                    self._fault.setdefault(row, ("missing_field", path))
        return values

    def tokens(
        self, name: str, values: Sequence[Any], path: str, low: int = 0, high: int = MAX_TOKENS
    ) -> None:
        """Whole numbers in low..high, None = unknown."""
        numbers = _whole(values)
        bad = ((numbers < low) | (numbers > high)) & (numbers != _UNKNOWN_INT)
        self._mark(bad, "out_of_range", path)
        numbers[numbers == _UNKNOWN_INT] = -1
        self._columns[name] = numbers

    def seconds(self, name: str, values: Sequence[Any], path: str, per_second: float = 1.0) -> None:
        """Durations >= 0 in units of 1/per_second seconds, None = unknown."""
        numbers = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        given = np.array([value is not None for value in values], dtype=np.bool_)
        numbers = numbers / per_second
        self._mark(given & ~((numbers >= 0) & (numbers <= MAX_SECONDS)), "out_of_range", path)
        self._columns[name] = numbers

    def arrival(self, values: Sequence[Any], path: str, unit: str) -> None:
        """Times since the log's origin in `unit` (s, ms, us, ns), exact to the nanosecond; required."""
        per_unit = NS_PER[unit]
        self._mark(np.array([value is None for value in values], dtype=np.bool_), "missing_field", path)
        if set(map(type, values)) <= {int, NoneType}:
            whole = _whole(values)
            bad = (whole < 0) | (whole > MAX_NS // per_unit)
            nanoseconds = np.where(bad, 0, whole) * per_unit
        else:
            times = np.array([np.nan if value is None else float(value) for value in values])
            bad = ~((times >= 0) & (times <= MAX_NS / per_unit))
            times = np.where(bad, 0.0, times)
            # whole and fraction apart: a product in float64 would round epoch times to 256 ns
            whole_part = np.floor(times)
            nanoseconds = whole_part.astype(np.int64) * per_unit
            nanoseconds += np.rint((times - whole_part) * per_unit).astype(np.int64)
        self._mark(bad, "out_of_range", path)
        self._columns["arrival_ns"] = nanoseconds

    def text(self, name: str, values: Sequence[Any]) -> None:
        """Strings; numbers become their text, empty strings and None are unknown."""
        self._columns[name] = [None if value is None or value == "" else str(value) for value in values]

    def put(self, name: str, values: NDArray[Any] | list[Any]) -> None:
        """A column that needs no check."""
        self._columns[name] = values

    def ids(self, lists: Sequence[msgspec.Raw | bytes], path: str) -> None:
        """Block ids, each a JSON array."""
        self._ids, bad = parse_ids(lists)
        self._mark(bad, "bad_block_id", path)

    def chains(self, ids: Ids) -> None:
        """Block chains, hashed already."""
        self._ids = ids

    def prompts(self, prompts: list[Prompt | None]) -> None:
        """What each request sent; ingest hashes it."""
        self._prompts = prompts

    def reject(self, bad: NDArray[np.bool_], reason: str, path: str) -> None:
        """Set aside the records in the mask `bad`, for a reason of the format's own."""
        self._mark(bad, reason, path)

    def batch(self) -> Batch:
        """The records that passed every check."""
        self._reading.n_records += self.n - len(self._fault)
        if not self._fault:
            return Batch(self._lines, self._columns, self._ids, self._prompts)
        keep = np.ones(self.n, dtype=np.bool_)
        for row, (reason, path) in sorted(self._fault.items()):
            keep[row] = False
            path = self._within[row] + path.removeprefix("$") if self._within else path
            self._reading.reject(self._chunk, int(self._lines[row]), reason, path)
        columns = {name: take(values, keep) for name, values in self._columns.items()}
        ids = self._ids.take(keep) if self._ids else None
        prompts = list(compress(self._prompts, keep)) if self._prompts else None
        return Batch(self._lines[keep], columns, ids, prompts)

    def _mark(self, bad: NDArray[np.bool_], reason: str, path: str) -> None:
        for row in np.flatnonzero(bad):
            self._fault.setdefault(int(row), (reason, path))


def take(values: NDArray[Any] | list[Any], keep: NDArray[np.bool_]) -> NDArray[Any] | list[Any]:
    """The values where the mask `keep` is true."""
    return values[keep] if isinstance(values, np.ndarray) else list(compress(values, keep))


_UNKNOWN_INT = np.iinfo(np.int64).min


def _all_ints(values: Sequence[Any]) -> bool:
    return set(map(type, values)) <= {int}


def _whole(values: Sequence[Any]) -> NDArray[np.int64]:
    """int64, None as _UNKNOWN_INT, and anything beyond int64 as its maximum (out of every range)."""
    if _all_ints(values):
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:
            pass
    top = np.iinfo(np.int64).max
    return np.array(
        [_UNKNOWN_INT if value is None else max(-top, min(int(value), top)) for value in values],
        dtype=np.int64,
    )
