"""Messages inside span attributes and observations, cut into the raw pieces that ingest hashes.

Content comes as JSON or as a string that holds JSON (twice encoded by some exporters), as a list of
messages, as a request body, or as plain text. Attribute limits (OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT) cut it
anywhere: what is no whole JSON is unknown, never a shorter prompt.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from agentctl.ingest.prompts import Prompt

_NULL = msgspec.Raw(b"null")
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


def prompt_of(
    content: bytes | None, system: bytes | None = None, tools: bytes | None = None
) -> Prompt | None:
    """The pieces of a prompt; None where there is none or it is cut.

    content, system, tools  JSON or plain text; a system prompt kept apart comes first
    """
    messages = _pieces(content)
    if messages is None:
        return None
    body, pieces = messages
    first = body.system if body else _NULL
    for raw in (bytes(first), system):
        if raw and raw != b"null":
            if (own := _pieces(raw)) is None:
                return None
            pieces = [*own[1], *pieces]
    given = tools or (bytes(body.tools) if body else b"null")
    return Prompt(pieces, b"" if given in (b"null", b"[]") else given) if pieces else None


def without_tool_messages(prompt: Prompt) -> Prompt:
    """LangChain's callback for Langfuse appends the tools as messages behind each prompt, where they would
    break every chain: they become the tools."""
    n = len(prompt.messages)
    while n and _decodes(_tool_message, prompt.messages[n - 1]):
        n -= 1
    if n in (0, len(prompt.messages)):
        return prompt
    tools = b"[" + b",".join(prompt.messages[n:]) + b"]"
    return prompt._replace(messages=prompt.messages[:n], tools=prompt.tools or tools)


def answer_of(content: bytes | None) -> Answer:
    """The one message of a reply."""
    found = _pieces(content)
    if found is None or len(found[1]) != 1:
        return Answer()
    raw = found[1][0]
    if raw[:1] != b"{":
        return Answer(msgspec.json.encode({"role": "assistant", "content": raw.decode()}))
    try:
        reply = _reply.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return Answer()
    if reply.role not in (None, "assistant", "ai", "model"):
        return Answer()
    return Answer(raw, reply.finish_reason, reply.n_tool_calls)


def _pieces(content: bytes | None) -> tuple[Body | None, list[bytes]] | None:
    """The messages of some content and their body; None where there are none or they are cut."""
    text = (content or b"").strip()
    try:
        for _ in range(_MAX_ENCODINGS):
            if text[:1] != b'"':
                break
            text = msgspec.json.decode(text, type=str).strip().encode()
        if text[:1] == b"[":
            return None, [bytes(item) for item in _list.decode(text)]
        if text[:1] != b"{":
            return (None, [text]) if text and text != b"null" else None
        body = _body.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    if body.messages is None:
        return None, [text]
    return body, [bytes(item) for item in body.messages]


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
