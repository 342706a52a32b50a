"""OpenInference spans (Arize Phoenix, Envoy AI Gateway, ...) as OTLP-JSON, see _otlp.py.

    openinference.span.kind "LLM"; llm.model_name; llm.provider, llm.system; session.id; user.id;
    llm.token_count.prompt, .completion, .total, .prompt_details.cache_read, .prompt_details.cache_write,
    .completion_details.reasoning; llm.invocation_parameters (JSON); llm.tools.N.tool.json_schema (JSON);
    llm.input_messages.N.message.role, .content, ...; llm.output_messages.N...; input.value, output.value

Source: Arize-ai/openinference, spec/semantic_conventions.md; envoyproxy/ai-gateway, tests/internal/
testopeninference/spans. One span a line, or exports. Spans of kind LLM are requests, their start is the
arrival; TOOL, AGENT, EMBEDDING and others are dropped under a reason. A stream's first token is an event of
the span. Finish reason and response id are in output.value, where that is an OpenAI or Anthropic body.
Pitfalls:
- llm.token_count.prompt holds the cached tokens; the instrumentations of Anthropic and Bedrock left them out
  until 2025 (openinference #1429): see _usage.
- Messages are flattened into an attribute per field; each is put together again, fields in a fixed order. A
  prompt is therefore the same in every span, but not byte for byte what was sent.
- Frameworks and the clients below them report one call twice, as a span inside a span: the inner one counts.
- Content may be hidden: `__REDACTED__` is no prompt.
- Envoy's own samples lack times; spans without them cannot be placed and are set aside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from agentctl.formats import _otlp
from agentctl.formats._cells import whole
from agentctl.formats._columns import Columns
from agentctl.formats._dates import between
from agentctl.formats._flat import flat_list
from agentctl.formats._genai import put_status, without_enclosing
from agentctl.formats._messages import FINISH_REASONS, Prompts, answer_of
from agentctl.formats._names import bare_id
from agentctl.formats._otlp import Found
from agentctl.formats._parameters import parameters
from agentctl.formats._usage import InputCounts, Usage
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.source import Chunk

NAME = "openinference"
TITLE = "OpenInference spans in OTLP-JSON (openinference.span.kind, llm.token_count.*)"
CARRIES = (
    "request_id", "session_id", "tenant", "model", "arrival_s", "ttft_s", "e2e_s", "prompt_tokens",
    "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "max_tokens", "status",
    "http_status", "finish_reason", "stream", "n_tool_calls_out", "prompts",
)  # fmt: skip
LACKS = "No placement or queueing times; sessions only where the app sets session.id; messages may be hidden."
ONE_RECORD_A_LINE = False

T = TypeVar("T")

_KIND = "openinference.span.kind"
_DROPPED = {"TOOL": "tool_span", "AGENT": "agent_span", "EMBEDDING": "embedding"}
_TOKENS = {
    "output_tokens": "llm.token_count.completion",
    "cached_tokens": "llm.token_count.prompt_details.cache_read",
    "cache_write_tokens": "llm.token_count.prompt_details.cache_write",
    "reasoning_tokens": "llm.token_count.completion_details.reasoning",
}
_PROMPT, _TOTAL = "llm.token_count.prompt", "llm.token_count.total"
_FIRST_TOKEN = "First Token Stream Event"


def recognises(sample: Sample) -> bool:
    names = _otlp.attribute_names(sample)
    return sample.text.lstrip()[:1] in (b"{", b"[") and not names.isdisjoint((_KIND, _PROMPT))


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin = "absolute"
    counts, prompts = InputCounts(are_apart=False, total_is_sent=True), Prompts()
    for chunk, found in _otlp.spans(reading, _is_request):
        yield _batch(reading, chunk, without_enclosing(found, reading), counts, prompts)
    counts.warn(reading)
    prompts.warn(reading)


def _is_request(span: Found) -> bool | str:
    try:
        kind = _otlp.text(span.attributes.get(_KIND)) or ""
    except ValueError:
        kind = ""
    return kind.upper() == "LLM" or _DROPPED.get(kind.upper(), "other_span")


def _batch(
    reading: Reading, chunk: Chunk, spans: list[Found], counts: InputCounts, prompts: Prompts
) -> Batch:
    lines, paths = _otlp.places(spans)
    columns = Columns(reading, chunk, lines, within=paths)

    def parse(convert: Callable[[Any], T], name: str) -> list[T]:
        return columns.parse(convert, [span.attributes.get(name) for span in spans], f"$.attributes.{name}")

    start = columns.parse(whole, [span.span.startTimeUnixNano for span in spans], "$.startTimeUnixNano")
    end = columns.parse(whole, [span.span.endTimeUnixNano for span in spans], "$.endTimeUnixNano")
    first = columns.parse(_first_token, spans, "$.events")
    columns.arrival(start, "$.startTimeUnixNano", "ns")
    columns.seconds("e2e_s", between(start, end), "$.endTimeUnixNano", per_second=1e9)
    columns.seconds("ttft_s", between(start, first), "$.events", per_second=1e9)
    for column, name in (("session_id", "session.id"), ("tenant", "user.id"), ("model", "llm.model_name")):
        columns.text(column, parse(_otlp.text, name))
    _put_tokens(columns, spans, parse, counts)
    given = [parameters(text) for text in parse(_otlp.json_text, "llm.invocation_parameters")]
    columns.tokens("max_tokens", [call.limit for call in given], "$.attributes.llm.invocation_parameters")
    columns.put(
        "stream", [True if at is not None else call.stream for at, call in zip(first, given, strict=True)]
    )
    put_status(columns, spans, columns.parse(_exception_type, spans, "$.events"), [None] * len(spans))
    bodies = [_body(text) for text in parse(_otlp.json_text, "output.value")]
    columns.text(
        "request_id", [body.id or span.span.spanId for body, span in zip(bodies, spans, strict=True)]
    )
    columns.text("join_id", [bare_id(body.id) for body in bodies])
    columns.text("finish_reason", [body.reason for body in bodies])
    replies = [answer_of(text) for text in columns.parse(_reply, spans, "$.attributes")]
    columns.tokens("n_tool_calls_out", [reply.n_tool_calls for reply in replies], "$.attributes")
    contents = columns.parse(_content, spans, "$.attributes")
    tools = columns.parse(_tools, spans, "$.attributes")
    columns.prompts(
        [
            prompts.read(content, tools=tool, reply=reply.raw)
            for content, tool, reply in zip(contents, tools, replies, strict=True)
        ]
    )
    return columns.batch()


def _put_tokens(columns: Columns, spans: list[Found], parse: Any, counts: InputCounts) -> None:
    numbers = {column: parse(_otlp.whole, name) for column, name in _TOKENS.items()}
    inputs, totals = parse(_otlp.whole, _PROMPT), parse(_otlp.whole, _TOTAL)
    usages = [
        Usage(
            inputs[n],
            numbers["output_tokens"][n],
            numbers["cached_tokens"][n],
            numbers["cache_write_tokens"][n],
            total=totals[n],
            emitter=f"{provider} {span.scope}",
        )
        for n, (provider, span) in enumerate(zip(parse(_otlp.text, "llm.provider"), spans, strict=True))
    ]
    columns.tokens("prompt_tokens", counts.whole_prompts(usages), f"$.attributes.{_PROMPT}")
    for column, name in _TOKENS.items():
        columns.tokens(column, numbers[column], f"$.attributes.{name}")


# What is in events and in the answer's body.


class _Event(msgspec.Struct):
    name: str = ""
    timeUnixNano: str | int | None = None
    attributes: list[_otlp.Attribute] = []


def _events(span: Found) -> Iterator[_Event]:
    for raw in span.span.events:
        try:
            yield _event.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            raise ValueError from None


def _first_token(span: Found) -> int | None:
    """ns since the epoch."""
    return next((whole(event.timeUnixNano) for event in _events(span) if event.name == _FIRST_TOKEN), None)


def _exception_type(span: Found) -> str | None:
    for event in _events(span):
        if event.name == "exception":
            named = {attribute.key: attribute.value for attribute in event.attributes}
            return _otlp.text(named.get("exception.type"))
    return None


class _Choice(msgspec.Struct):
    finish_reason: str | None = None


class _Body(msgspec.Struct):
    """A response of OpenAI's or Anthropic's API."""

    object: str | None = None
    type: str | None = None
    id: str | None = None
    choices: list[_Choice] = []
    stop_reason: str | None = None

    @property
    def is_response(self) -> bool:
        """Not the answer itself, which may be JSON with an `id`, too."""
        return self.object in _OBJECTS or self.type == "message"

    @property
    def reason(self) -> str | None:
        reason = self.choices[0].finish_reason if self.choices else self.stop_reason
        return reason if reason in FINISH_REASONS else None


def _body(text: bytes | None) -> _Body:
    try:
        body = _response.decode(text or b"{}")
    except (msgspec.DecodeError, RecursionError):
        return _Body()  # text, or the output of a framework
    return body if body.is_response else _Body()


_OBJECTS = ("chat.completion", "chat.completion.chunk", "text_completion", "response")


_TOOL = re.compile(r"llm\.tools\.([0-9]{1,6})\.tool\.json_schema")


def _content(span: Found) -> bytes | None:
    """The messages of a prompt as JSON, or the input as it is."""
    messages = flat_list(span.attributes, "llm.input_messages.", "message.")
    return messages or _otlp.json_text(span.attributes.get("input.value"))


def _reply(span: Found) -> bytes | None:
    return flat_list(span.attributes, "llm.output_messages.", "message.")


def _tools(span: Found) -> bytes | None:
    schemas = {
        int(match[1]): _otlp.json_text(raw) or b"null"
        for name, raw in span.attributes.items()
        if (match := _TOOL.fullmatch(name))
    }
    return b"[" + b",".join(schemas[n] for n in sorted(schemas)) + b"]" if schemas else None


_event = msgspec.json.Decoder(_Event)
_response = msgspec.json.Decoder(_Body)
