"""inference-perf's per_request_lifecycle_metrics.json: a load test seen by its client, one JSON array.

    [{"start_time": 81234.5, "end_time": 81236.1, "request": "{\\"model\\": .., \\"messages\\": [..]}",
      "response": "..", "info": {"request_metrics": {"text": {"input_tokens": 1281}}, "lora_adapter": null,
        "response_metrics": {"output_tokens": 64, "output_token_times": [81234.7, ..], "server_usage": {..}}},
      "error": {"error_type": "HTTP Error 503", "error_msg": ".."}}]

Source: kubernetes-sigs/inference-perf 0.7.0 (Apache-2.0), inference_perf/reportgen/base.py
(build_per_request_lifecycle_entry) and apis/base.py; with report.request_lifecycle.per_request. Read with
--json-document, or an object a line (jq -c '.[]'). Times are s of a monotonic clock (perf_counter), so that
they count from no date; files of one run on one machine compare. What the server counted comes before the
client's tokenizer (token_source says which); `request` is the body as text, hashed like that of any log.
Pitfalls: fields can be switched off in the report's configuration: then their columns are unknown, or come
from computed_metrics; a stream of one token has no first-token time, as in the tool's own summary; a failure
counts 0 tokens, which are unknown; what came as a stream is not read for finish reasons.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from agentctl.formats._columns import Columns
from agentctl.formats._failures import http_status_in, status_of_error
from agentctl.formats._openai import Usage, counts_of
from agentctl.formats._stored_bodies import Sent, sent_and_answered
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import LineDecoder
from agentctl.ingest.prompts import Prompt

NAME = "inference_perf"
TITLE = "inference-perf per_request_lifecycle_metrics.json (start_time, request, info, error)"
CARRIES = (
    "arrival_s", "ttft_s", "e2e_s", "prompt_tokens", "output_tokens", "cached_tokens", "cache_write_tokens",
    "reasoning_tokens", "max_tokens", "token_source", "model", "session_id", "status", "http_status",
    "finish_reason", "stream", "prompts",
)  # fmt: skip
LACKS = "No dates, request ids, tenants, engine times or placement; sessions only in runs of recorded ones."

_KEYS = {"start_time", "end_time", "request", "response", "info", "computed_metrics", "error"}
_KEYS |= {"stage_id", "session_id", "scheduled_time"}  # of other versions
_NULL = msgspec.Raw(b"null")


class Text(msgspec.Struct):
    input_tokens: int | None = None


class RequestMetrics(msgspec.Struct):
    text: Text | None = None


class ResponseMetrics(msgspec.Struct):
    output_tokens: int | None = None
    output_token_times: list[float] | None = None
    server_usage: Usage | None = None


class Info(msgspec.Struct):
    request_metrics: RequestMetrics | None = None
    response_metrics: ResponseMetrics | None = None
    lora_adapter: str | None = None


class Computed(msgspec.Struct):
    time_to_first_token: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class Error(msgspec.Struct):
    error_type: str = ""


class Row(msgspec.Struct):
    start_time: float
    end_time: float
    request: msgspec.Raw = _NULL
    response: msgspec.Raw = _NULL
    info: Info | None = None
    computed_metrics: Computed | None = None
    session_id: str | None = None
    error: Error | None = None


def recognises(sample: Sample) -> bool:
    """A long request hides what comes behind it from the sample."""
    return sample.mostly(
        lambda keys: (
            {"start_time", "end_time"} <= keys <= _KEYS and not keys.isdisjoint({"request", "info", "error"})
        )
    )


def read(reading: Reading) -> Iterator[Batch]:
    decoder = LineDecoder(Row, reading.quarantine)
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        if lines.rows:
            yield _batch(lines.rows, Columns(reading, chunk, lines.lines))


def _batch(rows: list[Row], columns: Columns) -> Batch:
    sent = [sent_and_answered(None, row.request, None, row.response, None) for row in rows]
    columns.arrival([row.start_time for row in rows], "$.start_time", "s")
    columns.seconds("e2e_s", [row.end_time - row.start_time for row in rows], "$.end_time")
    columns.seconds("ttft_s", [_first_token(row) for row in rows], "$.info.response_metrics")
    _put_tokens(columns, rows)
    columns.text("session_id", [row.session_id for row in rows])
    columns.text("model", [one.model for one in sent])
    columns.put("stream", [one.stream for one in sent])
    columns.tokens("max_tokens", [one.max_tokens for one in sent], "$.request")
    columns.text("finish_reason", [one.finish_reason for one in sent])
    kinds = [row.error.error_type.removeprefix("HTTP Error ") if row.error else None for row in rows]
    columns.put("status", ["ok" if kind is None else status_of_error(kind) for kind in kinds])
    columns.tokens("http_status", [http_status_in(kind) for kind in kinds], "$.error.error_type")
    prompts = [_prompt(*pair) for pair in zip(rows, sent, strict=True)]
    if any(prompts):
        columns.prompts(prompts)
    return columns.batch()


def _put_tokens(columns: Columns, rows: list[Row]) -> None:
    """As the server counts them, else the client."""
    path = "$.info.response_metrics.server_usage"
    told = [counts_of(_response(row).server_usage or Usage()) for row in rows]
    theirs = [counts.prompt_tokens or None for counts in told]
    pairs = list(zip(theirs, map(_own_prompt, rows), strict=True))
    columns.tokens("prompt_tokens", [their or own for their, own in pairs], f"{path}.prompt_tokens", low=1)
    sources = ["reported" if their else "tokenizer" if own else None for their, own in pairs]
    columns.put("token_source", sources)
    outputs = [
        _own_output(row) if counts.output_tokens is None else counts.output_tokens
        for counts, row in zip(told, rows, strict=True)
    ]
    columns.tokens("output_tokens", outputs, f"{path}.completion_tokens")
    for name in ("cached_tokens", "cache_write_tokens", "reasoning_tokens"):
        columns.tokens(name, [getattr(counts, name) for counts in told], path)


def _own_prompt(row: Row) -> int | None:
    """As the client's tokenizer counts it, like _own_output."""
    metrics = row.info.request_metrics if row.info else None
    counted = metrics.text.input_tokens if metrics and metrics.text else None
    return counted or (row.computed_metrics.input_tokens if row.computed_metrics else None) or None


def _own_output(row: Row) -> int | None:
    count = _response(row).output_tokens
    if count is None and row.computed_metrics:
        count = row.computed_metrics.output_tokens
    return None if row.error and not count else count


def _response(row: Row) -> ResponseMetrics:
    return (row.info and row.info.response_metrics) or ResponseMetrics()


def _first_token(row: Row) -> float | None:
    """Seconds from the start; of streams alone, as the tool itself tells them."""
    times = _response(row).output_token_times or []
    if len(times) > 1:
        return times[0] - row.start_time
    return row.computed_metrics.time_to_first_token if row.computed_metrics else None


def _prompt(row: Row, sent: Sent) -> Prompt | None:
    """A LoRA adapter keeps its KV apart."""
    adapter = row.info and row.info.lora_adapter
    return sent.prompt._replace(group=adapter) if sent.prompt and adapter else sent.prompt
