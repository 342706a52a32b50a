"""Gauges of engines on their way from a log to events.parquet: buffered, spooled, then put in order."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from agentctl.ingest.hashing import HashOptions
from agentctl.schema import EVENTS

_BUFFERED = 1 << 14
_ROW_GROUP = 1 << 16
_NS = 1e9
_MAX_NS = 1 << 62  # the year 2116


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


# As spooled: absolute times, and the file is known.
_SPOOLED = pa.schema(
    [
        pa.field("ts_ns", pa.int64(), nullable=False),
        *(
            field.with_type(_plain(field.type))
            for field in EVENTS
            if field.name not in ("ts_s", "source_file")
        ),
    ]
)


class Events:
    """Events of one file in the order of its lines; `path` None keeps them in memory only."""

    def __init__(self, path: Path | None = None, hashing: HashOptions | None = None) -> None:
        self.path, self.n, self._hashing = path, 0, hashing
        self._rows: list[dict[str, Any]] = []
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def add(self, ts_ns: int, kind: str, line: int, **values: Any) -> bool:
        """ts_ns since the epoch; values by name in schema.EVENTS, None or left out = unknown.

        False, and nothing is added, for a time that no log can have.
        """
        if not 0 <= ts_ns < _MAX_NS:
            return False
        if self._hashing and values.get("instance"):
            values["instance"] = self._hashing.name(values["instance"])
        self._rows.append({"ts_ns": ts_ns, "kind": kind, "source_row": line, **values})
        self.n += 1
        if self.path and len(self._rows) >= _BUFFERED:
            self._flush()
        return True

    def close(self) -> None:
        if self.path and self.n:
            self._flush()
            assert self._writer is not None
            self._writer.close()

    def _flush(self) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_file(str(self.path), _SPOOLED)
        self._writer.write_table(pa.Table.from_pylist(self._rows, schema=_SPOOLED))
        self._rows.clear()


def write_events(path: Path, spools: Iterable[tuple[str, Path]], time_origin_ns: int) -> None:
    """Write events.parquet from (source file, spool), in order of time.

    Equal times stay in the order of `spools` and of the lines.
    """
    tables = []
    for name, spool in spools:
        table = pa.ipc.open_file(pa.memory_map(str(spool))).read_all()
        tables.append(table.append_column("source_file", pa.repeat(name, table.num_rows)))
    table = pa.concat_tables(tables)
    order = np.argsort(table["ts_ns"].to_numpy(), kind="stable")
    repeated = [field.name for field in EVENTS if pa.types.is_dictionary(field.type)]
    with pq.ParquetWriter(
        path, EVENTS, compression="zstd", compression_level=1, use_dictionary=repeated
    ) as writer:
        for start in range(0, order.size, _ROW_GROUP):
            part = table.take(pa.array(order[start : start + _ROW_GROUP])).combine_chunks()
            since = pc.subtract(part["ts_ns"], time_origin_ns).cast(pa.float64(), safe=False)
            columns = {"ts_s": pc.divide(since, _NS)} | {name: part[name] for name in part.schema.names}
            arrays = []
            for field in EVENTS:
                array = columns[field.name].combine_chunks()
                arrays.append(array.dictionary_encode() if field.name in repeated else array)
            writer.write_batch(pa.record_batch(arrays, schema=EVENTS))
