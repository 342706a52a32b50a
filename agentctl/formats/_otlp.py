"""Spans in OTLP-JSON: one ExportTraceServiceRequest a line, as OpenTelemetry's file exporters write it.

    {"resourceSpans": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "a"}}]},
      "scopeSpans": [{"scope": {"name": "..."}, "spans": [{"traceId": "...", "spanId": "...", "name": "...",
        "startTimeUnixNano": "1794474012043457024", "attributes": [...], "status": {}}]}]}]}

A line may also be one span alone. Source: opentelemetry-proto, trace/v1/trace.proto and the JSON mapping of
the OTLP specification: ids in hex, 64-bit integers as strings or numbers, enumerations as numbers (their
names occur, too), times in ns as strings.

Values stay raw until a reader asks for the attribute by name; no other attribute is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentctl.formats import _cells
from agentctl.formats.base import Reading, Sample
from agentctl.ingest.lines import Fault, LineDecoder, ValueDecoder
from agentctl.ingest.source import Chunk

Attributes = dict[str, msgspec.Raw]  # name -> AnyValue as JSON text


class Attribute(msgspec.Struct):
    key: str
    value: msgspec.Raw = msgspec.Raw(b"{}")


class Status(msgspec.Struct):
    code: int | str = 0


class Span(msgspec.Struct):
    """The fields of a span that readers may use. Times as whole numbers or their text, in ns."""

    traceId: str = ""
    spanId: str = ""
    parentSpanId: str = ""
    name: str = ""
    kind: int | str = 0
    startTimeUnixNano: str | int | None = None
    endTimeUnixNano: str | int | None = None
    attributes: list[Attribute] = []
    events: list[msgspec.Raw] = []
    status: Status | None = None

    @property
    def is_error(self) -> bool:
        return self.status is not None and self.status.code in (2, "2", "STATUS_CODE_ERROR")


class Scope(msgspec.Struct):
    name: str = ""


class ScopeSpans(msgspec.Struct):
    spans: list[msgspec.Raw] = []
    scope: Scope | None = None


class Resource(msgspec.Struct):
    attributes: list[Attribute] = []


class ResourceSpans(msgspec.Struct):
    scopeSpans: list[ScopeSpans] = []
    resource: Resource | None = None


class Line(msgspec.Struct):
    resourceSpans: list[ResourceSpans] | None = None
    startTimeUnixNano: msgspec.Raw = msgspec.Raw()  # of a span that stands alone ...
    attributes: msgspec.Raw = msgspec.Raw()  # ... which may lack its times
    resourceLogs: msgspec.Raw = msgspec.Raw()  # other signals in the same file
    resourceMetrics: msgspec.Raw = msgspec.Raw()


class Found(NamedTuple):
    """A span and where it stands."""

    span: Span
    attributes: Attributes
    resource: Attributes
    scope: str
    line: int
    path: str  # in the line


def spans(reading: Reading, keep: Callable[[Found], bool | str]) -> Iterator[tuple[Chunk, list[Found]]]:
    """The spans for which `keep` is True, chunk by chunk.

    The others are counted as dropped, under the reason that `keep` gives or as "other_span".

    The reader must make a row of every span that it gets, or reject it, so that lines add up.
    """
    decoder = LineDecoder(Line, reading.quarantine)
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        kept: list[Found] = []
        texts = chunk.data.split(b"\n") if any(row.resourceSpans is None for row in lines.rows) else []
        for row, line in zip(lines.rows, lines.lines.tolist(), strict=True):
            alone = texts[line - chunk.first_line] if row.resourceSpans is None else b""
            kept += _of_line(row, alone, line, chunk, reading, keep)
        if kept:
            yield chunk, kept


def places(found: list[Found]) -> tuple[NDArray[np.int64], list[str]]:
    """Lines and paths of spans, as Columns takes them."""
    return np.array([span.line for span in found], dtype=np.int64), [span.path for span in found]


def _of_line(
    row: Line, alone: bytes, line: int, chunk: Chunk, reading: Reading, keep: Callable[[Found], bool | str]
) -> list[Found]:
    if row.resourceSpans is None and not row.startTimeUnixNano and not row.attributes:
        if row.resourceLogs or row.resourceMetrics:
            reading.drop("no_spans")
        else:
            reading.reject(chunk, line, "missing_field", "$.resourceSpans")
        return []
    kept: list[Found] = []
    dropped: list[str] = []
    n_bad = 0
    for raw, resource, scope, path in _unfold(row, alone):
        span = _span.decode(raw)
        if isinstance(span, Fault):
            reading.reject(chunk, line, span.reason, path + (span.path or "$").removeprefix("$"))
            n_bad += 1
            continue
        found = Found(span, _by_name(span.attributes), resource, scope, line, path)
        if (verdict := keep(found)) is True:
            kept.append(found)
        else:
            dropped.append(verdict or "other_span")
    leave_out(reading, dropped, is_line_counted=bool(kept or n_bad))
    return kept


def leave_out(reading: Reading, reasons: list[str], is_line_counted: bool) -> None:
    """Drop the spans of a line for these reasons. A line of which nothing is kept or bad counts with the
    first; one without any span is dropped itself."""
    if not reasons and not is_line_counted:
        reasons = ["no_spans"]
    for n, reason in enumerate(reasons):
        reading.drop(reason, n_lines=int(n == 0 and not is_line_counted))


def _unfold(row: Line, alone: bytes) -> Iterator[tuple[msgspec.Raw | bytes, Attributes, str, str]]:
    """Each span of a line with its resource, scope and path."""
    if row.resourceSpans is None:
        yield alone, {}, "", "$"
        return
    for r, of_resource in enumerate(row.resourceSpans):
        resource = _by_name(of_resource.resource.attributes) if of_resource.resource else {}
        for s, of_scope in enumerate(of_resource.scopeSpans):
            scope = of_scope.scope.name if of_scope.scope else ""
            for n, raw in enumerate(of_scope.spans):
                yield raw, resource, scope, f"$.resourceSpans[{r}].scopeSpans[{s}].spans[{n}]"


def _by_name(attributes: list[Attribute]) -> Attributes:
    return {attribute.key: attribute.value for attribute in attributes}


_span = ValueDecoder(Span)


# Values of attributes. None: absent. A value of another kind raises ValueError, as Columns.parse expects.


class _AnyValue(msgspec.Struct):
    stringValue: str | None = None
    intValue: str | int | None = None
    doubleValue: float | str | None = None
    boolValue: bool | None = None
    arrayValue: msgspec.Raw = msgspec.Raw(b"null")
    kvlistValue: msgspec.Raw = msgspec.Raw(b"null")


class _Array(msgspec.Struct):
    values: list[msgspec.Raw] = []


class _KeyValues(msgspec.Struct):
    values: list[Attribute] = []


_value = msgspec.json.Decoder(_AnyValue)


def whole(raw: msgspec.Raw | None) -> int | None:
    """A whole number (also written as text)."""
    value = _decoded(raw)
    return _cells.whole(_first(value.intValue, value.doubleValue, value.stringValue))


def number(raw: msgspec.Raw | None) -> float | None:
    value = _decoded(raw)
    return _cells.number(_first(value.doubleValue, value.intValue, value.stringValue))


def text(raw: msgspec.Raw | None) -> str | None:
    """A name; numbers become their text."""
    value = _decoded(raw)
    return _cells.text(_first(value.stringValue, value.intValue, value.doubleValue))


def truth(raw: msgspec.Raw | None) -> bool | None:
    value = _decoded(raw)
    return _cells.truth(_first(value.boolValue, value.stringValue))


def texts(raw: msgspec.Raw | None) -> list[str]:
    """The names in an array; one name alone is an array of one."""
    items = _parts(_Array, _decoded(raw).arrayValue)
    found = [text(raw)] if items is None else [text(item) for item in items.values]
    return [name for name in found if name is not None]


def json_text(raw: msgspec.Raw | None) -> bytes | None:
    """JSON that an attribute holds: as text, byte for byte, or as arrays and key-values, written anew."""
    if raw is None:
        return None
    held = _decoded(raw).stringValue
    return msgspec.json.encode(_plain(raw)) if held is None else held.encode()


def _plain(raw: msgspec.Raw, depth: int = 0) -> Any:
    """The value as JSON would have it without OTLP's wrapping."""
    value = _decoded(raw)
    if depth > _MAX_NESTING:
        raise ValueError
    if (array := _parts(_Array, value.arrayValue)) is not None:
        return [_plain(item, depth + 1) for item in array.values]
    if (pairs := _parts(_KeyValues, value.kvlistValue)) is not None:
        return {pair.key: _plain(pair.value, depth + 1) for pair in pairs.values}
    if value.intValue is not None:
        return _cells.whole(value.intValue)
    return _first(value.stringValue, value.doubleValue, value.boolValue)


_MAX_NESTING = 64


def _decoded(raw: msgspec.Raw | None) -> _AnyValue:
    if raw is None:
        return _AnyValue()
    try:
        return _value.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise ValueError from None


def _parts(type_: Any, raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw, type=type_ | None)
    except (msgspec.DecodeError, RecursionError):
        raise ValueError from None


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


# Recognition. A line of spans with messages is often longer than the sample, so that its text is searched.

_KEY = re.compile(rb'(?<!\\)"key"\s*:\s*"([^"\\]+)"')


def is_otlp(sample: Sample) -> bool:
    """The text begins like spans in OTLP-JSON."""
    head = sample.text.lstrip()[:1]
    return head in (b"{", b"[") and (
        b'"resourceSpans"' in sample.text or b'"startTimeUnixNano"' in sample.text
    )


def attribute_names(sample: Sample) -> set[str]:
    """Names of the attributes in the sample, those of its resources, too."""
    return {match.decode(errors="replace") for match in _KEY.findall(sample.text)}
