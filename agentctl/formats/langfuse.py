"""Langfuse export: observations as JSON lines, or traces with their observations.

    {"id": "698d51a19d8a121c", "traceId": "...", "sessionId": "s", "userId": "u", "type": "GENERATION",
     "level": "DEFAULT", "statusMessage": null, "startTime": "2026-11-12T09:00:12.043Z", "endTime": "...",
     "completionStartTime": "...", "model": "...", "modelParameters": {"max_tokens": 500},
     "usageDetails": {"input": 33, "input_cached_tokens": 1248, "output": 26, "total": 1307},
     "input": "{\\"messages\\": [...]}", "output": "{\\"role\\": \\"assistant\\", ...}"}

    {"trace": {"id": "...", "sessionId": "s", "userId": "u"}, "observations": [{...}, ...]}

Source: langfuse/langfuse, packages/shared observation types and the trace export (files of 2025-08 and
2025-12 in its tests); the public API's trace, an object with `observations`, is read, too. GENERATIONs are
requests; the session and user of the trace are theirs. Dates in UTC, to the millisecond.
Pitfalls:
- `latency` and `timeToFirstToken` are s in some exports and ms in others (0.848; 2362): dates are used.
- usageDetails are disjoint buckets by the format, and many SDKs send an input that holds the cached part, of
  which Langfuse makes a total that counts it twice (#12306, #10592): see _usage. Names of buckets differ.
- `input` and `output` are JSON, JSON in a string (twice encoded), or text.
- LangChain's callback appends the tools to the messages, and with a client's wrapper below it a call is
  reported twice, as a generation inside a generation: the inner one counts.
- A failed generation has level ERROR and no usage; no HTTP status but in free text, read only where it leads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from agentctl.formats._columns import Columns
from agentctl.formats._dates import between, dates
from agentctl.formats._failures import http_status_in, status_of_http
from agentctl.formats._langfuse_usage import buckets_of, put_tokens
from agentctl.formats._messages import Prompts, answer_of, without_tool_messages
from agentctl.formats._parameters import parameters
from agentctl.formats._usage import InputCounts
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import Fault, LineDecoder, ValueDecoder
from agentctl.ingest.source import Chunk

NAME = "langfuse"
TITLE = "Langfuse export, observations or traces with observations (JSON lines, or --json-document)"
CARRIES = (
    "request_id", "arrival_s", "ttft_s", "e2e_s", "prompt_tokens", "output_tokens", "cached_tokens",
    "cache_write_tokens", "reasoning_tokens", "max_tokens", "status", "http_status", "finish_reason",
    "stream", "model", "tenant", "session_id", "n_tool_calls_out", "prompts",
)  # fmt: skip
LACKS = (
    "No queueing times, no placement, no tokens of failed requests; sessions only where the app sets them."
)
ONE_RECORD_A_LINE = False

_NULL = msgspec.Raw(b"null")


class Observation(msgspec.Struct):
    id: str | None = None
    parentObservationId: str | None = None
    type: str | None = None
    level: str | None = None
    statusMessage: msgspec.Raw = _NULL
    startTime: str | None = None
    endTime: str | None = None
    completionStartTime: str | None = None
    model: str | None = None
    modelParameters: msgspec.Raw = _NULL
    usageDetails: dict[str, int | float | None] | None = None
    input: msgspec.Raw = _NULL
    output: msgspec.Raw = _NULL
    sessionId: str | None = None
    userId: str | None = None


class Trace(msgspec.Struct):
    sessionId: str | None = None
    userId: str | None = None
    observations: list[msgspec.Raw] | None = None


class Line(Observation):
    """An observation, or a trace that holds observations."""

    trace: Trace | None = None
    observations: list[msgspec.Raw] | None = None


class Placed(NamedTuple):
    """A generation and where it stands."""

    generation: Observation
    line: int
    path: str


def recognises(sample: Sample) -> bool:
    return sample.mostly(
        lambda keys: (
            {"traceId", "startTime", "type", "usageDetails"} <= keys
            or {"trace", "observations"} <= keys
            or {"observations", "sessionId", "userId"} <= keys
        )
    )


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin = "absolute"
    decoder, prompts = LineDecoder(Line, reading.quarantine), Prompts()
    counts = InputCounts(are_apart=True, total_is_sent=False)
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        placed: list[Placed] = []
        for row, line in zip(lines.rows, lines.lines.tolist(), strict=True):
            placed += _generations(row, line, chunk, reading)
        if placed := _without_enclosing(placed, reading):
            yield _batch(placed, reading, chunk, counts, prompts)
    counts.warn(reading)
    prompts.warn(reading)


def _generations(row: Line, line: int, chunk: Chunk, reading: Reading) -> list[Placed]:
    """The generations of one line; what is none is dropped under its reason."""
    found: list[Placed] = []
    dropped: list[str] = []
    n_bad = 0
    for item, path in _observations(row):
        if isinstance(item, Fault) or item.type is None:
            fault = item if isinstance(item, Fault) else Fault("missing_field", "$.type")
            reading.reject(chunk, line, fault.reason, path + (fault.path or "$").removeprefix("$"))
            n_bad += 1
        elif item.type == "GENERATION":
            found.append(Placed(item, line, path))
        else:
            dropped.append(_OTHER_TYPES.get(item.type, "other_span"))
    if not found and not n_bad and not dropped:
        dropped.append("trace_without_observations")
    for n, reason in enumerate(dropped):
        reading.drop(reason, n_lines=int(n == 0 and not found and not n_bad))
    return found


def _without_enclosing(placed: list[Placed], reading: Reading) -> list[Placed]:
    """A generation inside a generation is one call, reported by a framework and by the client below it."""
    inner: dict[str | None, list[Observation]] = {}
    for place in placed:
        inner.setdefault(place.generation.parentObservationId, []).append(place.generation)
    kept = [
        place
        for place in placed
        if place.generation.id is None
        or not any(_encloses(place.generation, other) for other in inner.get(place.generation.id, ()))
    ]
    if len(kept) < len(placed):
        emptied = {place.line for place in placed} - {place.line for place in kept}
        reading.drop("enclosing_span", len(placed) - len(kept), n_lines=len(emptied))
    return kept


def _encloses(outer: Observation, inner: Observation) -> bool:
    """Dates of one export sort as text."""
    return (inner.startTime or "") < (outer.endTime or "")


_OTHER_TYPES = {"TOOL": "tool_span", "EMBEDDING": "embedding"}


def _observations(row: Line) -> Iterator[tuple[Observation | Fault, str]]:
    items, path = row.observations, "$.observations"
    if row.trace is not None and items is None:
        items, path = row.trace.observations, "$.trace.observations"
    if row.trace is None and items is None:
        yield row, "$"
        return
    trace = row.trace or row
    for n, raw in enumerate(items or ()):
        item = _observation.decode(raw)
        if not isinstance(item, Fault):
            item.sessionId = item.sessionId or trace.sessionId
            item.userId = item.userId or trace.userId
        yield item, f"{path}[{n}]"


_observation = ValueDecoder(Observation)


def _batch(
    placed: list[Placed], reading: Reading, chunk: Chunk, counts: InputCounts, prompts: Prompts
) -> Batch:
    rows = [place.generation for place in placed]
    lines = np.array([place.line for place in placed], dtype=np.int64)
    columns = Columns(reading, chunk, lines, within=[place.path for place in placed])
    start = dates(columns, reading, [row.startTime for row in rows], "$.startTime", required=True)
    end = dates(columns, reading, [row.endTime for row in rows], "$.endTime")
    first = dates(columns, reading, [row.completionStartTime for row in rows], "$.completionStartTime")
    columns.arrival(start, "$.startTime", "ns")
    columns.seconds("e2e_s", between(start, end), "$.endTime", per_second=1e9)
    columns.seconds("ttft_s", between(start, first), "$.completionStartTime", per_second=1e9)
    columns.put("stream", [True if at is not None else None for at in first])
    buckets = columns.parse(buckets_of, [row.usageDetails for row in rows], "$.usageDetails")
    put_tokens(columns, buckets, counts)
    limits = [parameters(bytes(row.modelParameters)).limit for row in rows]
    columns.tokens("max_tokens", limits, "$.modelParameters")
    columns.text("request_id", [row.id for row in rows])
    columns.text("model", [row.model for row in rows])
    columns.text("session_id", [row.sessionId for row in rows])
    columns.text("tenant", [row.userId for row in rows])
    _put_status(columns, rows)
    answers = [answer_of(bytes(row.output)) for row in rows]
    columns.text("finish_reason", [answer.finish_reason for answer in answers])
    columns.tokens("n_tool_calls_out", [answer.n_tool_calls for answer in answers], "$.output")
    sent = [
        prompts.read(bytes(row.input), reply=answer.raw) for row, answer in zip(rows, answers, strict=True)
    ]
    columns.prompts([prompt and without_tool_messages(prompt) for prompt in sent])
    return columns.batch()


def _put_status(columns: Columns, rows: list[Observation]) -> None:
    failed = [row.level == "ERROR" for row in rows]
    codes = [_http_status(row) if bad else None for row, bad in zip(rows, failed, strict=True)]
    columns.tokens("http_status", codes, "$.statusMessage")
    columns.put(
        "status",
        [(status_of_http(c) or "error") if bad else "ok" for bad, c in zip(failed, codes, strict=True)],
    )


def _http_status(row: Observation) -> int | None:
    try:
        return http_status_in(msgspec.json.decode(row.statusMessage, type=str | None))
    except (msgspec.DecodeError, RecursionError):
        return None
