"""What bodies of OpenAI's APIs, and of Anthropic's, have in common."""

from __future__ import annotations

from typing import NamedTuple

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


class Counts(NamedTuple):
    """Tokens of one request, by the column that they go into."""

    prompt_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None


def counts_of(usage: Usage) -> Counts:
    """As chat completions or Anthropic's messages name them."""
    prompt, output = (
        details or Details() for details in (usage.prompt_tokens_details, usage.completion_tokens_details)
    )
    return Counts(
        _whole_prompt(usage),
        _known(usage.completion_tokens, usage.output_tokens),
        _known(prompt.cached_tokens, usage.cache_read_input_tokens),
        usage.cache_creation_input_tokens,
        output.reasoning_tokens,
    )


def _known(one: int | None, other: int | None) -> int | None:
    return other if one is None else one


def _whole_prompt(usage: Usage) -> int | None:
    """With the cached tokens, which Anthropic's API counts apart."""
    if usage.prompt_tokens is not None or usage.input_tokens is None:
        return usage.prompt_tokens
    cached = (usage.cache_read_input_tokens, usage.cache_creation_input_tokens)
    return usage.input_tokens + sum(count or 0 for count in cached)
