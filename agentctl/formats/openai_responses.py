"""Bodies of OpenAI's Responses API, a call a line; with previous_response_id prompts are rebuilt.

    {"ts": "2026-11-12T09:00:29.635Z", "duration_ms": 839.6, "status": 200, "path": "/v1/responses",
     "request": {"model": .., "input": [..], "instructions": .., "previous_response_id": "resp_1", ..},
     "response": {"id": "resp_2", "status": "completed", "output": [..], "usage": {"input_tokens": ..}}}

Shapes: the line above (proxies; `timestamp` and `status_code` are understood too) and the Batch API's
{custom_id, body, response {status_code, body}}. Of a body only the fields below are looked at; items and
tools go on to be hashed as they are. Source: OpenAI API reference (responses, conversations, batches) of
November 2026.

A request with previous_response_id or conversation holds new items only. Its prompt is: its own instructions
(those of earlier requests are not inherited), every item of the chain of responses before it, in order, with
the output of each, and its own input. Clients with store = false send everything again instead, reasoning
encrypted, and need no rebuilding. Items that the model wrote in one go count as one message.
Pitfalls:
- Where the previous response is not in the file above the line, the prompt is unknown (and so are blocks,
  never a part of it): give all files of a time as one. The link itself works across files, so that sessions
  and parents are known all the same. The text of responses that nobody continued for the longest time is
  forgotten beyond _responses.MAX_KEPT_BYTES.
- A conversation is taken to begin with its first request in the file; truncation = auto drops items unseen.
- input_tokens include the cached ones; output_tokens the reasoning. Templates drop old reasoning.
- There is no finish reason: a call for a tool is one in the output; "incomplete" says what cut it.
- Failed requests have no response and no id; their retry names the same previous response.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from agentctl.formats._clock import Clock
from agentctl.formats._columns import Columns
from agentctl.formats._failures import status_of_http
from agentctl.formats._mapping import Field
from agentctl.formats._names import bare_id
from agentctl.formats._openai import ABSENT, NONE, Details, Text, Usage
from agentctl.formats._responses import Memory, Request, Response, item_of, rebuild
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import LineDecoder

NAME = "openai_responses"
TITLE = "Bodies of OpenAI's Responses API with usage ({request, response} or Batch API), prompts rebuilt"
CARRIES = (
    "request_id", "arrival_s", "e2e_s", "prompt_tokens", "output_tokens", "cached_tokens", "reasoning_tokens",
    "max_tokens", "status", "http_status", "finish_reason", "model", "tenant", "session_id",
    "parent_request_id", "stream", "n_tool_calls_out", "prompts",
)  # fmt: skip
LACKS = "No first-token times, queueing or placement; no prompt where an earlier response is not in the file."
ROLE = "gateway"

_BY_STATUS = {"failed": "error", "cancelled": "aborted"}  # of a response; HTTP goes before


class Call(msgspec.Struct, gc=False):
    """A line."""

    request: Request | None = None
    body: Request | None = None
    response: Response | None = None
    request_id: Text = None
    custom_id: Text = None
    path: str | None = None
    url: str | None = None
    ts: int | float | str | None = None
    timestamp: int | float | str | None = None
    duration_ms: float | None = None
    status: int | None = None
    status_code: int | None = None
    error: msgspec.Raw = NONE


class _Shape(msgspec.Struct, gc=False):
    """Where a line has its input, for recognition."""

    request: dict[str, msgspec.Raw] | None = None
    body: dict[str, msgspec.Raw] | None = None
    path: str | None = None
    url: str | None = None


def recognises(sample: Sample) -> bool:
    lines = [line for line in sample.lines if line[:1] == b"{"]
    if not lines:  # the first is longer than the sample
        keys = sample.keys[0] if sample.keys else set()
        is_body = not keys.isdisjoint({"request", "body"}) and b'"input"' in sample.text
        return is_body and _is_path(sample.text)
    return 2 * sum(map(_is_call, lines)) > len(lines)


def _is_call(line: bytes) -> bool:
    try:
        shape = msgspec.json.decode(line, type=_Shape)
    except (msgspec.DecodeError, RecursionError):
        return False
    body = shape.request or shape.body or {}
    if path := shape.path or shape.url:
        return "input" in body and _is_path(path.encode() + b'"')
    return "input" in body and not body.keys().isdisjoint({"previous_response_id", "instructions", "store"})


def _is_path(text: bytes) -> bool:
    return b"/responses" in text


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin = "absolute"
    decoder, memory = LineDecoder(Call, reading.quarantine), Memory()
    clocks = {
        "timestamp": Clock(Field("arrival", "$.ts", None), reading),
        "created": Clock(Field("arrival", "$.response.created_at", "s"), reading),
    }
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        is_call = [_is_path((call.path or call.url or "/responses").encode()) for call in lines.rows]
        if n_others := is_call.count(False):
            reading.drop("other_api", n_others)
        calls = [call for call, keep in zip(lines.rows, is_call, strict=True) if keep]
        if calls:
            yield _batch(reading, Columns(reading, chunk, lines.lines[is_call]), calls, memory, clocks)
    if memory.n_missing:
        reading.warnings.append(
            f"{memory.n_missing:,} requests continue a response that is not in the same file above them: "
            "their prompts are unknown"
        )


def _batch(
    reading: Reading, columns: Columns, calls: list[Call], memory: Memory, clocks: dict[str, Clock]
) -> Batch:
    pairs = [(call, call.request or call.body or Request(), _response(call)) for call in calls]
    _put_times(columns, pairs, clocks)
    _put_tokens(columns, [response.usage or Usage() for _, _, response in pairs])
    _put_outcome(columns, pairs)
    ids = [call.request_id or call.custom_id or response.id for call, _, response in pairs]
    columns.text("request_id", ids)
    columns.text("join_id", [bare_id(response.id) for _, _, response in pairs])
    columns.text("link", [response.id for _, _, response in pairs])
    columns.text("parent_link", [request.previous_response_id for _, request, _ in pairs])
    columns.put(
        "is_response_link", [True if request.previous_response_id else None for _, request, _ in pairs]
    )
    sessions = [request.conversation_id or request.prompt_cache_key for _, request, _ in pairs]
    columns.text("session_id", sessions)
    columns.text("tenant", [request.safety_identifier or request.user for _, request, _ in pairs])
    columns.text("model", [request.model or response.model for _, request, response in pairs])
    columns.put("stream", [request.stream for _, request, _ in pairs])
    limits = [request.max_output_tokens for _, request, _ in pairs]
    columns.tokens("max_tokens", limits, "$.request.max_output_tokens")
    rebuilt = [rebuild(request, response, memory) for _, request, response in pairs]
    columns.reject(np.array([prompt.is_bad for prompt in rebuilt]), "wrong_type", "$.request.input")
    columns.put("n_messages", [one.prompt and len(one.prompt.messages) for one in rebuilt])
    columns.put("n_assistant", [one.n_assistant for one in rebuilt])
    columns.prompts([one.prompt for one in rebuilt])
    return columns.batch()


def _response(call: Call) -> Response:
    response = call.response or Response()
    if response.body is None:
        return response
    response.body.status_code = response.status_code
    return response.body


def _put_times(
    columns: Columns, pairs: list[tuple[Call, Request, Response]], clocks: dict[str, Clock]
) -> None:
    logged = [call.timestamp if call.ts is None else call.ts for call, _, _ in pairs]
    times = clocks["timestamp"].read(columns, logged, required=False)
    created = clocks["created"].read(
        columns, [response.created_at for _, _, response in pairs], required=False
    )
    arrival = [made if time is None else time for time, made in zip(times, created, strict=True)]
    columns.arrival(arrival, "$.ts", "ns")
    columns.seconds("e2e_s", [call.duration_ms for call, _, _ in pairs], "$.duration_ms", 1000.0)


def _put_tokens(columns: Columns, usages: list[Usage]) -> None:
    nothing = Details()
    counts = {
        "prompt_tokens": [usage.input_tokens for usage in usages],
        "output_tokens": [usage.output_tokens for usage in usages],
        "cached_tokens": [(usage.input_tokens_details or nothing).cached_tokens for usage in usages],
        "reasoning_tokens": [(usage.output_tokens_details or nothing).reasoning_tokens for usage in usages],
    }
    for name, values in counts.items():
        columns.tokens(name, values, "$.response.usage")


def _put_outcome(columns: Columns, pairs: list[tuple[Call, Request, Response]]) -> None:
    codes, status, reasons = [], [], []
    for call, _, response in pairs:
        code = next((c for c in (call.status, call.status_code, response.status_code) if c is not None), None)
        codes.append(code)
        failed = "error" if bytes(call.error) not in ABSENT else "ok"
        status.append(status_of_http(code) or _BY_STATUS.get(response.status or "") or failed)
        reasons.append(response.incomplete_details and response.incomplete_details.reason)
    columns.tokens("http_status", codes, "$.status", low=100, high=599)
    columns.put("status", status)
    columns.text("finish_reason", reasons)
    calls = [_tool_calls(response) if response.id else None for _, _, response in pairs]
    columns.tokens("n_tool_calls_out", calls, "$.response.output")


def _tool_calls(response: Response) -> int:
    """Calls that the client has to answer; those of built-in tools have been."""
    return sum(item_of(item).type in ("function_call", "custom_tool_call") for item in response.output)
