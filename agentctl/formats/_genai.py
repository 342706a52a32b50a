"""Requests from spans with attributes of OpenTelemetry's GenAI conventions, whatever carries the spans.

Names have changed several times, and instrumentations have names of their own; every table here lists the
current name first, then older and foreign ones that say the same.

Source: open-telemetry/semantic-conventions, docs/gen-ai (v1.27 to 1.41, then semantic-conventions-genai
v0.1.0); opentelemetry-python-contrib, opentelemetry-instrumentation-openai-v2; traceloop/openllmetry (llm.*,
cache_read_input_tokens); pydantic-ai (usage.details.*); langfuse's OtelIngestionProcessor, which reads all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from agentctl.formats import _otlp
from agentctl.formats._cells import whole
from agentctl.formats._columns import Columns
from agentctl.formats._failures import http_status_in, status_of_error, status_of_http
from agentctl.formats._flat import flat_list
from agentctl.formats._messages import Prompts, answer_of
from agentctl.formats._names import bare_id
from agentctl.formats._otlp import Found
from agentctl.formats._usage import InputCounts, Usage
from agentctl.formats.base import Reading

CARRIES = (
    "request_id", "session_id", "tenant", "model", "arrival_s", "ttft_s", "e2e_s", "prompt_tokens",
    "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "max_tokens", "status",
    "http_status", "finish_reason", "stream", "n_tool_calls_out", "prompts",
)  # fmt: skip

_OPERATION = ("gen_ai.operation.name", "llm.request.type")
_PROVIDER = ("gen_ai.provider.name", "gen_ai.system")
_MODEL = ("gen_ai.response.model", "gen_ai.request.model")
_RESPONSE_ID = ("gen_ai.response.id",)
_SESSION = (
    "gen_ai.conversation.id", "session.id", "gen_ai.session.id", "langfuse.session.id", "exgentic.session.id",
    "traceloop.association.properties.session_id",
)  # fmt: skip
_TENANT = ("user.id", "enduser.id", "langfuse.user.id", "traceloop.association.properties.user_id")
_INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens")
_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens")
_TOTAL = ("gen_ai.usage.total_tokens", "llm.usage.total_tokens")
_CACHED = (
    "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.cache_read_tokens", "gen_ai.usage.details.cache_read_tokens",
    "gen_ai.usage.input_cached_tokens", "gen_ai.usage.cached_tokens",
)  # fmt: skip
_WRITTEN = (
    "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens", "gen_ai.usage.cache_write_tokens",
    "gen_ai.usage.details.cache_write_tokens",
)  # fmt: skip
_REASONING = (
    "gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens",
    "gen_ai.usage.details.reasoning_tokens",
)  # fmt: skip
_MAX_TOKENS = ("gen_ai.request.max_tokens",)
_STREAM = ("gen_ai.request.stream", "llm.is_streaming")
_TTFT = ("gen_ai.response.time_to_first_chunk", "gen_ai.server.time_to_first_token")
_FINISH = (
    "gen_ai.response.finish_reasons", "gen_ai.response.finish_reason", "gen_ai.completion.0.finish_reason",
)  # fmt: skip
_ERROR = ("error.type",)
_HTTP = ("http.response.status_code", "http.status_code")
_MESSAGES = ("gen_ai.input.messages", "gen_ai.prompt")
_SYSTEM = ("gen_ai.system_instructions",)
_TOOLS = ("gen_ai.tool.definitions",)
_REPLY = ("gen_ai.output.messages", "gen_ai.completion", "gen_ai.output.text")

_REQUESTS = {"chat", "generate_content", "text_completion", "generate", "completion"}
_DROPPED = {
    "embeddings": "embedding", "embedding": "embedding", "execute_tool": "tool_span",
    "invoke_agent": "agent_span", "create_agent": "agent_span", "invoke_workflow": "agent_span",
    "rerank": "other_span",
}  # fmt: skip


def is_request(span: Found) -> bool | str:
    """True for a call of a model, else why it is none."""
    try:
        operation = _otlp.text(named(span.attributes, _OPERATION))
    except ValueError:
        operation = None
    return operation in _REQUESTS or _DROPPED.get(operation or "", "other_span")


def without_enclosing(spans: list[Found], reading: Reading) -> list[Found]:
    """Drops requests whose span encloses another request's: a call of a model makes no other.

    A framework and the client below it both report the call, or an agent reports itself as one. Spans of one
    call that share the response id stay: the first counts, the others are duplicates. Only spans of one chunk
    are compared; they are exported when they end, those of one call together.
    """
    inner: dict[tuple[str, str], list[Found]] = {}
    for span in spans:
        if span.span.parentSpanId:
            inner.setdefault((span.span.traceId, span.span.parentSpanId), []).append(span)
    kept = [
        span
        for span in spans
        if not any(_encloses(span, other) for other in inner.get((span.span.traceId, span.span.spanId), ()))
    ]
    if len(kept) < len(spans):
        emptied = {span.line for span in spans} - {span.line for span in kept}
        reading.drop("enclosing_span", len(spans) - len(kept), n_lines=len(emptied))
    return kept


def _encloses(outer: Found, inner: Found) -> bool:
    ids = [span.attributes.get(_RESPONSE_ID[0]) for span in (outer, inner)]
    if ids[0] is not None and ids[1] is not None and bytes(ids[0]) == bytes(ids[1]):
        return False
    try:
        start, end = whole(inner.span.startTimeUnixNano), whole(outer.span.endTimeUnixNano)
    except ValueError:
        return False
    return start is not None and end is not None and start < end


def named(attributes: _otlp.Attributes, names: tuple[str, ...]) -> msgspec.Raw | None:
    """The value under the first of these names that there is."""
    return next((attributes[name] for name in names if name in attributes), None)


def fill(columns: Columns, spans: list[Found], counts: InputCounts, prompts: Prompts) -> None:
    """Everything that the attributes say about each request; arrival and end are the caller's."""

    present = {name for span in spans for name in span.attributes}

    def parse(convert: Callable[[Any], Any], names: tuple[str, ...]) -> list[Any]:
        known = tuple(name for name in names if name in present)
        if not known:
            return [None] * len(spans)
        cells = [named(span.attributes, known) for span in spans]
        return columns.parse(convert, cells, f"$.attributes.{known[0]}")

    ttft = parse(_otlp.number, _TTFT)
    columns.seconds("ttft_s", ttft, f"$.attributes.{_TTFT[0]}")
    streams = zip(parse(_otlp.truth, _STREAM), ttft, strict=True)
    columns.put("stream", [True if first is not None else stream for stream, first in streams])
    ids = parse(_otlp.text, _RESPONSE_ID)
    columns.text("request_id", [id or span.span.spanId for id, span in zip(ids, spans, strict=True)])
    columns.text("join_id", [bare_id(id) for id in ids])
    for column, names in (("session_id", _SESSION), ("tenant", _TENANT), ("model", _MODEL)):
        columns.text(column, parse(_otlp.text, names))
    providers = parse(_otlp.text, _PROVIDER)
    outputs, cached, written = (parse(_otlp.whole, names) for names in (_OUTPUT, _CACHED, _WRITTEN))
    usages = [
        Usage(input, output, hit, new, total=total, emitter=f"{provider} {span.scope}")
        for input, output, hit, new, total, provider, span in zip(
            parse(_otlp.whole, _INPUT), outputs, cached, written, parse(_otlp.whole, _TOTAL), providers,
            spans, strict=True,
        )
    ]  # fmt: skip
    counted: list[tuple[str, list[int | None], tuple[str, ...]]] = [
        ("prompt_tokens", counts.whole_prompts(usages), _INPUT),
        ("output_tokens", outputs, _OUTPUT),
        ("cached_tokens", cached, _CACHED),
        ("cache_write_tokens", written, _WRITTEN),
        ("reasoning_tokens", parse(_otlp.whole, _REASONING), _REASONING),
        ("max_tokens", parse(_otlp.whole, _MAX_TOKENS), _MAX_TOKENS),
    ]
    for column, values, keys in counted:
        columns.tokens(column, values, f"$.attributes.{keys[0]}")
    put_status(columns, spans, parse(_otlp.text, _ERROR), parse(_otlp.whole, _HTTP))
    replies = [answer_of(raw) for raw in columns.parse(_reply, spans, f"$.attributes.{_REPLY[0]}")]
    reasons = parse(_otlp.texts, _FINISH)
    columns.text(
        "finish_reason",
        [given[0] if given else reply.finish_reason for given, reply in zip(reasons, replies, strict=True)],
    )
    columns.tokens("n_tool_calls_out", [reply.n_tool_calls for reply in replies], f"$.attributes.{_REPLY[0]}")
    contents = columns.parse(_content, spans, f"$.attributes.{_MESSAGES[0]}")
    tools = columns.parse(_tools, spans, f"$.attributes.{_TOOLS[0]}")
    pieces = zip(contents, parse(_otlp.json_text, _SYSTEM), tools, replies, strict=True)
    columns.prompts(
        [prompts.read(content, system, tool, reply.raw) for content, system, tool, reply in pieces]
    )


# OpenLLMetry flattens messages: gen_ai.prompt.0.role.


def _content(span: Found) -> bytes | None:
    messages = _otlp.json_text(named(span.attributes, _MESSAGES))
    return messages or flat_list(span.attributes, "gen_ai.prompt.")


def _reply(span: Found) -> bytes | None:
    reply = _otlp.json_text(named(span.attributes, _REPLY))
    return reply or flat_list(span.attributes, "gen_ai.completion.", leave="finish_reason")


def _tools(span: Found) -> bytes | None:
    tools = _otlp.json_text(named(span.attributes, _TOOLS))
    return tools or flat_list(span.attributes, "llm.request.functions.")


def put_status(
    columns: Columns, spans: list[Found], errors: list[str | None], codes: list[int | None]
) -> None:
    """Status from the span's own, the error's type and the HTTP status."""
    codes = [
        code if code is not None else http_status_in(error) for code, error in zip(codes, errors, strict=True)
    ]
    columns.tokens("http_status", codes, f"$.attributes.{_HTTP[0]}", low=100, high=599)
    statuses = []
    for span, error, code in zip(spans, errors, codes, strict=True):
        failure = status_of_http(code) or (status_of_error(error) if error else None)
        statuses.append(failure or ("error" if span.span.is_error else "ok"))
    columns.put("status", statuses)
