"""Messages inside span attributes and observations, cut into the raw pieces that ingest hashes.

Content comes as JSON or as a string that holds JSON (twice encoded by some exporters), as a list of
messages, as a request body, or as plain text. Attribute limits (OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT) cut it
anywhere: what is no whole JSON is unknown, never a shorter prompt.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import msgspec

from agentctl.formats._flat import HIDDEN
from agentctl.formats.base import Reading
from agentctl.ingest.prompts import Prompt

_NULL = msgspec.Raw(b"null")
_EMPTY = (b"", b"null", b"[]", b'""', HIDDEN.encode(), f'"{HIDDEN}"'.encode())
_FINISH_REASON = re.compile(rb',\s*"finish_reason"\s*:\s*"[^"\\]*"\s*\}$')  # in output, not in later input
# Of OpenAI, Anthropic, Gemini and OpenTelemetry. Others could be a model's own words.
FINISH_REASONS = {
    "stop", "length", "tool_calls", "tool_call", "function_call", "content_filter", "error", "end_turn",
    "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "STOP", "MAX_TOKENS", "SAFETY",
}  # fmt: skip
_MAX_ENCODINGS = 3  # JSON in a JSON string in a JSON string


class Body(msgspec.Struct):
    """A request as OpenAI's or Anthropic's APIs take it, or what an agent framework makes of it."""

    messages: list[msgspec.Raw] | None = None
    tools: msgspec.Raw = _NULL
    system: msgspec.Raw = _NULL


class Answer(NamedTuple):
    """What a reply says about itself. None: unknown."""

    raw: bytes | None = None  # one message
    finish_reason: str | None = None
    n_tool_calls: int | None = None


class Prompts:
    """Reads prompts and counts those that it cannot read."""

    def __init__(self) -> None:
        self.n_unreadable = 0

    def read(
        self,
        content: bytes | None,
        system: bytes | None = None,
        tools: bytes | None = None,
        reply: bytes | None = None,
    ) -> Prompt | None:
        """The pieces of a prompt; None where there is none or it is cut.

        content  JSON or plain text: messages, a body, or one text
        system   a system prompt that is kept apart, as JSON or plain text: it becomes the first message
        tools    JSON of the tools; a body may hold them, too
        """
        if content is None or content in _EMPTY:
            return None
        found = _pieces(content)
        if found is None:
            self.n_unreadable += 1
            return None
        body, pieces = found
        if (first := system or bytes(body.system)) not in _EMPTY:
            pieces = [_system_message(first), *pieces]
        given = tools or bytes(body.tools)
        return Prompt(pieces, b"" if given in _EMPTY else given, reply=reply) if pieces else None

    def warn(self, reading: Reading) -> None:
        if self.n_unreadable:
            reading.warnings.append(
                f"{self.n_unreadable:,} requests have messages that are cut or no JSON: their prompts are "
                "unknown (exporters limit the length of attributes: OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT)"
            )


def without_tool_messages(prompt: Prompt) -> Prompt:
    """LangChain's callback for Langfuse appends the tools as messages behind each prompt, where they would
    break every chain: they become the tools."""
    messages = list(prompt.messages) if isinstance(prompt.messages, list) else []
    tools: list[bytes] = []
    while len(messages) > 1 and _decodes(_tool_message, messages[-1]):
        tools.insert(0, messages.pop())
    if not tools:
        return prompt
    return prompt._replace(messages=messages, tools=prompt.tools or b"[" + b",".join(tools) + b"]")


def answer_of(content: bytes | None) -> Answer:
    """The one message of a reply."""
    found = None if content is None or content in _EMPTY else _pieces(content)
    if found is None or len(found[1]) != 1:
        return Answer()
    raw = found[1][0]
    if raw[:1] != b"{":
        return Answer(msgspec.json.encode({"role": "assistant", "content": raw.decode()}))
    try:
        reply = _reply.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return Answer()
    if reply.role not in ("assistant", "ai", "model"):
        return Answer()  # an answer that is JSON itself, or the state of a framework
    reason = reply.finish_reason if reply.finish_reason in FINISH_REASONS else None
    return Answer(_FINISH_REASON.sub(b"}", raw), reason, reply.n_tool_calls)


def _pieces(content: bytes) -> tuple[Body, list[bytes]] | None:
    """The messages of some content and the body that they came in; None where they are cut."""
    text = content.strip()
    try:
        for _ in range(_MAX_ENCODINGS):
            if text[:1] != b'"':
                break
            text = msgspec.json.decode(text, type=str).strip().encode()
        if text[:1] == b"[":
            return Body(), [bytes(item) for item in _list.decode(text)]
        if text[:1] != b"{":
            return Body(), [] if text in _EMPTY else [text]
        body = _body.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    return body, [text] if body.messages is None else [bytes(item) for item in body.messages]


def _system_message(content: bytes) -> bytes:
    """A message from a system prompt: the parts of OpenTelemetry or the content of Anthropic's API."""
    try:
        text = bytes(_raw.decode(content))
    except (msgspec.DecodeError, RecursionError):
        text = msgspec.json.encode(content.decode(errors="replace"))
    return b'{"role":"system","content":' + text + b"}"


class _Definition(msgspec.Struct):
    type: Literal["function"]
    function: msgspec.Raw


class _ToolMessage(msgspec.Struct):
    role: Literal["tool"]
    content: _Definition


class _Part(msgspec.Struct):
    type: str | None = None


class _ToolCalls(msgspec.Struct):
    tool_calls: list[msgspec.Raw] | None = None


class _Reply(msgspec.Struct):
    role: str | None = None
    finish_reason: str | None = None
    tool_calls: list[msgspec.Raw] | None = None
    additional_kwargs: _ToolCalls | None = None  # LangChain
    parts: list[_Part] | None = None  # OpenTelemetry
    content: str | list[_Part] | None = None  # Anthropic

    @property
    def n_tool_calls(self) -> int:
        listed = self.tool_calls or (self.additional_kwargs and self.additional_kwargs.tool_calls) or ()
        parts = [*(self.parts or ()), *(self.content if isinstance(self.content, list) else ())]
        return len(listed) or sum(part.type in ("tool_call", "tool_use") for part in parts)


_raw = msgspec.json.Decoder(msgspec.Raw)
_list = msgspec.json.Decoder(list[msgspec.Raw])
_body = msgspec.json.Decoder(Body)
_reply = msgspec.json.Decoder(_Reply)
_tool_message = msgspec.json.Decoder(_ToolMessage)


def _decodes(decoder: msgspec.json.Decoder, raw: bytes) -> bool:
    try:
        decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
