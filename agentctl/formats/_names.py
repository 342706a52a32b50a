"""Names that several logs give to one request."""

from __future__ import annotations

import re

_PREFIX = re.compile(r"^(?:chatcmpl|cmpl|embd|pool|score|rerank|classify|resp)[-_]")
_UUID = re.compile(r"([0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12})(?:-.*)?")
_INDEX = re.compile(r"-[0-9]{1,3}$")


def bare_id(request_id: str | None) -> str | None:
    """What the logs of one request have in common, for Batch column join_id.

    Engines put the kind of call before the X-Request-Id of the caller (vLLM: chatcmpl-ID, cmpl-ID-0, where
    the last number counts the prompts of one call).
    """
    if not request_id:
        return None
    bare = _PREFIX.sub("", request_id)
    has_index = bare != request_id and not request_id.startswith(("chatcmpl", "resp"))
    return _INDEX.sub("", bare) if has_index else bare


def shared_id(join_id: str | None) -> str | None:
    """The same id in one spelling: without the kind of call, a UUID without dashes and without what engines
    put behind it (vLLM's internal ids: chatcmpl-UUID-9f86d081)."""
    bare = bare_id(join_id)
    match = _UUID.fullmatch(bare) if bare else None
    return match.group(1).replace("-", "").lower() if match else bare
