"""A trace to share: the shape of the traffic, without anything that names anybody.

export_trace(open_trace(Path("day.trace")), Path("shared.jsonl.gz"))

One request a line in order of arrival. Requests, sessions and blocks are renumbered in the order of first use
(as the Bailian traces do), times count from the first request and are cut to a resolution. Names, tenants,
models, engines, statuses, durations and the log's own hashes are not written at all: a field is in the file
because a line below puts it there.

Two layouts, those of agentctl/formats/bailian.py (linked sessions) and agentctl/formats/mooncake.py. Read in
again they give the same requests, sessions, turns and blocks, and so the same reuse. Neither can say that a
request failed, so requests that no engine took in are left out: they do not count for reuse, and a reader of
the file would count them.

Still to be seen in the file: lengths, which prompts begin alike, times to the resolution, sizes of sessions.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from agentctl.analyzers.columns import numbered
from agentctl.analyzers.counted import REACHED_AN_ENGINE
from agentctl.errors import InputError, UsageError
from agentctl.export_text import describe
from agentctl.files import atomic_file
from agentctl.ingest.parents import previous_with_same
from agentctl.present import Section
from agentctl.trace import Trace

EXPORT_SCHEMA = "agentctl/export/1"
COLUMNS = [
    *("request_id", "session_id", "parent_request_id", "agent_path", "turn_index", "attempt"),
    *("arrival_s", "prompt_tokens", "output_tokens", "tip_node", "status"),
]
BATCH = 1024  # rows whose chains are in memory at once
NS = 1_000_000_000
MIN_RESOLUTION_S, MAX_RESOLUTION_S = 0.001, 86_400.0

Layout = Literal["bailian", "mooncake"]
I64 = NDArray[np.int64]


@dataclass(frozen=True)
class ExportReport:
    """What was written, and what it does not hold."""

    document: dict[str, Any]
    sections: tuple[Section, ...]


class Rows(NamedTuple):
    """The requests to write, n in order of arrival."""

    time_ns: I64  # from the first one, cut to the resolution
    prompt: I64
    output: list[int | None]
    session: I64  # from 1 in order of first use
    turn: I64  # from 0
    link: I64  # the earlier row of the session that it continues, -1 for its first
    tip: I64  # -1 unknown
    n_linked: int  # rows whose link only keeps the session together


def export_trace(
    trace: Trace,
    path: Path,
    *,
    layout: Layout | None = None,
    time_resolution_s: float = 1.0,
    force: bool = False,
) -> ExportReport:
    """Write the anonymised trace to `path` (.gz and .zst are compressed); the same bytes for the same trace.

    layout  None: bailian where a session has several requests, else mooncake
    """
    if not MIN_RESOLUTION_S <= time_resolution_s <= MAX_RESOLUTION_S:
        raise UsageError(
            f"is {time_resolution_s}", place="--time-resolution", expected="0.001 to 86400 seconds"
        )
    table = trace.requests(COLUMNS)
    kept, left_out = _kept(table)
    if not kept.height:
        raise InputError("has no request to share", place=trace.name, expected="requests with prompt lengths")
    rows = _rows(kept, round(time_resolution_s * NS))
    sizes = np.bincount(rows.session)[1:]
    has_sessions = bool((sizes > 1).any())
    layout = layout or ("bailian" if has_sessions else "mooncake")
    number = np.zeros(trace.tree.parent.size, dtype=np.int64)  # of each node in the file, 0: not used yet
    with atomic_file(path, force=force) as temporary:
        with _opened(temporary, path.suffix) as out:
            for lines in _lines(rows, trace, layout, has_sessions, number):
                out.write(lines)
        sha256, n_bytes = _identity(temporary)
    document = {
        "schema": EXPORT_SCHEMA,
        "format": layout,
        "requests": kept.height,
        "left_out": left_out,
        "sessions": int(sizes.size) if has_sessions or layout == "bailian" else None,
        "multi_turn": int(np.count_nonzero(sizes > 1)),
        "blocks": int(number.max(initial=0)),
        "block_tokens": trace.block_tokens,
        "time_resolution_s": time_resolution_s,
        "distinct_times": {
            "before": kept["arrival_s"].n_unique(),
            "after": int(np.unique(rows.time_ns).size),
        },
        "unknown_blocks": int(np.count_nonzero(rows.tip < 0)),
        "unknown_output": kept["output_tokens"].null_count(),
        "sub_agent_requests": kept["agent_path"].count(),
        "retries": int((kept["attempt"] > 0).sum()),
        "linked_to_keep_the_session": rows.n_linked if layout == "bailian" else 0,
        "hash_scope": (trace.meta.get("hash") or {}).get("scope"),
        "sha256": sha256,
        "bytes": n_bytes,
    }
    return ExportReport(document, describe(document))


def _kept(table: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    """Rows that the file can hold, and how many it cannot, by reason."""
    status = pl.col("status").cast(pl.String)
    reason = (
        pl.when(~status.is_in(REACHED_AN_ENGINE)).then(pl.lit("status ") + status)
        .when(pl.col("prompt_tokens").is_null()).then(pl.lit("unknown prompt_tokens"))
        .when(pl.col("prompt_tokens") < 1).then(pl.lit("empty prompt"))
    )  # fmt: skip
    table = table.with_columns(reason=reason)
    reasons = table["reason"].drop_nulls().value_counts().sort("reason")
    return table.filter(pl.col("reason").is_null()), dict(reasons.iter_rows())


def _rows(kept: pl.DataFrame, resolution_ns: int) -> Rows:
    arrival_ns = np.rint(kept["arrival_s"].to_numpy() * NS).astype(np.int64)
    since_first = arrival_ns - arrival_ns[0]
    session = numbered(kept["session_id"])
    link, n_linked = _links(kept, session)
    return Rows(
        time_ns=since_first // resolution_ns * resolution_ns,
        prompt=kept["prompt_tokens"].to_numpy(),
        output=kept["output_tokens"].to_list(),
        session=session + 1,
        turn=kept["turn_index"].cast(pl.Int64).to_numpy(),
        link=link,
        tip=kept["tip_node"].cast(pl.Int64).fill_null(-1).to_numpy(),
        n_linked=n_linked,
    )


def _links(kept: pl.DataFrame, session: I64) -> tuple[I64, int]:
    """The row that each one continues: its prefix parent, else the row before it in its agent line, else in
    its session, so that the links alone hold a session together; and how many were not a prefix parent."""
    places = kept.select(id="request_id", row=pl.int_range(pl.len(), dtype=pl.Int64))
    parent = (
        kept.select(id="parent_request_id")
        .join(places, on="id", how="left", maintain_order="left")["row"]
        .fill_null(-1)
        .to_numpy()
    )
    parent = np.where((parent >= 0) & (session[parent] == session), parent, -1)
    line = previous_with_same(session, numbered(kept["agent_path"].fill_null("")))
    before = np.where(line >= 0, line, previous_with_same(session))
    return np.where(parent >= 0, parent, before), int(np.count_nonzero((parent < 0) & (before >= 0)))


def _lines(rows: Rows, trace: Trace, layout: Layout, has_sessions: bool, number: I64) -> Iterator[bytes]:
    """JSON lines, some rows at a time; `number` is modified in place."""
    encode = msgspec.json.Encoder().encode_lines
    times = _in_unit(rows.time_ns, NS if layout == "bailian" else 1_000_000)
    for start in range(0, rows.tip.size, BATCH):
        part = range(start, min(start + BATCH, rows.tip.size))
        tips = rows.tip[start : part.stop]
        starts = np.append(0, np.cumsum(np.where(tips < 0, 0, trace.tree.depth[tips])))
        ids = np.empty(starts[-1], dtype=np.int64)
        _chains(tips, starts, trace.tree.parent, number, ids)
        yield encode(
            [
                _line(rows, row, times[row], layout, has_sessions)
                | ({"hash_ids": ids[starts[i] : starts[i + 1]].tolist()} if tips[i] >= 0 else {})
                for i, row in enumerate(part)
            ]
        )


def _line(rows: Rows, row: int, time: float, layout: Layout, has_sessions: bool) -> dict[str, Any]:
    """Everything about one request but its blocks."""
    lengths = {"input_length": int(rows.prompt[row]), "output_length": rows.output[row]}
    if layout == "bailian":
        link = int(rows.link[row]) + 1 or -1  # chats count from 1; -1 is the root of a conversation
        names = {"chat_id": row + 1, "parent_chat_id": link}
        return {**names, "timestamp": time, **lengths, "turn": int(rows.turn[row]) + 1}
    session = {"session_id": int(rows.session[row]), "turn": int(rows.turn[row])} if has_sessions else {}
    return {"timestamp": time, **lengths, **session}


def _in_unit(time_ns: I64, unit_ns: int) -> list[int] | list[float]:
    """Times as JSON numbers: whole ones where all are."""
    return (time_ns // unit_ns if not (time_ns % unit_ns).any() else time_ns / unit_ns).tolist()


@njit(cache=True, nogil=True)
def _chains(tips, starts, parent, number, ids):
    """Fill `ids` with the numbers of each chain's nodes from the root; new nodes get the next number."""
    following = number.max() + 1
    for i in range(tips.size):
        node = tips[i]
        for at in range(starts[i + 1] - 1, starts[i] - 1, -1):
            ids[at] = node
            node = parent[node]
        for at in range(starts[i], starts[i + 1]):
            node = ids[at]
            if number[node] == 0:
                number[node] = following
                following += 1
            ids[at] = number[node]


@contextmanager
def _opened(path: Path, suffix: str) -> Iterator[IO[bytes]]:
    """The file, compressed as the final name says; no time and no name go into an archive."""
    with path.open("wb") as file:
        if suffix == ".gz":
            with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
                yield packed  # type: ignore[misc]
        elif suffix == ".zst":
            with pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), "zstd") as packed:
                yield packed
        else:
            yield file


def _identity(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size
