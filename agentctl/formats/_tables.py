"""Tables whose columns the user names: CSV, JSON lines and Parquet give the same cells.

A field is a column's name or a dotted path into nested objects; a name that itself has dots wins.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from agentctl.errors import InputError, UsageError
from agentctl.formats._cells import Instant
from agentctl.formats._csv import read_csv
from agentctl.formats._mapping import Field
from agentctl.formats.base import Reading, Sample
from agentctl.ingest.lines import LineDecoder
from agentctl.ingest.source import Chunk

_BATCH_ROWS = 1 << 16


class Cells(NamedTuple):
    """Some records: values[column][record], of whatever type the file gives; lines as in Batch."""

    chunk: Chunk | None
    lines: NDArray[np.int64]
    values: Mapping[str, Sequence[Any]]


def tables(reading: Reading, fields: Sequence[Field]) -> Iterator[Cells]:
    """The cells of the mapped fields, under the names of their columns."""
    if reading.source.is_parquet:
        return _parquet(reading, fields)
    sample = Sample(reading.source.sample)
    if reading.options.json_document or sample.is_document or sample.keys:
        return _json_lines(reading, fields)
    return _csv(reading, fields)


def _csv(reading: Reading, fields: Sequence[Field]) -> Iterator[Cells]:
    for table in read_csv(reading, [field.path for field in fields]):
        values = {field.column: table.cells[field.path] for field in fields}
        yield Cells(table.chunk, table.lines, values)


def _json_lines(reading: Reading, fields: Sequence[Field]) -> Iterator[Cells]:
    decoder = LineDecoder(_row_type(fields), reading.quarantine)
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        if lines.rows:
            values = {field.column: [_find(row, field.path) for row in lines.rows] for field in fields}
            yield Cells(chunk, lines.lines, values)


def _row_type(fields: Sequence[Field]) -> type[msgspec.Struct]:
    """A Struct of the mapped fields alone, so that everything else on a line is skipped unread."""
    tree: dict[str, Any] = {}
    for field in fields:
        leaf = msgspec.Raw if field.column == "hash_ids" else Any
        *above, last = field.path.split(".")
        node = tree
        for key in above:
            node = node.setdefault(key, {})
            if not isinstance(node, dict):
                raise UsageError(f"{field.path!r} lies inside another mapped field", place="--map")
        if isinstance(node.get(last), dict):
            raise UsageError(f"{field.path!r} holds another mapped field", place="--map")
        node[last] = tree[field.path] = leaf
    return _struct(tree)


def _struct(tree: dict[str, Any]) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        "Row",
        [
            (
                _attribute(key),
                _struct(kind) | None if isinstance(kind, dict) else kind,
                msgspec.field(name=key, default=None),
            )
            for key, kind in tree.items()
        ],
    )


def _find(row: Any, path: str) -> Any:
    value = getattr(row, _attribute(path))
    if value is None and "." in path:
        value = row
        for key in path.split("."):
            value = value and getattr(value, _attribute(key))
    return value


@cache
def _attribute(key: str) -> str:
    """An identifier for any key."""
    return "f" + key.encode().hex()


def _parquet(reading: Reading, fields: Sequence[Field]) -> Iterator[Cells]:
    source = reading.source
    if source.path == "-":
        raise InputError("Parquet cannot be read from a pipe", place=source.name, hint="give the file's name")
    try:
        with Path(source.path).open("rb") as handle:
            file = pq.ParquetFile(handle)
            places = [_parquet_place(file.schema_arrow, field.path, source.name) for field in fields]
            needed = sorted({".".join(place) for place in places})
            line = 1
            for batch in file.iter_batches(_BATCH_ROWS, columns=needed):
                values = {
                    field.column: _plain_values(_descend(batch, place))
                    for field, place in zip(fields, places, strict=True)
                }
                yield Cells(None, np.arange(line, line + batch.num_rows), values)
                line += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            "cannot be read as Parquet: it is truncated or damaged", place=source.name
        ) from error


def _parquet_place(schema: pa.Schema, path: str, name: str) -> tuple[str, ...]:
    if path in schema.names:
        return (path,)
    place = tuple(path.split("."))
    if place[0] not in schema.names:
        alike = difflib.get_close_matches(path, schema.names, 1)
        raise InputError(
            f"the table has no column {path!r}", place=name, hint=f"is it {alike[0]!r}?" if alike else None
        )
    type_ = schema.field(place[0]).type
    for key in place[1:]:
        if not pa.types.is_struct(type_) or type_.get_field_index(key) < 0:
            raise InputError(f"the table has no field {path!r}", place=name)
        type_ = type_.field(key).type
    return place


def _descend(batch: pa.RecordBatch, place: tuple[str, ...]) -> pa.Array:
    array = batch.column(place[0])
    return pc.struct_field(array, list(place[1:])) if place[1:] else array


def _plain_values(array: pa.Array) -> list[Any]:
    """Python values; timestamps as instants, exact to the nanosecond."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not pa.types.is_timestamp(array.type):
        values: list[Any] = array.to_pylist()
        return values
    zoned = array.type.tz is not None
    times = array.cast(pa.timestamp("ns", array.type.tz)).cast(pa.int64()).to_pylist()
    return [None if ns is None else Instant(ns, zoned) for ns in times]
