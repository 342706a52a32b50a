"""`--join`: logs that several programs wrote about the same requests become one row a request.

Each log stands in a layer: the clients', the gateways', the routers' or the engines' (a reader's ROLE), by
format; files of one format are shards of one layer. Rows are matched by the id that they share
(matching.py). Per column an order of the layers decides, and the first that knows a value gives it:

    arrival, e2e, status, session, model and the rest   from the outside in: what the caller saw
    ttft, queue, prefill, decode                        the engine, then outwards
    token counts                                        the gateway, the engine, the client, the router
    instance                                            the router, the engine, the gateway, the client
    block chains, links                                 whole, from the outermost layer that has them

Values that differ all the same are counted as conflicts. Times are not compared: layers see different ends
of one request. How far the clocks of two logs are apart shows in the arrivals of what they share, and is
reported; no time is shifted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from agentctl.errors import InputError, UsageError
from agentctl.formats.base import reader_named
from agentctl.ingest.matching import I64, Matches, match
from agentctl.ingest.read import FileReport, column_type

ROLES = ("client", "gateway", "router", "engine")  # from the outside in

_TIMINGS = ("ttft_s", "queue_s", "prefill_s", "decode_s")
_TOKENS = (
    "prompt_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "cached_external_tokens",
    "reasoning_tokens", "max_tokens",
)  # fmt: skip
_ORDER = {
    **dict.fromkeys(_TIMINGS, ("engine", "gateway", "router", "client")),
    **dict.fromkeys(_TOKENS, ("gateway", "engine", "client", "router")),
    "instance": ("router", "engine", "gateway", "client"),
}
# Columns that only mean something together: of one layer, the first that has any of them.
_BUNDLES = (
    ("tip_node", "n_blocks", "block_tokens", "message_node", "unit_node"),
    ("link", "parent_link", "previous_link", "spawn_link"),
    ("session_id", "agent_line", "parent_agent_line", "agent_path"),
)  # fmt: skip
_COMPARED = (
    "prompt_tokens", "output_tokens", "cached_tokens", "model", "session_id", "tenant", "status",
    "finish_reason",
)  # fmt: skip
_OWN = ("source_row", "arrival_ns", "join_id")  # of the outermost row, always

_BATCH = 1 << 16
_APART = 0.005  # s; arrivals are rounded to 1 ms in some logs, and written a little late in others


@dataclass(frozen=True)
class Joined:
    """What became of the rows; `document` is dataset.json's `join`."""

    document: dict[str, Any]
    n_joined: int  # rows that were put into another one
    dropped: dict[str, int]
    warnings: list[str]


class Layer(NamedTuple):
    role: str
    format: str


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
    kept = Matches(*(column if keep_unmatched else column[shared] for column in matches))
    document["conflicts"] = _write(reports, tables, table, files, layers, kept)
    return Joined(
        document,
        int(np.count_nonzero(matches.rows >= 0)) - shared.size,
        {} if keep_unmatched or not alone.size else {"unmatched": int(alone.size)},
        _clock_warnings(document["clock_offset_s"]),
    )


def _layer(report: FileReport) -> Layer:
    return Layer(getattr(reader_named(report.format), "ROLE", "client"), report.format)


def _check_times(reports: list[FileReport]) -> None:
    for report in reports:
        if report.time_origin != "absolute":
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


# vLLM and its like put the kind of call before the caller's id; UUIDs come with and without dashes, and some
# engines write something of their own behind them.
_KIND = r"^(?:chatcmpl|cmpl|resp)[-_]"
_UUID = r"^([0-9a-fA-F]{8})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{12})(?:-.*)?$"


def _codes(table: pa.Table) -> I64:
    """The shared ids as numbers, -1 for none."""
    if "join_id" not in table.schema.names:
        return np.full(table.num_rows, -1, dtype=np.int64)
    bare = pc.replace_substring_regex(table["join_id"], _KIND, "")
    plain = pc.replace_substring_regex(bare, _UUID, r"\1\2\3\4\5").combine_chunks()
    plain = pc.if_else(pc.equal(plain, ""), pa.scalar(None, pa.string()), plain)
    return pc.fill_null(plain.dictionary_encode().indices, -1).to_numpy().astype(np.int64)


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


def _clock_warnings(offsets: list[dict[str, Any]]) -> list[str]:
    return [
        f"{one['before']:,} of {one['requests']:,} requests arrive in {one['inner']} before they do in "
        f"{one['outer']}, by {-one['median']:.3g} s in the median: the clocks differ; no time is shifted"
        for one in offsets
        if one["median"] < -_APART
    ]


def _write(
    reports: list[FileReport],
    tables: list[pa.Table],
    table: pa.Table,
    files: I64,
    layers: list[Layer],
    matches: Matches,
) -> dict[str, int]:
    """New spools; returns how many requests have different values in a column."""
    merging = _Merging(table, layers, matches, _unique_ids(table, matches))
    owner = files[matches.owner]
    for number, report in enumerate(reports):
        path = report.spool.with_suffix(".joined")
        with pa.ipc.new_file(str(path), merging.schema) as writer:
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
    return {name: count for name, count in merging.conflicts.items() if count}


def _slices(positions: I64) -> Iterator[I64]:
    yield from (positions[start : start + _BATCH] for start in range(0, positions.size, _BATCH))


def _unique_ids(table: pa.Table, matches: Matches) -> dict[int, str]:
    """What to put behind the ids of further attempts (request -> #k); a record that is in a log twice is
    left for --duplicates."""
    if "request_id" not in table.schema.names:
        return {}
    later = np.flatnonzero(matches.attempt > 0)
    again = np.isin(matches.key, matches.key[later]) & (matches.key >= 0)
    requests = np.flatnonzero(again)
    owners = pa.array(matches.owner[requests])
    ids = table["request_id"].take(owners).to_pylist()
    arrivals = table["arrival_ns"].take(owners).to_pylist()
    seen: dict[str, set[int]] = {}
    suffixes: dict[int, str] = {}
    by_attempt = sorted(range(requests.size), key=lambda k: int(matches.attempt[requests[k]]))
    for k in by_attempt:
        if ids[k] is None:
            continue
        times = seen.setdefault(ids[k], set())
        if times and arrivals[k] not in times:
            suffixes[int(requests[k])] = f"#{int(matches.attempt[requests[k]]) + 1}"
        times.add(arrivals[k])
    return suffixes


class _Merging:
    """Makes the rows of requests from those of their layers, and counts where these differ."""

    def __init__(
        self, table: pa.Table, layers: list[Layer], matches: Matches, suffixes: dict[int, str]
    ) -> None:
        self._table, self._layers, self._suffixes = table, layers, suffixes
        self._rows, self._owner = matches.rows, matches.owner
        self.schema = table.schema
        self.conflicts: Counter[str] = Counter()

    def batch(self, requests: I64) -> pa.RecordBatch:
        rows = self._rows[requests]
        columns: dict[str, pa.Array] = {}
        for bundle in _BUNDLES:
            columns |= self._bundle(rows, [name for name in bundle if name in self.schema.names])
        owner = self._owner[requests]
        for name in self.schema.names:
            if name in _OWN:
                columns[name] = self._take(name, owner)
            elif name not in columns:
                columns[name] = self._first(name, rows)
        if "request_id" in columns and self._suffixes:
            suffixes = pa.array([self._suffixes.get(request, "") for request in requests.tolist()])
            columns["request_id"] = pc.binary_join_element_wise(columns["request_id"], suffixes, "")
        for name in _COMPARED:
            if name in columns:
                self.conflicts[name] += int(np.count_nonzero(self._differs(name, rows)))
        return pa.record_batch([columns[name] for name in self.schema.names], schema=self.schema)

    def _order(self, name: str) -> list[int]:
        """Layers by who decides about a column."""
        roles = _ORDER.get(name, ROLES)
        return sorted(range(len(self._layers)), key=lambda k: (roles.index(self._layers[k].role), k))

    def _first(self, name: str, rows: I64) -> pa.Array:
        return pc.coalesce(*(self._take(name, rows[:, layer]) for layer in self._order(name)))

    def _bundle(self, rows: I64, names: list[str]) -> dict[str, pa.Array]:
        """Columns of the first layer, from the outside in, that knows one of them."""
        if not names:
            return {}
        chosen = np.full(len(rows), -1, dtype=np.int64)
        for layer in range(rows.shape[1]):
            known = np.zeros(len(rows), dtype=np.bool_)
            for name in names:
                known |= self._take(name, rows[:, layer]).is_valid().to_numpy(zero_copy_only=False)
            chosen = np.where((chosen < 0) & known, rows[:, layer], chosen)
        return {name: self._take(name, chosen) for name in names}

    def _differs(self, name: str, rows: I64) -> NDArray[np.bool_]:
        """Two layers know the value, and it is not the same."""
        values = [_comparable(name, self._take(name, rows[:, layer])) for layer in range(rows.shape[1])]
        first = pc.coalesce(*values)
        differs = np.zeros(len(rows), dtype=np.bool_)
        for value in values:
            unequal = pc.fill_null(pc.not_equal(value, first), False)
            differs |= unequal.to_numpy(zero_copy_only=False)
        return differs

    def _take(self, name: str, rows: I64) -> pa.Array:
        taken = self._table[name].take(pa.array(rows, mask=rows < 0))
        return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken


def _comparable(name: str, values: pa.Array) -> pa.Array:
    """Models without the provider or organisation that some logs put before them."""
    return pc.replace_substring_regex(values, "^.*/", "") if name == "model" else values
