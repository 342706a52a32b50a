"""AIPerf per-request export (profile_export.jsonl): a benchmark seen by its client, one request a line.

    {"metadata": {"x_request_id": "...", "x_correlation_id": "...", "conversation_id": "...", "turn_index": 0,
       "request_start_ns": 1794474012043457024, "request_end_ns": 1794474012518397696,
       "benchmark_phase": "profiling", "was_cancelled": false},
     "metrics": {"time_to_first_token": {"value": 191.07, "unit": "ms"},
       "usage_prompt_tokens": {"value": 1281, "unit": "tokens"}, ...},
     "error": {"code": 500, "type": "HTTPError", "message": "..."}}

Source: ai-dynamo/aiperf, docs/tutorials/working-with-profile-exports.md, src/aiperf/common/models/
record_models.py. Times ns since 1970; every metric says its own unit, which is read (latencies in ns, us, ms
or s); an unknown unit makes the record bad. The session is x_correlation_id, with parent_correlation_id the
one that forked it: conversation_id names a conversation of the input data, which a run may play many times.
Pitfalls: warm-up requests are left out and counted; input_sequence_length comes from the client's tokenizer
and stands in only where the server reported no usage (token_source says so); a cancelled request has an error
of code 499 and no metrics but error_isl; metrics of several values (inter_chunk_latency) are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentctl.formats._cells import NS_PER, whole
from agentctl.formats._columns import Columns
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.formats.generic import status_of
from agentctl.ingest.lines import LineDecoder
from agentctl.ingest.source import Chunk

NAME = "aiperf"
TITLE = "AIPerf profile_export.jsonl (metadata, metrics with units, error), one request a line"
CARRIES = (
    "request_id", "arrival_s", "ttft_s", "e2e_s", "prompt_tokens", "output_tokens", "cached_tokens",
    "cache_write_tokens", "reasoning_tokens", "token_source", "session_id", "agent_path", "turn_index",
    "status", "http_status",
)  # fmt: skip
LACKS = "No prompts or block ids, so no reuse; no models, finish reasons, tenants, engine times or placement."

_WARM_UP = "warmup"
_TIMES = NS_PER | {"sec": NS_PER["s"]}
_TOKENS = {"tokens": 1}
_HTTP = range(100, 600)  # other codes are of AIPerf's own


class Metadata(msgspec.Struct):
    request_start_ns: int
    request_end_ns: int | None = None
    x_request_id: str | None = None
    x_correlation_id: str | None = None
    parent_correlation_id: str | None = None
    conversation_id: str | int | None = None
    turn_index: int | None = None
    benchmark_phase: str | None = None
    was_cancelled: bool = False


class Metric(msgspec.Struct):
    value: float | int | None
    unit: str


class Metrics(msgspec.Struct):
    time_to_first_token: Metric | None = None
    request_latency: Metric | None = None
    usage_prompt_tokens: Metric | None = None
    usage_prompt_cache_read_tokens: Metric | None = None
    usage_prompt_cache_write_tokens: Metric | None = None
    usage_completion_tokens: Metric | None = None
    usage_reasoning_tokens: Metric | None = None
    input_sequence_length: Metric | None = None
    error_isl: Metric | None = None
    output_sequence_length: Metric | None = None
    reasoning_token_count: Metric | None = None


class Error(msgspec.Struct):
    code: int | None = None


class Row(msgspec.Struct):
    metadata: Metadata
    metrics: Metrics | None = None
    error: Error | None = None


# Column: metrics that give it, the first that is there.
_COUNTS = {
    "prompt_tokens": ("usage_prompt_tokens", "input_sequence_length", "error_isl"),
    "output_tokens": ("usage_completion_tokens", "output_sequence_length"),
    "cached_tokens": ("usage_prompt_cache_read_tokens",),
    "cache_write_tokens": ("usage_prompt_cache_write_tokens",),
    "reasoning_tokens": ("usage_reasoning_tokens", "reasoning_token_count"),
}


def recognises(sample: Sample) -> bool:
    return b"request_start_ns" in sample.text and sample.mostly({"metadata", "metrics", "error"}.issubset)


def read(reading: Reading) -> Iterator[Batch]:
    decoder = LineDecoder(Row, reading.quarantine)
    reading.time_origin = "absolute"
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        is_warm_up = np.array(
            [row.metadata.benchmark_phase == _WARM_UP for row in lines.rows], dtype=np.bool_
        )
        if is_warm_up.any():
            reading.drop("warm_up", int(is_warm_up.sum()))
        rows = [row for row in lines.rows if row.metadata.benchmark_phase != _WARM_UP]
        if rows:
            yield _batch(rows, lines.lines[~is_warm_up], reading, chunk)


def _batch(rows: list[Row], lines: NDArray[np.int64], reading: Reading, chunk: Chunk) -> Batch:
    columns = Columns(reading, chunk, lines)
    about = [row.metadata for row in rows]
    metrics = [row.metrics or Metrics() for row in rows]
    columns.arrival([meta.request_start_ns for meta in about], "$.metadata.request_start_ns", "ns")
    columns.text("request_id", [meta.x_request_id for meta in about])
    columns.text("join_id", [meta.x_request_id for meta in about])
    columns.text("agent_line", [meta.x_correlation_id or meta.conversation_id for meta in about])
    columns.text("parent_agent_line", [meta.parent_correlation_id for meta in about])
    columns.tokens("turn_number", [meta.turn_index for meta in about], "$.metadata.turn_index")
    ttft = _values(columns, metrics, ("time_to_first_token",), _TIMES)
    columns.seconds("ttft_s", ttft, "$.metrics.time_to_first_token", per_second=NS_PER["s"])
    latency = _values(columns, metrics, ("request_latency",), _TIMES)
    lasted = [_lasted(meta) if known is None else known for known, meta in zip(latency, about, strict=True)]
    columns.seconds("e2e_s", lasted, "$.metrics.request_latency", per_second=NS_PER["s"])
    for column, names in _COUNTS.items():
        counts = _values(columns, metrics, names, _TOKENS)
        path, low = f"$.metrics.{names[0]}", int(column == "prompt_tokens")
        columns.tokens(column, columns.parse(whole, counts, path), path, low=low)
    columns.put("token_source", [_token_source(row) for row in metrics])
    columns.put("status", [_status(row) for row in rows])
    codes = [row.error.code if row.error and row.error.code in _HTTP else None for row in rows]
    columns.tokens("http_status", codes, "$.error.code")
    return columns.batch()


def _values(
    columns: Columns, rows: list[Metrics], names: Sequence[str], units: Mapping[str, int]
) -> list[float | int | None]:
    """The first of the named metrics that each row has, in the unit that is 1."""
    values: list[float | int | None] = [None] * len(rows)
    for name in names:
        metrics: list[Metric | None] = [getattr(row, name) for row in rows]
        unknown = [metric is not None and metric.unit not in units for metric in metrics]
        columns.reject(np.array(unknown, dtype=np.bool_), "unknown_unit", f"$.metrics.{name}.unit")
        for k, metric in enumerate(metrics):
            if metric is not None and values[k] is None and metric.value is not None:
                values[k] = metric.value * units.get(metric.unit, 1)
    return values


def _lasted(meta: Metadata) -> int | None:
    """ns between start and end of a request that has no latency of its own."""
    return None if meta.request_end_ns is None else meta.request_end_ns - meta.request_start_ns


def _token_source(metrics: Metrics) -> str | None:
    if metrics.usage_prompt_tokens:
        return "reported"
    return "tokenizer" if metrics.input_sequence_length or metrics.error_isl else None


def _status(row: Row) -> str:
    if row.metadata.was_cancelled:
        return "aborted"
    if row.error is None:
        return "ok"
    return status_of(row.error.code if row.error.code in _HTTP else 500) or "error"
