"""Flattened GenAI traces as inference-perf replays them: one object a trace, spans without OTLP's wrapping.

    {"trace_id": "t", "spans": [{"span_id": "a", "parent_span_id": null, "name": "chat gpt-4",
      "start_time": "2026-02-25T10:00:00.000000", "end_time": "2026-02-25T10:00:02.500000",
      "attributes": {"gen_ai.operation.name": "chat", "gen_ai.request.max_tokens": 500,
                     "exgentic.session.id": "s", "gen_ai.input.messages": "[...]",
                     "gen_ai.output.text": "..."},
      "resource_attributes": {"service.name": "coordinator"}, "status": {"code": 1}}]}

Source: kubernetes-sigs/inference-perf, examples/otel/test_traces and its otel_trace_replay generator;
Exgentic's agent-llm-traces have the same layout. Attributes are those of _genai.py. A file is one object over
several lines (--json-document).
Pitfalls:
- Dates with and without a zone occur (--timezone).
- Span ids are unique inside a trace only.
- A parent that ended before the span began is the previous turn; one that is still running encloses it.
- Several services in one trace are the agents of one task: the first one's requests are the main line.
- Token counts are mostly absent, first-token times always: such traces are made to be replayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from agentctl.formats import _genai, _otlp
from agentctl.formats._columns import Columns
from agentctl.formats._dates import between, dates
from agentctl.formats._messages import Prompts
from agentctl.formats._otlp import Found
from agentctl.formats._usage import InputCounts
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import Fault, LineDecoder, ValueDecoder
from agentctl.ingest.source import Chunk

NAME = "otel_replay"
TITLE = "inference-perf OTel replay traces, one object a trace (trace_id, spans[start_time, attributes])"
CARRIES = (*_genai.CARRIES, "parent_request_id", "agent_path")
LACKS = "No placement or queueing times; mostly no token counts and never measured latencies of an engine."
ONE_RECORD_A_LINE = False


class Span(msgspec.Struct):
    start_time: str
    end_time: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    attributes: dict[str, msgspec.Raw] = {}
    resource_attributes: dict[str, msgspec.Raw] = {}
    status: _otlp.Status | None = None


class Trace(msgspec.Struct):
    spans: list[msgspec.Raw]
    trace_id: str = ""


def recognises(sample: Sample) -> bool:
    return sample.mostly({"trace_id", "spans"}.issubset)


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin = "absolute"
    decoder, prompts = LineDecoder(Trace, reading.quarantine), Prompts()
    counts = InputCounts(are_apart=False, total_is_sent=True)
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        spans: list[tuple[Span, Found]] = []
        for trace, line in zip(lines.rows, lines.lines.tolist(), strict=True):
            spans += _requests(trace, line, chunk, reading)
        if spans:
            yield _batch(spans, reading, chunk, counts, prompts)
    counts.warn(reading)
    prompts.warn(reading)


def _requests(trace: Trace, line: int, chunk: Chunk, reading: Reading) -> list[tuple[Span, Found]]:
    """The requests of one trace, their attributes as in OTLP; what is none is dropped under its reason."""
    kept: list[tuple[Span, Found]] = []
    dropped: list[str] = []
    n_bad = 0
    for n, raw in enumerate(trace.spans):
        path = f"$.spans[{n}]"
        span = _span.decode(raw)
        if isinstance(span, Fault):
            reading.reject(chunk, line, span.reason, path + (span.path or "$").removeprefix("$"))
            n_bad += 1
            continue
        found = _found(span, trace.trace_id, line, path)
        if (verdict := _genai.is_request(found)) is True:
            kept.append((span, found))
        else:
            dropped.append(verdict or "other_span")
    _otlp.leave_out(reading, dropped, is_line_counted=bool(kept or n_bad))
    return kept


_span = ValueDecoder(Span)


def _found(span: Span, trace_id: str, line: int, path: str) -> Found:
    attributes = {name: _any_value(raw) for name, raw in span.attributes.items() if bytes(raw) != b"null"}
    resource = {name: _any_value(raw) for name, raw in span.resource_attributes.items()}
    plain = _otlp.Span(traceId=trace_id, spanId=_name(trace_id, span.span_id) or "", status=span.status)
    return Found(plain, attributes, resource, "", line, path)


def _name(trace_id: str, span_id: str | None) -> str | None:
    """Of a span in all traces."""
    return f"{trace_id}/{span_id}" if span_id else None


def _any_value(raw: msgspec.Raw) -> msgspec.Raw:
    """A plain JSON value as OTLP wraps it; lists of anything but names and objects stay JSON in a text."""
    text = bytes(raw).strip()
    wrapped: dict[str, Any]
    if text[:1] == b'"':
        wrapped = {"stringValue": raw}
    elif text in (b"true", b"false"):
        wrapped = {"boolValue": raw}
    elif text[:1] not in (b"[", b"{"):
        wrapped = {"doubleValue": raw}
    else:
        try:
            names = msgspec.json.decode(text, type=list[str])
            wrapped = {"arrayValue": {"values": [{"stringValue": name} for name in names]}}
        except (msgspec.DecodeError, RecursionError):
            wrapped = {"stringValue": text.decode()}
    return msgspec.Raw(msgspec.json.encode(wrapped))


def _batch(
    spans: list[tuple[Span, Found]], reading: Reading, chunk: Chunk, counts: InputCounts, prompts: Prompts
) -> Batch:
    found = [span for _, span in spans]
    lines, paths = _otlp.places(found)
    columns = Columns(reading, chunk, lines, within=paths)
    start = dates(columns, reading, [span.start_time for span, _ in spans], "$.start_time", required=True)
    end = dates(columns, reading, [span.end_time for span, _ in spans], "$.end_time")
    columns.arrival(start, "$.start_time", "ns")
    columns.seconds("e2e_s", between(start, end), "$.end_time", per_second=1e9)
    _genai.fill(columns, found, counts, prompts)
    columns.text("agent_path", columns.parse(_otlp.text, _services(found), "$.resource_attributes"))
    links = [span.span.spanId for span in found]
    parents = _previous_turns(spans, start, end)
    if any(parents):
        columns.text("link", links)
        columns.text("parent_link", parents)
    return columns.batch()


def _services(found: list[Found]) -> list[msgspec.Raw | None]:
    """The service of each request, None for that of its trace's first."""
    names = [span.resource.get("service.name") for span in found]
    first: dict[int, bytes] = {}
    for span, name in zip(found, names, strict=True):
        first.setdefault(span.line, bytes(name or b""))
    return [
        None if bytes(name or b"") == first[span.line] else name
        for span, name in zip(found, names, strict=True)
    ]


def _previous_turns(
    spans: list[tuple[Span, Found]], start: list[int | None], end: list[int | None]
) -> list[str | None]:
    """The link of the parent where that had ended when the span began."""
    ended = {found.span.spanId: at for (_, found), at in zip(spans, end, strict=True)}
    previous = []
    for (span, found), at in zip(spans, start, strict=True):
        parent = _name(found.span.traceId, span.parent_span_id)
        over = ended.get(parent) if parent else None
        previous.append(parent if over is not None and at is not None and over <= at else None)
    return previous
