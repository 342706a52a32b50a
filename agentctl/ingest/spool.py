"""Rows of one file on disk until they are put in order, in typed columns. Memory does not grow with them."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from agentctl.formats.base import TRANSPORT, Batch
from agentctl.schema import REQUESTS

_SPOOLED_ROWS = 4096


class Spool:
    """Rows of one file in an Arrow file; the first ones decide which columns there are.

    Batches of long prompts are small: they wait until there are some thousand rows to write.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.n_rows = path, 0
        self._waiting: list[dict[str, Any]] = []
        self._n_waiting = 0
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._schema = pa.schema([])

    def append(self, batch: Batch, extra: dict[str, NDArray[Any]]) -> None:
        columns = {"source_row": batch.lines, **extra, **batch.columns}
        if self._waiting and not _are_alike(columns, self._waiting[0]):
            self._flush()
        self._waiting.append(columns)
        self._n_waiting += batch.lines.size
        self.n_rows += batch.lines.size
        if self._n_waiting >= _SPOOLED_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        columns = {name: _end_to_end([one[name] for one in self._waiting]) for name in self._waiting[0]}
        n, self._waiting, self._n_waiting = self._n_waiting, [], 0
        if self._writer is None:
            self._schema = pa.schema([(name, column_type(name)) for name in sorted(columns)])
            self._writer = pa.ipc.new_file(str(self.path), self._schema)
        elif late := columns.keys() - set(self._schema.names):
            self._widen({*self._schema.names, *late})
        assert self._writer is not None
        self._writer.write_batch(self._record_batch(columns, n))

    def close(self) -> None:
        self._flush()
        if self._writer is None:
            self._schema = pa.schema([("source_row", pa.int64()), ("arrival_ns", pa.int64())])
            self._writer = pa.ipc.new_file(str(self.path), self._schema)
        self._writer.close()

    def _record_batch(self, columns: dict[str, Any], n: int) -> pa.RecordBatch:
        return pa.record_batch(
            [to_arrow(columns.get(field.name), field.type, n) for field in self._schema], schema=self._schema
        )

    def _widen(self, names: set[str]) -> None:
        """A column appeared late (say, the first session id after a million rows): write the file anew."""
        assert self._writer is not None
        self._writer.close()
        old = self.path.rename(self.path.with_suffix(".narrow"))
        self._schema = pa.schema([(name, column_type(name)) for name in sorted(names)])
        self._writer = pa.ipc.new_file(str(self.path), self._schema)
        with pa.memory_map(str(old)) as file:
            reader = pa.ipc.open_file(file)
            for index in range(reader.num_record_batches):
                narrow = reader.get_batch(index)
                columns = dict(zip(narrow.schema.names, narrow.columns, strict=True))
                self._writer.write_batch(self._record_batch(columns, narrow.num_rows))
        old.unlink()


def _are_alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """The same columns in the same kinds of sequences."""
    return one.keys() == other.keys() and all(
        type(values) is type(other[name])
        and getattr(values, "dtype", None) == getattr(other[name], "dtype", None)
        for name, values in one.items()
    )


def _end_to_end(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return pa.concat_arrays(parts) if isinstance(parts[0], pa.Array) else list(chain.from_iterable(parts))


def column_type(name: str) -> pa.DataType:
    """Arrow type of a spooled column."""
    if name in TRANSPORT:
        return pa.type_for_alias(TRANSPORT[name])
    type_ = REQUESTS.field(name).type
    return pa.string() if pa.types.is_dictionary(type_) else type_


def to_arrow(values: Any, type_: pa.DataType, n: int) -> pa.Array:
    """Integers -1, floats NaN and None become null."""
    if values is None:
        return pa.nulls(n, type_)
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, np.ndarray):
        if values.dtype.kind == "f":
            return pa.array(values, type=type_, from_pandas=True)
        if values.dtype.kind == "i":
            return pa.array(values, mask=values < 0).cast(type_)
    return pa.array(values, type=type_)
