"""Any table of requests (CSV, JSON lines, Parquet) whose fields the user names with `--map COLUMN=FIELD`.

    agentctl ingest day.csv -o day.trace --map arrival=started --map prompt_tokens=in --map output_tokens=out

FIELD is a column's name, or a dotted path into nested objects; a key that itself has dots is found too.
arrival is required. Everything else may be missing and is then unknown. Durations carry their unit
(`--map ttft_ms=...`); so do arrivals that count from the start of the log (`--map arrival_s=...`). Dates
without a zone are in that of --timezone, else in UTC. `end` gives e2e where that is not there; http_status
gives the status. hash_ids is a list, in CSV as JSON text. `--join FIELD` names the id that the logs of one
request share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from agentctl.errors import UsageError
from agentctl.formats._cells import NS_PER, decimal, json_list, text, truth, whole
from agentctl.formats._clock import Clock
from agentctl.formats._columns import Columns
from agentctl.formats._failures import status_of_http
from agentctl.formats._mapping import COUNTS, DURATIONS, OTHERS, TEXT, TIMES, Field, resolve
from agentctl.formats._tables import tables
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.schema import STATUSES

NAME = "generic"
TITLE = "any CSV, JSONL or Parquet table, with --map COLUMN=FIELD"
CARRIES = ("arrival_s", *(f"{name}_s" for name in DURATIONS), *TEXT, *COUNTS, *OTHERS)
LACKS = "Only what the table has and --map names; block ids but no prompt text."

_STATUS = {name: name for name in STATUSES} | {
    "success": "ok", "succeeded": "ok", "failure": "error", "failed": "error",
    "cancelled": "aborted", "canceled": "aborted", "timed_out": "timeout",
}  # fmt: skip
_RENAMED = {"turn_index": "turn_number", "gap": "think_s", "parent_request_id": "parent_link"}


def recognises(sample: Sample) -> bool:
    return False  # it is asked for, with --map


def read(reading: Reading) -> Iterator[Batch]:
    fields = resolve(reading.options.column_map)
    if reading.options.join:
        fields["join_id"] = Field("join_id", reading.options.join, None)
    clocks = {name: Clock(fields[name], reading) for name in TIMES if name in fields}
    seen: set[str] = set()
    for cells in tables(reading, list(fields.values())):
        columns = Columns(reading, cells.chunk, cells.lines)
        fill(columns, fields, clocks, cells.values)
        yield columns.batch()
        take_time(reading, clocks["arrival"])
        seen.update(name for name, values in cells.values.items() if any(v not in (None, "") for v in values))
    reading.warnings += [
        f"{reading.source.name}: {field.path!r} ({field.column}) is empty on every record"
        for field in fields.values()
        if field.column not in seen
    ]


def take_time(reading: Reading, clock: Clock) -> None:
    """What the arrivals of the records so far say about the file."""
    reading.time_origin = "absolute" if clock.is_absolute else "relative"


def fill(
    columns: Columns, fields: dict[str, Field], clocks: dict[str, Clock], cells: Mapping[str, Sequence[Any]]
) -> None:
    """All columns of some records from the cells of their fields."""
    times = {
        name: clock.read(columns, cells[name], required=name == "arrival") for name, clock in clocks.items()
    }
    columns.arrival(times["arrival"], fields["arrival"].path, "ns")
    if "prompt_tokens" not in fields:  # block lists are held against it
        columns.tokens("prompt_tokens", [None] * columns.n, "")
    for name, field in fields.items():
        values = cells[name]
        if name in TEXT or name == "join_id":
            columns.text(_RENAMED.get(name, name), columns.parse(text, values, field.path))
        elif name in COUNTS:
            counts = columns.parse(whole, values, field.path)
            columns.tokens(_RENAMED.get(name, name), counts, field.path, low=int(name == "prompt_tokens"))
        elif name in DURATIONS:
            durations = columns.parse(decimal, values, field.path)
            per_second = NS_PER["s"] / NS_PER[field.unit or "s"]
            columns.seconds(_RENAMED.get(name, f"{name}_s"), durations, field.path, per_second)
        elif name not in clocks:
            _SPECIAL[name](columns, values, field.path)
    if "parent_request_id" in fields:
        columns.text("link", columns.parse(text, cells["request_id"], fields["request_id"].path))
    if "end" in fields and "e2e" not in fields:
        _duration_until_end(columns, times, clocks, fields["end"].path)
    if "http_status" in fields and "status" not in fields:
        codes = columns.parse(whole, cells["http_status"], fields["http_status"].path)
        columns.put("status", [status_of(code) for code in codes])


def _duration_until_end(
    columns: Columns, times: dict[str, list[int | None]], clocks: dict[str, Clock], path: str
) -> None:
    if clocks["end"].is_absolute not in (None, clocks["arrival"].is_absolute):
        raise UsageError(f"{path!r} and the arrivals do not count from the same origin", place="--map")
    ends, arrivals = times["end"], times["arrival"]
    durations = [None if e is None or a is None else e - a for e, a in zip(ends, arrivals, strict=True)]
    columns.seconds("e2e_s", durations, path, per_second=NS_PER["s"])


def _hash_ids(columns: Columns, values: Sequence[Any], path: str) -> None:
    columns.ids([ids or b"null" for ids in columns.parse(json_list, values, path)], path)


def _status(columns: Columns, values: Sequence[Any], path: str) -> None:
    names = columns.parse(text, values, path)
    known = [None if name is None else _STATUS.get(name.strip().lower()) for name in names]
    unknown = [name is not None and status is None for name, status in zip(names, known, strict=True)]
    columns.reject(np.array(unknown, dtype=np.bool_), "unknown_status", path)
    columns.put("status", known)


def _http_status(columns: Columns, values: Sequence[Any], path: str) -> None:
    columns.tokens("http_status", columns.parse(whole, values, path), path, low=100, high=599)


def status_of(code: int | None) -> str | None:
    """What an HTTP status says of the request."""
    if code is None:
        return None
    return status_of_http(code) or "ok"


_SPECIAL: dict[str, Callable[[Columns, Sequence[Any], str], None]] = {
    "hash_ids": _hash_ids,
    "status": _status,
    "http_status": _http_status,
    "stream": lambda columns, values, path: columns.put("stream", columns.parse(truth, values, path)),
}
