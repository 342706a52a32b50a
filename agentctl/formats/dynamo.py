"""Dynamo request trace (DYN_REQUEST_TRACE=1): one event a line, bare or wrapped as {timestamp, event}.

    {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 1794474012518,
     "agent_context": {"session_id": "s", "parent_session_id": "p"},
     "request": {"request_id": "...", "x_request_id": "...", "model": "m", "input_tokens": 1281,
       "output_tokens": 26, "cached_tokens": 0, "request_received_ms": 1794474012043, "ttft_ms": 191.073,
       "total_time_ms": 474.941, "prefill_wait_time_ms": 4.2, "prefill_time_ms": 186.8,
       "worker": {"prefill_worker_id": 7, "prefill_dp_rank": 0, "decode_worker_id": 7},
       "finish_reason_metadata": {"finish_reason": "tool_calls", "tool_calls": [{...}]},
       "replay": {"trace_block_size": 64, "input_length": 1281,
         "input_sequence_hashes": [17308471829186947627, ...]}}}

Source: ai-dynamo/dynamo 1.6, lib/llm/src/request_trace/types.rs; its predecessor dynamo.agent.trace.v1 reads
the same. Files are PREFIX.NNNNNN.jsonl.gz; give all of them. Times in ms, request_received_ms since 1970;
hashes one per trace_block_size tokens, the last block usually partial. `instance` is the worker that did the
prefill (its cache met the prompt), with .RANK behind it under data parallelism; else the one that decoded.
Identity: session_id is one line of work, parent_session_id the line that started it. Before 1.3 these were
trajectory_id / parent_trajectory_id inside the run session_id, before that program_id / parent_program_id
inside workflow_id.
Pitfalls: hashes are unsigned 64-bit numbers, about half of them above 2^63; the sink may drop rows; requests
with n > 1, images or prompt embeddings have none; requests that failed have none either. Rows without session
are compact: no model, latency to 1 ms, and an aborted request looks like a good one. tool_* events are left
out (finish reasons already tell tool from user gaps), request_payload rows hold text and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from agentctl.formats._columns import Columns
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import LineDecoder, Lines
from agentctl.ingest.source import Chunk

NAME = "dynamo"
TITLE = "Dynamo request trace JSONL (schema dynamo.request.trace.v1: request_end, tool_* events)"
CARRIES = (
    "request_id", "arrival_s", "ttft_s", "e2e_s", "queue_s", "prefill_s", "prompt_tokens", "output_tokens",
    "cached_tokens", "hash_ids", "block_tokens", "session_id", "agent_path", "model", "instance", "status",
    "finish_reason", "n_tool_calls_out",
)  # fmt: skip
ROLE = "router"
LACKS = "No failed requests, tenants or prompt text; rows without a session have no model and no abort."

_TOOL_EVENTS = ("tool_start", "tool_end", "tool_error")
_MAX_BLOCK_TOKENS = 1 << 20

Name = str | int | None


class Context(msgspec.Struct):
    session_id: Name = None
    parent_session_id: Name = None
    trajectory_id: Name = None
    parent_trajectory_id: Name = None
    workflow_id: Name = None
    program_id: Name = None
    parent_program_id: Name = None


class Worker(msgspec.Struct):
    prefill_worker_id: Name = None
    prefill_dp_rank: int | None = None
    decode_worker_id: Name = None
    decode_dp_rank: int | None = None


class Finish(msgspec.Struct):
    finish_reason: str | None = None
    backend_finish_reason: str | None = None
    tool_calls: list[msgspec.Raw] = []


class Replay(msgspec.Struct):
    trace_block_size: int
    input_length: int
    input_sequence_hashes: msgspec.Raw


class Request(msgspec.Struct):
    request_id: str
    x_request_id: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    request_received_ms: int | None = None
    prefill_wait_time_ms: float | None = None
    prefill_time_ms: float | None = None
    ttft_ms: float | None = None
    total_time_ms: float | None = None
    worker: Worker | None = None
    finish_reason_metadata: Finish | None = None
    replay: Replay | None = None


class Event(msgspec.Struct):
    event_type: str | None = None
    event_time_unix_ms: int | None = None
    agent_context: Context | None = None
    request: Request | None = None


class Row(Event):
    event: Event | None = None


class Ended(NamedTuple):
    """A request and where in its line it stands."""

    event: Event
    request: Request
    line: int
    path: str


def recognises(sample: Sample) -> bool:
    return sample.mostly({"event_type", "event_time_unix_ms", "schema"}.issubset) or (
        b"dynamo." in sample.text and sample.mostly({"timestamp", "event"}.issubset)
    )


def read(reading: Reading) -> Iterator[Batch]:
    decoder = LineDecoder(Row, reading.quarantine)
    reading.time_origin, reading.resolution_s = "absolute", 1e-3
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        if ended := _ended(lines, reading, chunk):
            yield _batch(ended, reading, chunk)


def _ended(lines: Lines, reading: Reading, chunk: Chunk) -> list[Ended]:
    """The requests; other events are counted, unknown ones set aside."""
    found = []
    for row, line in zip(lines.rows, lines.lines.tolist(), strict=True):
        event, path = (row, "$") if row.event is None else (row.event, "$.event")
        if event.event_type in _TOOL_EVENTS:
            reading.drop("tool_event")
        elif event.event_type == "request_payload":
            reading.drop("request_payload")
        elif event.event_type != "request_end":
            reading.reject(chunk, line, "unknown_event", f"{path}.event_type")
        elif event.request is None:
            reading.reject(chunk, line, "missing_field", f"{path}.request")
        else:
            found.append(Ended(event, event.request, line, f"{path}.request"))
    return found


def _batch(ended: list[Ended], reading: Reading, chunk: Chunk) -> Batch:
    lines = np.array([row.line for row in ended], dtype=np.int64)
    columns = Columns(reading, chunk, lines, within=[row.path for row in ended])
    requests = [row.request for row in ended]
    columns.text("request_id", [request.request_id for request in requests])
    columns.text("join_id", [request.x_request_id for request in requests])
    columns.text("model", [request.model for request in requests])
    columns.text("instance", [_instance(request.worker) for request in requests])
    _times(columns, ended)
    columns.tokens("output_tokens", [request.output_tokens for request in requests], "$.output_tokens")
    columns.tokens("cached_tokens", [request.cached_tokens for request in requests], "$.cached_tokens")
    _prompts(columns, requests)
    _finishes(columns, [request.finish_reason_metadata for request in requests])
    identities = [_identity(row.event.agent_context or Context()) for row in ended]
    names = ("session_id", "agent_line", "parent_agent_line")
    for name, values in zip(names, zip(*identities, strict=True), strict=True):
        columns.text(name, values)
    return columns.batch()


def _times(columns: Columns, ended: list[Ended]) -> None:
    arrivals: list[int | float | None] = []
    durations: list[float | None] = []
    for event, request, _, _ in ended:
        received, total, end = request.request_received_ms, request.total_time_ms, event.event_time_unix_ms
        if received is not None and total is None and end is not None:
            total = end - received
        elif received is None and total is not None and end is not None:
            received = int(end - total)
        arrivals.append(received)
        durations.append(total)
    columns.arrival(arrivals, "$.request_received_ms", "ms")
    columns.seconds("e2e_s", durations, "$.total_time_ms", per_second=1e3)
    for name, field in (
        ("ttft_s", "ttft_ms"),
        ("queue_s", "prefill_wait_time_ms"),
        ("prefill_s", "prefill_time_ms"),
    ):
        columns.seconds(name, [getattr(row.request, field) for row in ended], f"$.{field}", per_second=1e3)


def _prompts(columns: Columns, requests: list[Request]) -> None:
    """Lengths and block ids; the two lengths must agree, for the blocks are those of one of them."""
    replays = [request.replay for request in requests]
    lengths = [replay and replay.input_length for replay in replays]
    reported = [request.input_tokens for request in requests]
    differ = [None not in (a, b) and a != b for a, b in zip(reported, lengths, strict=True)]
    columns.reject(np.array(differ), "total_differs", "$.replay.input_length")
    prompt = [length if known is None else known for known, length in zip(reported, lengths, strict=True)]
    columns.tokens("prompt_tokens", prompt, "$.input_tokens", low=1)
    if any(replays):
        sizes = [replay and replay.trace_block_size for replay in replays]
        columns.tokens("block_tokens", sizes, "$.replay.trace_block_size", low=1, high=_MAX_BLOCK_TOKENS)
    hashes = [replay.input_sequence_hashes if replay else b"null" for replay in replays]
    columns.ids(hashes, "$.replay.input_sequence_hashes")


def _finishes(columns: Columns, finishes: list[Finish | None]) -> None:
    columns.text("finish_reason", [finish and finish.finish_reason for finish in finishes])
    columns.put("status", [finish and _status(finish) for finish in finishes])
    calls = [None if finish is None else len(finish.tool_calls) for finish in finishes]
    columns.tokens("n_tool_calls_out", calls, "$.finish_reason_metadata.tool_calls")


def _status(finish: Finish) -> str | None:
    reasons = {finish.finish_reason, finish.backend_finish_reason} - {None}
    if "cancelled" in reasons:
        return "aborted"
    if any(str(reason).startswith("error") for reason in reasons):
        return "error"
    return "ok" if reasons else None


def _instance(worker: Worker | None) -> str | None:
    if worker is None:
        return None
    name, rank = worker.prefill_worker_id, worker.prefill_dp_rank
    if name is None:
        name, rank = worker.decode_worker_id, worker.decode_dp_rank
    return None if name is None else f"{name}" if rank is None else f"{name}.{rank}"


def _identity(context: Context) -> tuple[Name, Name, Name]:
    """(run or None, line of work, the line that started it) under the names of any version."""
    if context.program_id is not None:
        return context.workflow_id, context.program_id, context.parent_program_id
    if context.trajectory_id is not None:
        return context.session_id, context.trajectory_id, context.parent_trajectory_id
    return None, context.session_id, context.parent_session_id
