"""`--join`: logs that several programs wrote about the same requests become one row a request.

Each log stands in a layer: the clients', the gateways', the routers' or the engines' (a reader's ROLE), by
format; files of one format are shards of one layer. Rows are matched by the id that they share
(matching.py), and their columns merged (merging.py). How far the clocks of two logs are apart shows in the
arrivals of what they share, and is reported; no time is shifted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agentctl.errors import InputError, UsageError
from agentctl.formats._names import shared_id
from agentctl.formats.base import reader_named
from agentctl.ingest.matching import I64, Matches, match
from agentctl.ingest.merging import ROLES, Layer, Merging
from agentctl.ingest.read import FileReport
from agentctl.ingest.rows import Rows
from agentctl.ingest.session_ids import ENOUGH_IDS, MAX_SINGLE_SHARE
from agentctl.ingest.spool import column_type

_BATCH = 1 << 16
_ZONE = 600.0  # s; no queue before an engine holds nearly every request so long, and zones differ by more
_APART = 0.005  # s; arrivals are rounded to 1 ms in some logs, and written a little late in others


@dataclass(frozen=True)
class Joined:
    """What became of the rows; `document` is dataset.json's `join`."""

    document: dict[str, Any]
    n_joined: int  # rows that were put into another one
    dropped: dict[str, int]
    warnings: list[str]


def join_files(reports: list[FileReport], key: str, keep_unmatched: bool) -> Joined:
    """Join the rows of all files; each report gets a spool with the rows that it owns, and the chains of
    files read in other processes are numbered as in the common tree.

    Raises InputError when no request is in two layers.
    """
    reports = sorted(reports, key=lambda report: report.sha256)
    in_layer = [_layer(report) for report in reports]
    layers = sorted(set(in_layer), key=lambda layer: (ROLES.index(layer.role), layer))
    if len(layers) < 2:
        raise UsageError(
            f"all files are {layers[0].format} logs, which hold different requests",
            place="--join",
            expected="logs of several programs about the same requests",
        )
    _check_times(reports)
    tables = [_read(report) for report in reports]
    table = pa.concat_tables(tables, promote_options="default")
    files = np.repeat(np.arange(len(tables)), [len(one) for one in tables])
    of_file = np.array([layers.index(layer) for layer in in_layer])
    arrival = table["arrival_ns"].to_numpy()
    matches = match(_codes(table), of_file[files], arrival, len(layers))
    shared = matches.n_layers_each > 1
    if not shared.any():
        raise InputError(
            f"no request of one log is in another by {key}",
            place="--join",
            expected="an id that two of the logs carry",
            hint="does the gateway hand its x-request-id on?",
        )
    names = _file_names(reports)
    alone = np.flatnonzero(~shared)
    document: dict[str, Any] = {
        "key": key,
        "unmatched": "keep" if keep_unmatched else "drop",
        "requests": int(shared.size if keep_unmatched else np.count_nonzero(shared)),
        "matched": int(np.count_nonzero(shared)),
        "rows": {name: len(one) for name, one in zip(names, tables, strict=True)},
        "only_in": _count_by_file(files[matches.owner[alone]], names),
        "without_key": _count_by_file(files[matches.owner[matches.key < 0]], names),
        "further_attempts": int(np.count_nonzero(matches.attempt > 0)),
        "clock_offset_s": _clock_offsets(matches, arrival, files, names),
    }
    resolution = {name: report.resolution_s for name, report in zip(names, reports, strict=True)}
    kept = Matches(*(column if keep_unmatched else column[shared] for column in matches))
    merging = Merging(table, layers, _session_layers(table, of_file[files], len(layers)), kept)
    _write(reports, files[kept.owner], merging)
    document["conflicts"] = {name: count for name, count in merging.conflicts.items() if count}
    return Joined(
        document,
        int(np.count_nonzero(matches.rows >= 0)) - shared.size,
        {} if keep_unmatched or not alone.size else {"unmatched": int(alone.size)},
        _clock_warnings(document["clock_offset_s"], resolution),
    )


def _layer(report: FileReport) -> Layer:
    return Layer(getattr(reader_named(report.format), "ROLE", "client"), report.format)


def _check_times(reports: list[FileReport]) -> None:
    for report in reports:
        if report.n_rows and report.time_origin != "absolute":
            raise InputError(
                f"has {report.time_origin} times: its requests cannot be put beside those of other logs",
                place=report.name,
                expected="times of day for --join",
            )


def _read(report: FileReport) -> pa.Table:
    table = pa.ipc.open_file(pa.memory_map(str(report.spool))).read_all()
    for name, numbers in (report.node_numbers or {}).items():
        if name in table.schema.names:
            nodes = pc.fill_null(table[name].cast(pa.int64()), -1).to_numpy()
            common = np.where(nodes < 0, -1, numbers[nodes]).astype(np.int64)
            table = _put(table, name, pa.array(common, mask=common < 0).cast(column_type(name)))
    return table


def _put(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


def _codes(table: pa.Table) -> I64:
    """The shared ids as numbers, -1 for none."""
    if "join_id" not in table.schema.names:
        return np.full(table.num_rows, -1, dtype=np.int64)
    indices = table["join_id"].combine_chunks().dictionary_encode().indices
    return pc.fill_null(indices, -1).to_numpy().astype(np.int64)


def _file_names(reports: list[FileReport]) -> list[str]:
    given = Counter(report.name for report in reports)
    return [
        report.name if given[report.name] == 1 else f"{report.name}@{report.sha256[:8]}" for report in reports
    ]


def _count_by_file(files: I64, names: list[str]) -> dict[str, int]:
    counts = np.bincount(files, minlength=len(names))
    return {name: int(count) for name, count in zip(names, counts, strict=True) if count}


def _clock_offsets(matches: Matches, arrival: I64, files: I64, names: list[str]) -> list[dict[str, Any]]:
    """For each two files that share requests, how much later the inner one says that they arrived."""
    found = []
    for outer in range(matches.rows.shape[1]):
        for inner in range(outer + 1, matches.rows.shape[1]):
            a, b = matches.rows[:, outer], matches.rows[:, inner]
            both = (a >= 0) & (b >= 0)
            a, b = a[both], b[both]
            pair = files[a] * len(names) + files[b]
            for code in np.unique(pair):
                late = (arrival[b] - arrival[a])[pair == code] / 1e9
                low, middle, high = np.percentile(late, (5, 50, 95))
                found.append(
                    {
                        "outer": names[code // len(names)],
                        "inner": names[code % len(names)],
                        "requests": int(late.size),
                        "before": int(np.count_nonzero(late < 0)),
                        "median": round(float(middle), 6),
                        "p5": round(float(low), 6),
                        "p95": round(float(high), 6),
                    }
                )
    return found


def _clock_warnings(offsets: list[dict[str, Any]], resolution: dict[str, float]) -> list[str]:
    """Pairs whose clocks differ by more than the times of the inner log are cut by, or by a zone."""
    early = [
        f"{one['before']:,} of {one['requests']:,} requests arrive in {one['inner']} before they do in "
        f"{one['outer']}, by {_seconds(-one['median'])} in the median: the clocks differ; no time is shifted"
        for one in offsets
        if one["median"] < -_APART - resolution[one["inner"]]
    ]
    late = [
        f"{one['requests']:,} requests arrive in {one['inner']} {_seconds(one['median'])} after they do in "
        f"{one['outer']}, in the median: clocks or zones differ (--timezone, --year); no time is shifted"
        for one in offsets
        if one["p5"] > _ZONE
    ]
    return early + late


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"


def _session_layers(table: pa.Table, layer: I64, n_layers: int) -> list[int]:
    """Layers by whose session ids count first."""
    doubtful = [False] * n_layers
    for k in range(n_layers if "session_id" in table.schema.names else 0):
        ids = table["session_id"].filter(pa.array(layer == k)).drop_null()
        sizes = pc.value_counts(ids).field("counts").to_numpy()
        doubtful[k] = sizes.size >= ENOUGH_IDS and float((sizes == 1).mean()) > MAX_SINGLE_SHARE
    return sorted(range(n_layers), key=lambda k: (doubtful[k], k))


def _write(reports: list[FileReport], owner: I64, merging: Merging) -> None:
    """New spools in place of the old ones. owner: file of each request"""
    for number, report in enumerate(reports):
        with pa.ipc.new_file(str(report.spool.with_suffix(".joined")), merging.schema) as writer:
            for some in _slices(np.flatnonzero(owner == number)):
                writer.write_batch(merging.batch(some))
        if not (owner == number).any():
            report.resolution_s = 0.0  # no arrival in the dataset is of this log
    for report in reports:  # the old ones stay mapped until the last of the new ones is written
        report.spool.with_suffix(".joined").replace(report.spool)
        report.node_numbers = None
    givers = [report for report in reports if report.has_ids or report.has_texts]
    for report in reports:
        if givers and report not in givers:  # its requests have the chains of another file
            report.hash_kind, report.hash_scope = givers[0].hash_kind, givers[0].hash_scope


def _slices(positions: I64) -> Iterator[I64]:
    yield from (positions[start : start + _BATCH] for start in range(0, positions.size, _BATCH))


def counted_twice(rows: Rows) -> list[str]:
    """A warning when logs of several formats tell of the same requests and nobody asked for a join."""
    code, names = rows.codes("join_id")
    formats = sorted({report.format for report in rows.reports})
    if not names or len(formats) < 2:
        return []
    number: dict[str | None, int] = {}
    spelled = np.array([number.setdefault(shared_id(name), len(number)) for name in names])
    everyone = np.flatnonzero(code >= 0)
    of_file = np.array([formats.index(report.format) for report in rows.reports])
    pairs = np.unique(spelled[code[everyone]] * len(formats) + of_file[rows.file_numbers(everyone)])
    n = int(np.count_nonzero(np.bincount(pairs // len(formats)) > 1))
    if not n:
        return []
    return [
        f"{n:,} requests are in logs of several formats and count once in each: --join x-request-id makes "
        "one row of them"
    ]
