"""Streaming requests to an OpenAI-compatible server, and when each chunk of an answer arrived.

One monotonic clock; a connection per request (a kept-alive one that was left at [DONE] fails with llama.cpp).
What an answer says is never kept: chunks are counted and timed.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentctl.errors import UsageError

try:
    import httpx
except ModuleNotFoundError:  # an extra: most commands never talk to anybody
    httpx = None  # type: ignore[assignment]

STALL_S = 30.0  # without a byte
MOST_LINE = 1_000_000  # bytes of one event: more is no token
LOAD = re.compile(
    r"^(?:vllm:num_requests_(?:running|waiting)|sglang:num_(?:running|queue)_reqs|"
    r"llamacpp:requests_(?:processing|deferred))(?:\{[^}]*\})?\s+([0-9.eE+-]+)",
    re.MULTILINE,
)


def now() -> float:
    """The event loop's clock, monotonic: all times of a run are on it."""
    return asyncio.get_running_loop().time()


@dataclass
class Answer:
    """What a client saw of one request; times in seconds from `sent`, which is on the monotonic clock."""

    sent: float
    status: str = "cut"  # ok | http | refused | not streamed | stalled | closed | malformed | cut
    http: int | None = None
    chunks_s: list[float] = field(default_factory=list)  # arrivals of tokens
    end_s: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish: str | None = None


class Client:
    """Talks to `base` (.../v1). Use as an async context; nothing is retried and no redirect is followed."""

    def __init__(self, base: str, key: str | None = None, stall_s: float = STALL_S) -> None:
        if httpx is None:
            raise UsageError("needs httpx", place="endpoint", hint="pip install 'agentctl[endpoint]'")
        self.base, self.stall_s = base, stall_s
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.AsyncClient(
            headers={**headers, "Connection": "close"},
            timeout=httpx.Timeout(stall_s, connect=min(stall_s, 10.0)),
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=False,  # no proxy between the clock and the engine
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def models(self) -> list[dict[str, Any]] | int | None:
        """The models that the server names; an HTTP status; or None where nothing answers."""
        try:
            reply = await self._http.get(f"{self.base}/models")
            found = reply.json()["data"] if reply.status_code == 200 else reply.status_code
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            return None if isinstance(error, httpx.HTTPError) else 200
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else found

    async def load(self) -> float | None:
        """Requests that the engine says it has, running and waiting; None where it does not say."""
        try:
            reply = await self._http.get(f"{self.base.removesuffix('/v1')}/metrics")
        except httpx.HTTPError:
            return None
        found = LOAD.findall(reply.text) if reply.status_code == 200 else []
        return sum(map(float, found)) if found else None

    async def complete(
        self,
        model: str,
        prompt: Sequence[int] | str,
        max_tokens: int,
        answer: Answer,
        on_token: Callable[[], None] = lambda: None,
    ) -> None:
        """Fill in `answer` as chunks arrive, so that a cancelled request keeps what it saw."""
        body = {
            "model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "stream": True,
            "ignore_eos": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        answer.sent = now()
        try:
            async with (
                asyncio.timeout(self.stall_s * 4),
                self._http.stream("POST", f"{self.base}/completions", json=body) as reply,
            ):
                answer.http = reply.status_code
                if reply.status_code != 200:
                    answer.status = "http"
                elif "text/event-stream" not in reply.headers.get("content-type", ""):
                    answer.status = "not streamed"
                else:
                    answer.status = await _read(reply, answer, on_token)
        except (httpx.TimeoutException, TimeoutError) as error:
            answer.status = "refused" if isinstance(error, httpx.ConnectTimeout) else "stalled"
        except httpx.ConnectError:
            answer.status = "refused"
        except httpx.HTTPError:
            answer.status = "closed"
        answer.end_s = now() - answer.sent


async def _read(reply: Any, answer: Answer, on_token: Callable[[], None]) -> str:
    """Status of the stream that `reply` is: ok when it ended as it should."""
    left, silent_end = b"", None
    async for piece in reply.aiter_bytes():
        at = now() - answer.sent
        *lines, left = (left + piece).split(b"\n")
        if len(left) > MOST_LINE:
            return "malformed"
        for line in lines:
            data = line.strip().removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
            if data == b"[DONE]":
                _last_token(answer, silent_end)
                return "ok"
            if not data:
                continue
            try:
                event = json.loads(data)
                is_token, ends = _event(event, answer)
            except (ValueError, TypeError, AttributeError, RecursionError):
                return "malformed"
            if is_token:
                answer.chunks_s.append(at)
                on_token()
            elif ends:
                silent_end = at
    return "closed"


def _event(event: dict[str, Any], answer: Answer) -> tuple[bool, bool]:
    """(does it bring a token, does it end the answer without text)."""
    if usage := event.get("usage"):
        answer.prompt_tokens = _count(usage.get("prompt_tokens"))
        answer.completion_tokens = _count(usage.get("completion_tokens"))
        answer.cached_tokens = _count((usage.get("prompt_tokens_details") or {}).get("cached_tokens"))
    choices = event.get("choices") or []
    if not choices:
        return False, False
    reason = choices[0].get("finish_reason")
    answer.finish = reason if reason in ("length", "stop", None) else "other"
    return bool(choices[0].get("text")) or reason is None, reason is not None


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 10**9 else None


def _last_token(answer: Answer, silent_end: float | None) -> None:
    """A last token without text (half a character) comes with the end; llama.cpp ends without one."""
    if silent_end is not None and answer.completion_tokens == len(answer.chunks_s) + 1:
        answer.chunks_s.append(silent_end)
