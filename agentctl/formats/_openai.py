"""What bodies of OpenAI's APIs, and of Anthropic's, have in common."""

from __future__ import annotations

import msgspec

NONE = msgspec.Raw(b"")
ABSENT = (b"", b"null")
Text = str | int | None


class Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    """The names of chat completions, then those of responses, and of Anthropic's messages."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: Details | None = None
    output_tokens_details: Details | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
