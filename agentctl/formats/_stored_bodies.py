"""Requests and answers that a log stores as JSON in a cell: messages and tools stay as they came.

LiteLLM's rows, and the reports of GuideLLM and inference-perf.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from agentctl.ingest.lines import Fault, ValueDecoder
from agentctl.ingest.prompts import Prompt

_INCOMPLETE = (b"litellm_truncated", b"redacted-by-litellm")
_NULL = msgspec.Raw(b"null")


class Body(msgspec.Struct):
    """A request body, or the parameters beside the messages."""

    messages: msgspec.Raw = _NULL
    prompt: msgspec.Raw = _NULL  # of plain completions
    system: msgspec.Raw = _NULL
    tools: msgspec.Raw = _NULL
    model: str | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


class Choice(msgspec.Struct):
    message: msgspec.Raw = _NULL
    finish_reason: str | None = None


class Response(msgspec.Struct):
    choices: list[Choice] = []


class Sent(NamedTuple):
    """What is known of the request and the answer beside the columns."""

    prompt: Prompt | None
    stream: bool | None
    max_tokens: int | None
    finish_reason: str | None
    model: str | None = None


_body = ValueDecoder(Body | None)
_response = ValueDecoder(Response | None)
_list = ValueDecoder(list[msgspec.Raw])
_string = ValueDecoder(str)


def sent_and_answered(messages: Any, request: Any, parameters: Any, response: Any, stream: Any) -> Sent:
    """From the cells messages, proxy_server_request, model_parameters, response and stream of a record."""
    found = (_body.decode(json_text(cell)) for cell in (request, parameters))
    bodies = [body for body in found if isinstance(body, Body)]
    answer = _response.decode(json_text(response))
    choice = answer.choices[0] if isinstance(answer, Response) and answer.choices else Choice()
    reply = None if choice.message == _NULL else bytes(choice.message)
    streams = [stream if isinstance(stream, bool) else None, *(body.stream for body in bodies)]
    limits = [body.max_completion_tokens or body.max_tokens for body in bodies]
    prompts = [_prompt(json_text(messages), b"", bodies, reply)]
    prompts += [_prompt(_messages(body), bytes(body.system), [body], reply) for body in bodies]
    return Sent(
        next((prompt for prompt in prompts if prompt), None),
        next((value for value in streams if value is not None), None),
        next((value for value in limits if value), None),
        choice.finish_reason,
        next((body.model for body in bodies if body.model), None),
    )


def _messages(body: Body) -> bytes:
    """Token ids are no text."""
    is_text = body.messages == _NULL and bytes(body.prompt).startswith(b'"')
    return json_text(body.prompt if is_text else body.messages)


def _prompt(messages: bytes, system: bytes, bodies: list[Body], reply: bytes | None) -> Prompt | None:
    """None where messages were not stored, or not whole."""
    if any(mark in text for mark in _INCOMPLETE for text in (messages, system)):
        return None
    if messages[:1] == b"[":
        pieces = _list.decode(messages)
        if isinstance(pieces, Fault) or not pieces:
            return None
        tools = next((bytes(body.tools) for body in bodies if body.tools != _NULL), b"")
        apart = b"" if system in (b"", b"null") else b'{"role":"system","content":' + system + b"}"
        return Prompt(messages, tools, None, reply, apart)
    if messages in (b"", b"null") or messages[:1] == b"{":  # SpendLogs has {} for nothing
        return None
    return Prompt([messages], reply=reply)


def json_text(cell: Any) -> bytes:
    """JSON text of a cell: of a CSV, of a JSON line, or of a JSON line that holds it as a string."""
    if isinstance(cell, str):
        return cell.encode() or b"null"
    data = bytes(cell) if cell is not None else b"null"
    if data[:1] == b'"':
        inner = _string.decode(data)
        return b"null" if isinstance(inner, Fault) or not inner else inner.encode()
    return data
