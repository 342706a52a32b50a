"""Requests and responses of OpenAI's Responses API, and whole prompts rebuilt from chains of them."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from agentctl.formats._openai import ABSENT, NONE, Text, Usage
from agentctl.ingest.prompts import Prompt

MAX_KEPT_BYTES = 128 << 20  # text of earlier responses, to rebuild the prompts of later ones
_MODEL_TYPES = ("reasoning", "mcp_list_tools", "mcp_approval_request", "compaction")


class Conversation(msgspec.Struct, gc=False):
    id: str | None = None


class Request(msgspec.Struct, gc=False):
    input: msgspec.Raw = NONE
    instructions: msgspec.Raw = NONE
    tools: msgspec.Raw = NONE
    previous_response_id: str | None = None
    conversation: Conversation | str | None = None
    model: str | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    prompt_cache_key: Text = None
    safety_identifier: Text = None
    user: Text = None

    @property
    def conversation_id(self) -> str | None:
        return self.conversation.id if isinstance(self.conversation, Conversation) else self.conversation


class Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class Response(msgspec.Struct, gc=False):
    """A response; in the Batch API it is `body` in an envelope."""

    id: str | None = None
    created_at: int | float | None = None
    status: str | None = None
    model: str | None = None
    output: list[msgspec.Raw] = []
    usage: Usage | None = None
    incomplete_details: Incomplete | None = None
    status_code: int | None = None
    body: Response | None = None


class Item(msgspec.Struct, gc=False):
    """Of a piece of a prompt or an answer, what tells who wrote it."""

    type: str | None = None
    role: str | None = None

    @property
    def is_of_model(self) -> bool:
        kind = self.type or ""
        return self.role == "assistant" or kind.endswith("_call") or kind in _MODEL_TYPES


class Past(NamedTuple):
    """What a response and all before it said: messages without instructions, and how many are the model's."""

    messages: list[bytes]
    n_assistant: int


_START = Past([], 0)


class Memory:
    """Responses by id, to go on from; the oldest are forgotten beyond MAX_KEPT_BYTES of text."""

    def __init__(self) -> None:
        self._past: OrderedDict[str, Past] = OrderedDict()
        self._size: dict[str, int] = {}  # text that is kept for this response and nobody after it
        self._n_bytes = 0
        self._latest: dict[str, str] = {}  # last response of a conversation
        self.n_missing = 0

    def before(self, request: Request) -> Past | None:
        """What a request goes on from; None when it is not known."""
        previous = request.previous_response_id or self._latest.get(request.conversation_id or "")
        if previous is None:
            return _START
        past = self._past.get(previous)
        self.n_missing += past is None
        return past

    def add(self, response_id: str, request: Request, past: Past, n_new_bytes: int) -> None:
        previous = request.previous_response_id or self._latest.get(request.conversation_id or "")
        self._n_bytes += n_new_bytes - self._size.pop(response_id, 0)
        moved = self._size.get(previous or "", 0)  # lives on in this one
        if moved:
            self._size[previous or ""] = 0
        self._past[response_id], self._size[response_id] = past, n_new_bytes + moved
        if request.conversation_id:
            self._latest[request.conversation_id] = response_id
        while self._n_bytes > MAX_KEPT_BYTES and self._past:
            oldest, _ = self._past.popitem(last=False)
            self._n_bytes -= self._size.pop(oldest)


class Rebuilt(NamedTuple):
    """A whole prompt, where it is known, and how many of its messages are the model's."""

    prompt: Prompt | None = None
    n_assistant: int | None = None
    is_bad: bool = False


def rebuild(request: Request, response: Response, memory: Memory) -> Rebuilt:
    items = _items(request.input)
    past = memory.before(request)
    if items is None or past is None or not items:
        return Rebuilt(is_bad=items is None)
    new, answer = _pieces(items), _pieces(response.output)
    asked = _joined(past, new)
    if response.id:
        size = sum(map(len, (*new.messages, *answer.messages)))
        memory.add(response.id, request, _joined(asked, answer), size)
    own = [] if bytes(request.instructions) in ABSENT else [_message(b"system", request.instructions)]
    tools = b"" if bytes(request.tools) in ABSENT else bytes(request.tools)
    is_one = len(answer.messages) == answer.n_assistant == 1
    reply = answer.messages[0] if is_one else None
    return Rebuilt(Prompt([*own, *asked.messages], tools, reply=reply), asked.n_assistant)


def _joined(past: Past, new: Past) -> Past:
    return Past(past.messages + new.messages, past.n_assistant + new.n_assistant)


def _pieces(items: list[msgspec.Raw]) -> Past:
    """Messages of some items; what the model wrote in one go is one."""
    messages: list[bytes] = []
    n_assistant, is_open = 0, False
    for item in items:
        is_of_model = item_of(item).is_of_model
        if is_of_model and is_open:
            messages[-1] += b"," + bytes(item)
        else:
            messages.append(bytes(item))
            n_assistant += is_of_model
        is_open = is_of_model
    return Past(messages, n_assistant)


def item_of(item: msgspec.Raw) -> Item:
    try:
        return _ITEM.decode(item)
    except (msgspec.DecodeError, RecursionError):  # some other JSON: a piece of text that is not the model's
        return Item()


def _items(given: msgspec.Raw) -> list[msgspec.Raw] | None:
    """The items of an input, which may be a text; None: it is neither."""
    text = bytes(given)
    if text in ABSENT:
        return []
    if text[:1] == b'"':
        return [msgspec.Raw(_message(b"user", given))]
    try:
        return _ITEMS.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _message(role: bytes, content: msgspec.Raw) -> bytes:
    return b'{"role":"' + role + b'","content":' + bytes(content) + b"}"


_ITEM = msgspec.json.Decoder(Item)
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
