"""What LiteLLM writes down beside the counts of a request: teams, cached tokens, errors."""

from __future__ import annotations

from typing import Any

import msgspec


class Details(msgspec.Struct):
    cached_tokens: Any = None
    reasoning_tokens: Any = None


class Usage(msgspec.Struct):
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None
    cache_read_input_tokens: Any = None
    cache_creation_input_tokens: Any = None


class ErrorInformation(msgspec.Struct):
    error_code: Any = None
    error_class: Any = None


class Metadata(msgspec.Struct):
    user_api_key_team_alias: str | None = None
    user_api_key_team_id: str | None = None
    user_api_key_alias: str | None = None
    usage_object: Usage | None = None
    additional_usage_values: Usage | None = None
    error_information: ErrorInformation | None = None


DETAILS = {
    "cached_tokens": ("cache_read_input_tokens", "prompt_tokens_details.cached_tokens"),
    "cache_write_tokens": ("cache_creation_input_tokens",),
    "reasoning_tokens": ("completion_tokens_details.reasoning_tokens",),
}


def detail(metadata: Metadata, paths: tuple[str, ...]) -> Any:
    """The first of some counts that is known."""
    for usage in (metadata.additional_usage_values, metadata.usage_object):
        for path in paths:
            value: Any = usage
            for key in path.split("."):
                value = getattr(value, key, None)
            if value is not None:
                return value
    return None
