"""Streaming requests to an OpenAI-compatible server, and when each chunk of an answer arrived.

One monotonic clock; a connection per request (a kept-alive one that was left at [DONE] fails with llama.cpp).
What an answer says is never kept: chunks are counted and timed. Whatever a server sends, a request ends:
without a token for `stall_s` it has stalled, and more than it can mean is not read.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from agentctl.errors import UsageError

try:
    import httpx
except ModuleNotFoundError:  # an extra: most commands never talk to anybody
    httpx = None  # type: ignore[assignment]

STALL_S = 30.0  # without a token
QUICK_S = 10.0  # for what a server says of itself
MOST_WAITS = 2
MOST_LINE = 1_000_000  # bytes of one event: more is no token
MOST_SAID = 4_000_000  # bytes of what a server says of itself
SPARE_EVENTS = 64  # beside two for each token asked for
LOAD = re.compile(
    r"^(?:vllm:num_requests_(?:running|waiting)|sglang:num_(?:running|queue)_reqs|"
    r"llamacpp:requests_(?:processing|deferred))(?:\{[^}]*\})?\s+([0-9.eE+-]+)",
    re.MULTILINE,
)
ENDED = re.compile("closed|disconnected")  # the only way to tell an early end from nonsense in httpx


def now() -> float:
    """The event loop's clock, monotonic: all times of a run are on it."""
    return asyncio.get_running_loop().time()


@dataclass(frozen=True)
class Dialect:
    """How a server is asked, as far as it differs: found by dialect.find_dialect, kept in the file's header.

    extras           keys beyond the API that it takes: ignore_eos, cache_salt
    bias_token       of a character of its own, forced so that no half one is withheld; None: not needed
    tokens_per_word  of our words, and the tokens around them (begin of text, chat template), of text
    """

    api: str = "completions"  # completions | chat
    prompts: str = "tokens"  # tokens | text
    extras: tuple[str, ...] = ("ignore_eos", "cache_salt")
    bias_token: int | None = None
    tokens_per_word: float = 1.5  # a guess
    tokens_around: float = 0.0

    def as_header(self) -> dict[str, Any]:
        return {**asdict(self), "extras": list(self.extras)}


@dataclass
class Answer:
    """What a client saw of one request; times in seconds from `sent`, which is on the monotonic clock."""

    sent: float
    status: str = "cut"  # ok | http | refused | not streamed | stalled | closed | failed | malformed | cut
    http: int | None = None
    chunks_s: list[float] = field(default_factory=list)  # arrivals of tokens
    end_s: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish: str | None = None


class Client:
    """Talks to `base` (.../v1). Use as an async context; nothing is retried and no redirect is followed."""

    def __init__(
        self, base: str, key: str | None = None, stall_s: float = STALL_S, dialect: Dialect | None = None
    ) -> None:
        if httpx is None:
            raise UsageError("needs httpx", place="endpoint", hint="pip install 'agentctl[endpoint]'")
        self.base, self.stall_s, self.dialect = base, stall_s, dialect or Dialect()
        self.key = key
        self._waits = 0  # in vain, for /metrics, one after the other
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.AsyncClient(
            headers={**headers, "Connection": "close", "Accept-Encoding": "identity"},
            timeout=httpx.Timeout(None, connect=min(stall_s, QUICK_S)),  # the rest is timed by the callers
            limits=httpx.Limits(max_keepalive_connections=0),
            follow_redirects=False,  # the key is for this server
            trust_env=False,  # no proxy between the clock and the engine
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def models(self) -> list[dict[str, Any]] | int | None:
        """The models that the server names; an HTTP status; or None where nothing answers."""
        said = await self.ask(f"{self.base}/models")
        if said is None or said[0] != 200:
            return None if said is None else said[0]
        try:
            found = json.loads(said[1])["data"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return 200
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else 200

    async def load(self) -> float | None:
        """Requests that the engine says it has, running and waiting; None where it does not say."""
        found = LOAD.findall(await self.metrics())
        try:
            load = sum(map(float, found)) if found else math.nan
        except ValueError:
            return None
        return load if 0 <= load < math.inf else None

    async def metrics(self) -> str:
        """What the engine says at /metrics; empty where it says nothing. Where it lets us wait again and
        again it is asked no more: each time would cost as much as the requests between."""
        if self.is_mute:
            return ""
        began = now()
        said = await self.ask(f"{self.root}/metrics")
        self._waits = self._waits + 1 if said is None and now() - began >= QUICK_S else 0
        return said[1].decode(errors="replace") if said and said[0] == 200 else ""

    @property
    def is_mute(self) -> bool:
        return self._waits >= MOST_WAITS

    @property
    def root(self) -> str:
        return self.base.removesuffix("/v1")

    async def ask(self, url: str, body: dict[str, Any] | None = None) -> tuple[int, bytes] | None:
        """Status and content of a small question; None where no whole answer came."""
        content = b""
        try:
            async with (
                asyncio.timeout(QUICK_S),
                self._http.stream("GET" if body is None else "POST", url, json=body) as reply,
            ):
                async for piece in reply.aiter_raw():
                    content += piece
                    if len(content) > MOST_SAID:
                        return None
                return reply.status_code, content
        except (httpx.HTTPError, TimeoutError):
            return None

    def body(self, model: str, prompt: Sequence[int] | str, max_tokens: int, salt: str = "") -> bytes:
        """The request as it is sent."""
        asked: dict[str, Any] = {
            "model": model, "max_tokens": max_tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True},
        }  # fmt: skip
        if self.dialect.api == "chat":
            asked["messages"] = [{"role": "user", "content": prompt}]
        else:
            asked["prompt"] = prompt
        if "ignore_eos" in self.dialect.extras:
            asked["ignore_eos"] = True
        if "cache_salt" in self.dialect.extras and salt:
            asked["cache_salt"] = salt.replace("/", ".")  # vLLM refuses a path
        if self.dialect.bias_token is not None:
            asked["logit_bias"] = {str(self.dialect.bias_token): 100}
        return json.dumps(asked, separators=(",", ":")).encode()

    async def complete(
        self, body: bytes, max_tokens: int, answer: Answer, on_token: Callable[[], None] = lambda: None
    ) -> None:
        """Fill in `answer` as chunks arrive, so that a cancelled request keeps what it saw."""
        path = "chat/completions" if self.dialect.api == "chat" else "completions"
        headers = {"Content-Type": "application/json"}
        answer.sent = now()
        try:
            async with (
                asyncio.timeout(self.stall_s) as patience,
                self._http.stream("POST", f"{self.base}/{path}", content=body, headers=headers) as reply,
            ):
                answer.http = reply.status_code
                if reply.status_code != 200:
                    answer.status = "http"
                elif "text/event-stream" not in reply.headers.get("content-type", ""):
                    answer.status = "not streamed"
                else:

                    def took_token() -> None:
                        patience.reschedule(now() + self.stall_s)
                        on_token()

                    answer.status = await _read(reply, max_tokens, answer, took_token)
        except (httpx.TimeoutException, TimeoutError) as error:
            answer.status = "refused" if isinstance(error, httpx.ConnectTimeout) else "stalled"
        except httpx.ConnectError:
            answer.status = "refused"
        except httpx.HTTPError as error:
            nonsense = isinstance(error, httpx.RemoteProtocolError) and not ENDED.search(str(error))
            answer.status = "malformed" if nonsense else "closed"
        answer.end_s = now() - answer.sent


async def _read(reply: Any, max_tokens: int, answer: Answer, on_token: Callable[[], None]) -> str:
    """Status of the stream that `reply` is: ok when it ended as it should."""
    left, silent_end, events = b"", None, 0
    async for piece in reply.aiter_raw():
        at = now() - answer.sent
        *lines, left = (left + piece).split(b"\n")
        if max(map(len, (left, *lines))) > MOST_LINE:
            return "malformed"
        for line in lines:
            data = line.strip().removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
            if data == b"[DONE]":
                _last_token(answer, silent_end)
                return "ok"
            if not data:
                continue
            events += 1
            try:
                event = json.loads(data)
                if event.get("error"):
                    return "failed"
                is_token, ends = _event(event, answer)
            except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
                return "malformed"
            if events > 2 * max_tokens + SPARE_EVENTS:
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
    delta = choices[0].get("delta")
    said = choices[0] if delta is None else delta
    text = said.get("text") or said.get("content") or said.get("reasoning_content") or said.get("reasoning")
    reason = choices[0].get("finish_reason")
    answer.finish = reason if reason in ("length", "stop", None) else "other"
    is_silent = reason is None and "role" not in said  # a token without text; a chat's first event is none
    return bool(text) or is_silent, reason is not None


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 10**9 else None


def _last_token(answer: Answer, silent_end: float | None) -> None:
    """A last token without text (half a character) comes with the end; llama.cpp ends without one."""
    if silent_end is not None and answer.completion_tokens == len(answer.chunks_s) + 1:
        answer.chunks_s.append(silent_end)
