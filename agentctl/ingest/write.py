"""The dataset's two tables, streamed in fixed row groups, so that the bytes depend on the rows alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from agentctl.ingest.rows import Rows
from agentctl.ingest.trie import NumberedTree
from agentctl.schema import PREFIX_NODES, REQUESTS

ROW_GROUP = 1 << 14
NODE_GROUP = 1 << 18


class Names:
    """Request and session ids by sorted row; those that the log does not give are made from file and row."""

    def __init__(self, rows: Rows, suffix: dict[int, str]) -> None:
        self._rows, self._suffix = rows, suffix
        names = [report.name for report in rows.reports]
        # two files of the same name (in two folders) are told apart by their content
        self.of_files = [
            name if names.count(name) == 1 else f"{name}@{report.sha256[:8]}"
            for name, report in zip(names, rows.reports, strict=True)
        ]
        self._files = pa.array(self.of_files)

    def files(self, positions: NDArray[np.int64]) -> pa.Array:
        return self._files.take(pa.array(self._rows.file_numbers(positions)))

    def formats(self, positions: NDArray[np.int64]) -> pa.Array:
        return self.of_reports(positions, "format")

    def of_reports(
        self, positions: NDArray[np.int64], attribute: str, known: NDArray[np.int64] | None = None
    ) -> pa.Array:
        """A fact about each row's file; null where `known` is negative."""
        values = pa.array([getattr(report, attribute) for report in self._rows.reports], pa.string())
        numbers = self._rows.file_numbers(positions)
        return values.take(pa.array(numbers, mask=None if known is None else known < 0))

    def requests(self, positions: NDArray[np.integer]) -> pa.Array:
        """Request ids of sorted rows; a position of -1 gives null."""
        at = np.maximum(positions, 0)
        lines = self._rows.take("source_row", at).cast(pa.string())
        made = pc.binary_join_element_wise(self.files(at), lines, ":")
        names = pc.coalesce(self._rows.take("request_id", at), made)
        if self._suffix:
            suffixes = pa.array([self._suffix.get(position, "") for position in at.tolist()])
            names = pc.binary_join_element_wise(names, suffixes, "")
        return pc.if_else(pa.array(positions >= 0), names, pa.scalar(None, pa.string()))


def write_requests(path: Path, rows: Rows, names: Names, derived: dict[str, Any]) -> dict[str, float]:
    """Write requests.parquet; returns the share of known values by column.

    `derived` gives columns that win over the spools': numpy or Arrow arrays in sorted order, or functions of
    positions that return Arrow arrays.
    """
    known = dict.fromkeys(REQUESTS.names, 0)
    repeated = [field.name for field in REQUESTS if pa.types.is_dictionary(field.type)]
    with pq.ParquetWriter(
        path, REQUESTS, compression="zstd", compression_level=1, use_dictionary=[*repeated, "session_id"]
    ) as writer:
        for start in range(0, len(rows), ROW_GROUP):
            positions = np.arange(start, min(start + ROW_GROUP, len(rows)))
            arrays = []
            for field in REQUESTS:
                values = derived.get(field.name)
                if callable(values):
                    array = values(positions)
                elif isinstance(values, np.ndarray):
                    array = pa.array(values[positions], from_pandas=True)  # NaN becomes null
                elif values is not None:
                    array = values.slice(start, positions.size)
                else:
                    array = rows.take(field.name, positions)
                array = array.cast(_plain(field.type))
                known[field.name] += len(array) - array.null_count
                arrays.append(array.dictionary_encode() if pa.types.is_dictionary(field.type) else array)
            writer.write_batch(pa.record_batch(arrays, schema=REQUESTS))
    return {name: count / len(rows) for name, count in known.items()} if len(rows) else {}


def write_nodes(path: Path, tree: NumberedTree) -> None:
    """Write prefix_nodes.parquet: a row per node, the root left out."""
    # Ids are incompressible; the other columns are nearly arithmetic sequences.
    deltas = dict.fromkeys(("node_id", "parent_id", "depth", "first_row"), "DELTA_BINARY_PACKED")
    with pq.ParquetWriter(
        path,
        PREFIX_NODES,
        compression={"hash": "none", **dict.fromkeys(deltas, "zstd")},
        compression_level=dict.fromkeys(deltas, 1),
        use_dictionary=False,
        column_encoding={"hash": "PLAIN", **deltas},
    ) as writer:
        for start in range(1, tree.parent.size, NODE_GROUP):
            part = slice(start, min(start + NODE_GROUP, tree.parent.size))
            columns = [
                np.arange(part.start, part.stop, dtype=np.uint32),
                tree.parent[part],
                tree.depth[part],
                tree.hash[part],
                tree.first_row[part],
            ]
            writer.write_batch(pa.record_batch([pa.array(column) for column in columns], schema=PREFIX_NODES))


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_
