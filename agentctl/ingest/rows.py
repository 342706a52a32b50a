"""All spooled rows in their final order, and access to their columns by position in that order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from agentctl.errors import InputError, UsageError
from agentctl.ingest.agent_lines import place_agent_lines
from agentctl.ingest.read import FileReport
from agentctl.ingest.spool import column_type
from agentctl.ingest.trie import UNKNOWN_TIP

_NS = 1_000_000_000
MAX_ROWS = np.iinfo(np.int32).max  # numbers of rows have 32 bits here and in all that follows
MAX_SPAN_NS = 100 * 365 * 86_400 * _NS  # well within 64 bits, with room for the longest session


class Rows:
    """The rows of several spools, sorted by (arrival, file digest, row of the file).

    The spools stay on disk (memory-mapped); in memory are 12 bytes a row and the columns asked for.
    `order[i]` is the place of sorted row i in the concatenation of the files.
    """

    def __init__(self, reports: list[FileReport]) -> None:
        self.reports = sorted(reports, key=lambda report: report.sha256)
        self._tables = [_mapped(report.spool) for report in self.reports]
        self._table = place_agent_lines(pa.concat_tables(self._tables, promote_options="default"))
        self.time_origin = _one_time_origin(self.reports)
        self._arrival_ns = self._plain("arrival_ns", 0)
        if self._table.num_rows > MAX_ROWS:
            raise InputError(
                f"they hold {self._table.num_rows:,} records",
                place=f"{len(reports)} files" if len(reports) > 1 else reports[0].name,
                expected=f"at most {MAX_ROWS:,} in a dataset",
                hint="ingest them into several datasets",
            )
        self.order = np.arange(self._table.num_rows, dtype=np.int32)

    def __len__(self) -> int:
        return int(self.order.size)

    @property
    def has_ids(self) -> bool:
        """Some file has block ids."""
        return any(report.has_ids for report in self.reports)

    @property
    def has_texts(self) -> bool:
        """Some file has prompts."""
        return any(report.has_texts for report in self.reports)

    def start_sessions(self, session_rate_per_min: float, seed: int) -> None:
        """Give sessions without absolute time their starts: a Poisson process of the given rate.

        Given their number n, the starts of a Poisson process are independent and uniform over n / rate; each
        session draws its own from (seed, session id), so that no order of reading matters.
        """
        encoded = self._column("session_id").combine_chunks().dictionary_encode()
        n = len(encoded.dictionary)
        span_ns = n / session_rate_per_min * 60.0 * _NS
        if span_ns > MAX_SPAN_NS:
            raise UsageError(
                f"{session_rate_per_min} sessions a minute spread {n} sessions over more than 100 years",
                place="--session-rate",
                expected="a higher rate",
            )
        starts = np.array([uniform(seed, name) * span_ns for name in encoded.dictionary.to_pylist()])
        self._arrival_ns = self._arrival_ns + np.rint(starts).astype(np.int64)[encoded.indices.to_numpy()]

    def sort(self) -> None:
        # Stable: equal arrivals stay in the order of file digest and row.
        self.order = np.argsort(self._arrival_ns, kind="stable").astype(np.int32)
        self._arrival_ns = self._arrival_ns[self.order]

    def keep(self, mask: NDArray[np.bool_]) -> None:
        self.order = self.order[mask]
        self._arrival_ns = self._arrival_ns[mask]

    @property
    def arrival_ns(self) -> NDArray[np.int64]:
        """Of the rows in their order; not to be modified."""
        return self._arrival_ns

    def has(self, name: str) -> bool:
        return name in self._table.schema.names

    def put(self, name: str, values: NDArray[np.int64]) -> None:
        """Replace a column of whole numbers (unknown = -1) by one in the final order."""
        plain = self._plain(name, -1).copy()
        plain[self.order] = values
        column = pa.array(plain, mask=plain < 0).cast(column_type(name))
        if self.has(name):
            self._table = self._table.drop_columns(name)
        self._table = self._table.append_column(name, column)

    def ints(self, name: str, dtype: Any = np.int64) -> NDArray[Any]:
        """A column of whole numbers, unknown = -1."""
        if not self.has(name):
            return np.full(len(self), -1, dtype=dtype)
        return self._plain(name, -1)[self.order].astype(dtype, copy=False)

    def floats(self, name: str) -> NDArray[np.float64]:
        """A column of floats, unknown = NaN; not to be modified."""
        if not self.has(name):
            return np.broadcast_to(np.nan, len(self))
        return self._column(name).to_numpy()[self.order]

    def flags(self, name: str) -> NDArray[np.bool_]:
        """A column of booleans, unknown = False."""
        if not self.has(name):
            return np.zeros(len(self), dtype=np.bool_)
        return pc.fill_null(self._column(name), False).to_numpy()[self.order]

    def codes(self, name: str) -> tuple[NDArray[np.int32], list[str]]:
        """A column of strings as numbers (-1 unknown) in order of first use, and the string of each."""
        if not self.has(name):
            return np.full(len(self), -1, dtype=np.int32), []
        encoded = self._column(name).combine_chunks().dictionary_encode()
        raw = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int32, copy=False)[self.order]
        names = encoded.dictionary.to_pylist()
        used, first = np.unique(raw[raw >= 0], return_index=True)
        by_use = used[np.argsort(np.flatnonzero(raw >= 0)[first], kind="stable")]
        number = np.full(len(names) + 1, -1, dtype=np.int32)
        number[by_use] = np.arange(by_use.size, dtype=np.int32)
        return number[raw], [names[code] for code in by_use]

    def take(self, name: str, positions: NDArray[np.int64]) -> pa.Array:
        """A column at some places of the order, as one Arrow array (nulls kept)."""
        if not self.has(name):
            return pa.nulls(positions.size, column_type(name))
        taken = self._table[name].take(pa.array(self.order[positions]))
        return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken

    def file_numbers(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Index into `reports` of the file of each row."""
        ends = np.cumsum([table.num_rows for table in self._tables])
        return np.searchsorted(ends, self.order[positions], side="right")

    def tips(self, name: str = "tip_node") -> NDArray[np.uint32]:
        """A node of each row in a common tree, UNKNOWN_TIP where it has none.

        name: tip_node (block ids), message_node or unit_node (texts)
        """
        raw = self._plain(name, -1).copy()
        start = 0
        for report, table in zip(self.reports, self._tables, strict=True):
            part = raw[start : start + table.num_rows]
            if report.node_numbers is not None:  # read in a process of its own, with a trie of its own
                raw[start : start + table.num_rows] = np.where(part < 0, -1, report.node_numbers[name][part])
            start += table.num_rows
        raw = raw[self.order]
        return np.where(raw < 0, UNKNOWN_TIP, raw).astype(np.uint32)

    def _column(self, name: str) -> pa.ChunkedArray:
        return self._table[name]

    def _plain(self, name: str, unknown: int) -> NDArray[np.int64]:
        if not self.has(name):
            return np.full(self._table.num_rows, unknown, dtype=np.int64)
        return pc.fill_null(self._column(name).cast(pa.int64()), unknown).to_numpy()


def uniform(seed: int, name: str) -> float:
    """A number in [0, 1) from (seed, name)."""
    import hashlib

    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def _mapped(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def _one_time_origin(reports: list[FileReport]) -> str:
    origins = {report.time_origin: report.name for report in reports}
    if len(origins) > 1:
        (one, first), (other, second) = sorted(origins.items())[:2]
        raise InputError(
            f"{first} has {one} times and {second} has {other} times: they cannot be put in one order",
            hint="ingest them into two datasets",
        )
    return next(iter(origins))
