"""The error of one request, in words, without a word of the server's answer."""

from __future__ import annotations

from agentctl.endpoint.address import KEYS
from agentctl.endpoint.client import Answer
from agentctl.errors import InputError

KEY_HINT = "the key is read from " + " or ".join(KEYS)
FACTS = {
    "refused": ("nothing answers there", "is the server up, and the port right?"),
    "not streamed": ("the answer is not streamed", "timings need a stream of events, chunk by chunk"),
    "stalled": ("no chunk came for too long", "the same command goes on when the server answers again"),
    "closed": ("the stream ended before [DONE]", "a proxy between, or the engine died: see its log"),
    "failed": ("the server reports an error inside the stream", "its own log says why"),
    "malformed": (
        "the stream is no sequence of events of the OpenAI API", "is it an OpenAI-style server?",
    ),
    "cut": ("the time was up before it answered", "allow more seconds"),
}  # fmt: skip


def failure(answer: Answer) -> InputError:
    fact, hint = FACTS.get(answer.status, FACTS["malformed"])
    if answer.status == "http":
        fact, hint = _of_http(answer.http or 0)
    return InputError(fact, place="endpoint", hint=hint)


def _of_http(code: int) -> tuple[str, str]:
    if code in (401, 403):
        return f"HTTP {code}: not allowed", KEY_HINT
    if code == 404:
        return "HTTP 404: no such path or model", "the URL ends before /completions; --served-model"
    if 300 <= code < 400:
        return f"HTTP {code}: it sends us elsewhere", "no redirect is followed: give the address it leads to"
    if code in (400, 413, 422):
        hint = "is --max-context right? --prompts text, if it takes no token ids"
        return f"HTTP {code}: the request was refused", hint
    if code == 429:
        return "HTTP 429: too many requests for it", "its rate limit would be measured, not the engine"
    return f"HTTP {code}", "the server's own log says why; the same command goes on later"
