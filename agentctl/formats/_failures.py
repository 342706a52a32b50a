"""schema.STATUSES from what clients say about a failure: an HTTP status, an error's name.

Names come from libraries (`APITimeoutError`, `openai.RateLimitError`, `CancelledError`, `timeout`, `499`). Of
the text of an error no more is read than a status at its start: it may quote the prompt.
"""

from __future__ import annotations

import re

_BY_HTTP = {408: "timeout", 429: "rejected", 499: "aborted", 504: "timeout"}
_BY_WORD = {"cancel": "aborted", "abort": "aborted", "disconnect": "aborted"}
_BY_WORD |= {"timeout": "timeout", "timedout": "timeout"}
_BY_WORD |= {"deadline": "timeout", "ratelimit": "rejected", "overloaded": "rejected"}


def status_of_http(code: int | None) -> str | None:
    """None: the code says nothing about a failure."""
    if code is None or code < 400:
        return None
    return _BY_HTTP.get(code, "error")


def status_of_error(name: str) -> str:
    """From the class or type of an error."""
    if (code := http_status_in(name)) is not None:
        return status_of_http(code) or "error"
    word = re.sub(r"[^a-z]", "", name.lower())
    return next((status for part, status in _BY_WORD.items() if part in word), "error")


def http_status_in(name: str | None) -> int | None:
    """The HTTP status that a short text gives: "500", "HTTP 499", "Error code: 400"."""
    match = _HTTP.match(name or "")
    return int(match[1]) if match else None


_HTTP = re.compile(
    r"\s*(?:HTTP|status|error)?[ _]?(?:status)?[ _]?(?:code)?:? ?([1-5][0-9]{2})(?![0-9])", re.I
)
