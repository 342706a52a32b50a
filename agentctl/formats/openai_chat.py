"""Chat bodies: what clients and proxies write down of chat.completions or Anthropic messages, a call a line.

    {"request_id": .., "timestamp": .., "status_code": 200, "request": {"model": .., "messages": [..]},
     "response": {"choices": [..], "usage": {..}}}

Shapes, told apart by where `messages` stands: {request, response}; the Batch API's {custom_id, body, response
{status_code, body}}; a flat body with its response or usage beside it. Of a body only the fields below are
looked at; messages and tools go on to be hashed as they are. Sources: OpenAI API reference (chat.completions,
Batch); Anthropic API reference (messages); OpenHands software-agent-sdk @611629e, logs of LLM calls.

`timestamp` is the arrival and `end_timestamp` the end (dates, or times since 1970 in s, ms, us or ns); where
only `latency_sec` says how long a call took (OpenHands), `timestamp` is its end. Without any, `created` of
the response (whole seconds).
Pitfalls: OpenAI's prompt_tokens include the cached ones, while Anthropic's three input counts are disjoint; a
failed call has no usage (its tokens are estimated from its text); `prompt_cache_key` is the client's word for
a session and may be one for all; `user` is taken for the tenant; Anthropic's system prompt stands apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from agentctl.formats._cells import NS_PER
from agentctl.formats._clock import Clock
from agentctl.formats._columns import MAX_SECONDS, Columns
from agentctl.formats._mapping import Field
from agentctl.formats._openai import ABSENT, NONE, Counts, Text, Usage, counts_of
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.formats.generic import status_of
from agentctl.ingest.lines import LineDecoder
from agentctl.ingest.prompts import Prompt

NAME = "openai_chat"
TITLE = "Chat bodies, OpenAI's or Anthropic's, with usage (flat, {request, response}, or Batch API)"
CARRIES = (
    "request_id", "arrival_s", "ttft_s", "e2e_s", "prompt_tokens", "output_tokens", "cached_tokens",
    "cache_write_tokens", "reasoning_tokens", "max_tokens", "status", "http_status", "finish_reason", "model",
    "tenant", "session_id", "stream", "priority", "n_tool_calls_out", "prompts",
)  # fmt: skip
LACKS = "No placement and no queueing; first-token times only where the proxy adds ttft_ms."
ROLE = "gateway"

_PREFIXES = ("chatcmpl-", "cmpl-")  # of engines, before the id that other logs have


class Reply(msgspec.Struct, gc=False):
    tool_calls: list[msgspec.Raw] | None = None


_REPLY = msgspec.json.Decoder(Reply | None)


class Choice(msgspec.Struct, gc=False):
    finish_reason: str | None = None
    message: msgspec.Raw = NONE


class Part(msgspec.Struct, gc=False):
    """Of the content of Anthropic's answer."""

    type: str | None = None


class Body(msgspec.Struct, gc=False):
    """A request."""

    messages: msgspec.Raw = NONE
    system: msgspec.Raw = NONE
    tools: msgspec.Raw = NONE
    model: str | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    prompt_cache_key: Text = None
    user: Text = None
    cache_salt: str | None = None
    priority: int | None = None


class Answer(msgspec.Struct, gc=False):
    """A response; in the Batch API it is `body` in an envelope."""

    id: Text = None
    created: int | float | None = None
    model: str | None = None
    usage: Usage | None = None
    choices: list[Choice] = []
    content: list[Part] | None = None
    stop_reason: str | None = None
    status_code: int | None = None
    body: Answer | None = None


class Call(Body, gc=False):
    """A line. A body may be the line itself."""

    request: Body | None = None
    body: Body | None = None
    kwargs: Body | None = None
    response: Answer | None = None
    usage: Usage | None = None
    request_id: Text = None
    custom_id: Text = None
    id: Text = None
    session_id: Text = None
    timestamp: int | float | str | None = None
    end_timestamp: int | float | str | None = None
    latency_sec: float | None = None
    ttft_ms: float | None = None
    status_code: int | None = None
    error: msgspec.Raw = NONE


class _Shape(msgspec.Struct, gc=False):
    """Where a line has its messages, for recognition."""

    messages: msgspec.Raw = NONE
    request: dict[str, msgspec.Raw] | None = None
    body: dict[str, msgspec.Raw] | None = None
    response: msgspec.Raw = NONE
    usage: msgspec.Raw = NONE
    startTime: msgspec.Raw = NONE  # LiteLLM's rows hold messages, too


def recognises(sample: Sample) -> bool:
    lines = [line for line in sample.lines if line[:1] == b"{"]
    if not lines:  # the first is longer than the sample
        keys = sample.keys[0] if sample.keys else set()
        return b'"messages"' in sample.text and (
            {"request", "response"} <= keys
            or {"body", "response"} <= keys
            or ("messages" in keys and not keys.isdisjoint({"usage", "response"}))
        )
    return 2 * sum(map(_is_call, lines)) > len(lines)


def _is_call(line: bytes) -> bool:
    try:
        shape = msgspec.json.decode(line, type=_Shape)
    except (msgspec.DecodeError, RecursionError):
        return False
    has_answer = bool(shape.response or shape.usage)
    body = shape.request or shape.body or {}
    return has_answer and not shape.startTime and ("messages" in body or bool(shape.messages))


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin = "absolute"
    decoder = LineDecoder(Call, reading.quarantine, reading.folding("messages"))
    fields = {name: Field("arrival", f"$.{name}", None) for name in ("timestamp", "end_timestamp")}
    fields["created"] = Field("arrival", "$.response.created", "s")
    clocks = {name: Clock(field, reading) for name, field in fields.items()}
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        if lines.rows:
            yield _batch(reading, Columns(reading, chunk, lines.lines), lines.rows, clocks)


def _batch(reading: Reading, columns: Columns, calls: list[Call], clocks: dict[str, Clock]) -> Batch:
    pairs = [(call, call.request or call.body or call, _answer(call)) for call in calls]
    answers = [answer for _, _, answer in pairs]
    _put_times(reading, columns, calls, answers, clocks)
    _put_tokens(columns, [call.usage or answer.usage or Usage() for call, _, answer in pairs])
    _put_outcome(columns, calls, answers)
    ids = [_first(call.request_id, call.custom_id, call.id, answer.id) for call, _, answer in pairs]
    columns.text("request_id", ids)
    columns.text("join_id", [_plain(id_) for id_ in ids])
    columns.text("session_id", [_first(call.session_id, body.prompt_cache_key) for call, body, _ in pairs])
    columns.text("tenant", [_first(call.user, body.user) for call, body, _ in pairs])
    columns.text("model", [body.model or answer.model for _, body, answer in pairs])
    columns.put("stream", [body.stream for _, body, _ in pairs])
    limits = [
        _first(body.max_completion_tokens, body.max_tokens, call.kwargs and call.kwargs.max_completion_tokens)
        for call, body, _ in pairs
    ]
    columns.tokens("max_tokens", limits, "$.max_tokens")
    priorities = [body.priority for _, body, _ in pairs]
    too_large = [value is not None and abs(value) >= 1 << 31 for value in priorities]
    columns.reject(np.array(too_large, dtype=np.bool_), "out_of_range", "$.priority")
    columns.put(
        "priority", [None if bad else value for value, bad in zip(priorities, too_large, strict=True)]
    )
    missing = np.array([not len(body.messages) for _, body, _ in pairs], dtype=np.bool_)
    columns.reject(missing, "missing_field", "$.messages")
    columns.prompts([_prompt(call, body, answer) for call, body, answer in pairs])
    return columns.batch()


def _answer(call: Call) -> Answer:
    answer = call.response or Answer()
    if answer.body is None:
        return answer
    if answer.body.status_code is None:
        answer.body.status_code = answer.status_code
    return answer.body


def _prompt(call: Call, body: Body, answer: Answer) -> Prompt:
    tools = body.tools if len(body.tools) or call.kwargs is None else call.kwargs.tools
    system = b"" if bytes(body.system) == b"null" else bytes(body.system)
    reply = bytes(answer.choices[0].message) if len(answer.choices) == 1 else b""
    return Prompt(body.messages, bytes(tools), body.cache_salt, reply if reply[:1] == b"{" else None, system)


def _put_times(
    reading: Reading, columns: Columns, calls: list[Call], answers: list[Answer], clocks: dict[str, Clock]
) -> None:
    logged = clocks["timestamp"].read(columns, [call.timestamp for call in calls], required=False)
    end = clocks["end_timestamp"].read(columns, [call.end_timestamp for call in calls], required=False)
    created = clocks["created"].read(columns, [answer.created for answer in answers], required=False)
    arrival, lasts = [], []
    for call, time, ended, made in zip(calls, logged, end, created, strict=True):
        last = ended - time if ended is not None and time is not None else None
        if last is None and call.latency_sec is not None and call.latency_sec < MAX_SECONDS:
            last = round(call.latency_sec * NS_PER["s"])
            time = time - last if time is not None else None
        arrival.append(made if time is None else time)
        lasts.append(last)
    columns.arrival(arrival, "$.timestamp", "ns")
    columns.seconds("e2e_s", lasts, "$.end_timestamp", NS_PER["s"])
    columns.seconds("ttft_s", [call.ttft_ms for call in calls], "$.ttft_ms", 1000.0)


def _put_tokens(columns: Columns, usages: list[Usage]) -> None:
    told = [counts_of(usage) for usage in usages]
    for name in Counts._fields:
        columns.tokens(name, [getattr(counts, name) for counts in told], "$.usage")


def _put_outcome(columns: Columns, calls: list[Call], answers: list[Answer]) -> None:
    codes = [
        _first(call.status_code, answer.status_code) for call, answer in zip(calls, answers, strict=True)
    ]
    failed = [bytes(call.error) not in ABSENT for call in calls]
    status = [
        status_of(code) or ("error" if is_bad else "ok") for code, is_bad in zip(codes, failed, strict=True)
    ]
    columns.put("status", list(status))
    columns.tokens("http_status", codes, "$.status_code", low=100, high=599)
    columns.text("finish_reason", [_reason(answer) for answer in answers])
    columns.tokens("n_tool_calls_out", [_tool_calls(answer) for answer in answers], "$.response")


def _reason(answer: Answer) -> str | None:
    return answer.choices[0].finish_reason if answer.choices else answer.stop_reason


def _tool_calls(answer: Answer) -> int | None:
    if answer.content is not None:
        return sum(part.type == "tool_use" for part in answer.content)
    replies = [_reply(choice.message) for choice in answer.choices if len(choice.message)]
    return sum(len(reply.tool_calls or ()) for reply in replies) if replies else None


def _reply(message: msgspec.Raw) -> Reply:
    try:
        return _REPLY.decode(message) or Reply()
    except (msgspec.DecodeError, RecursionError):  # an answer that we do not understand
        return Reply()


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None and value != ""), None)


def _plain(id_: Any) -> Any:
    """An id without the prefix that engines put before the caller's."""
    if isinstance(id_, str):
        for prefix in _PREFIXES:
            id_ = id_.removeprefix(prefix)
    return id_
