"""What SGLang says of one request, the same in its request log and in its exported metrics.

Source: SGLang 0.5.23, managers/io_struct.py (GenerateReqInput), managers/tokenizer_manager.py (meta_info;
times only with --enable-metrics). Times are unix seconds, durations seconds; prompt_tokens includes the
cached ones, completion_tokens those of reasoning. Sessions are named by any of session_params.id, session_id,
conversation_id, routing_key and the header x-smg-routing-key. extra_key (a cache salt) keeps KV apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from agentctl.formats._columns import Columns
from agentctl.formats._names import bare_id
from agentctl.formats._template import messages_of
from agentctl.formats._token_chains import put_token_chains
from agentctl.formats.base import Batch, Reading
from agentctl.ingest.lines import Fault, ValueDecoder
from agentctl.ingest.prompts import Prompt
from agentctl.ingest.source import Chunk

CARRIES = (
    "request_id", "session_id", "instance", "arrival_s", "ttft_s", "e2e_s", "queue_s", "prefill_s",
    "decode_s", "prompt_tokens", "output_tokens", "cached_tokens", "cached_external_tokens",
    "reasoning_tokens", "max_tokens", "status", "http_status", "finish_reason", "stream", "priority",
    "block_tokens", "prompts",
)  # fmt: skip

HEALTH_CHECK = "HEALTH_CHECK"  # begins the ids of the server's own requests
_UNIX = 1e9  # seconds: earlier times are of another clock
_HALF = 1024  # characters that level 2 leaves of a long text at either end


class SessionParams(msgspec.Struct):
    id: str | int | None = None


class Sampling(msgspec.Struct):
    max_new_tokens: int | None = None


class Sent(msgspec.Struct):
    """The request: `obj` of the log, request_parameters of the export."""

    rid: str | list[str] | None = None
    received_time: float | None = None
    stream: bool | None = None
    session_params: SessionParams | list[SessionParams] | None = None
    session_id: str | int | None = None
    conversation_id: str | int | None = None
    routing_key: str | int | None = None
    extra_key: str | list[str] | None = None
    priority: int | None = None
    sampling_params: Sampling | list[Sampling] | None = None
    text: msgspec.Raw = msgspec.Raw(b"null")
    input_ids: msgspec.Raw = msgspec.Raw(b"null")


class FinishReason(msgspec.Struct):
    type: str | None = None
    status_code: int | None = None


class CachedDetails(msgspec.Struct):
    host: int | None = None
    storage: int | None = None


class MetaInfo(msgspec.Struct):
    """How it went: out.meta_info of the log, the line itself of the export."""

    id: str | None = None
    finish_reason: FinishReason | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cached_tokens_details: CachedDetails | None = None
    reasoning_tokens: int | None = None
    dp_rank: int | None = None
    e2e_latency: float | None = None
    first_token_latency: float | None = None
    queue_time: float | None = None
    request_received_ts: float | None = None
    request_finished_ts: float | None = None
    forward_entry_time: float | None = None
    prefill_finished_time: float | None = None


@dataclass(slots=True)
class Request:
    """One request, whole or only begun. `stamp_ns`: its arrival by the times of lines."""

    key: object
    line: int
    sent: Sent
    meta: MetaInfo | None
    session: str | int | None  # of a header
    stamp_ns: int | None
    prompt: Prompt | None
    tokens: list[int] | None
    size: int
    has_ended: bool = False
    status: str | None = None  # where no meta_info tells

    @property
    def session_id(self) -> str | int | None:
        named = self._session_in_body
        return self.session if named is None else named

    @property
    def is_named_by_header(self) -> bool:
        return self._session_in_body is None and self.session not in (None, "")

    @property
    def _session_in_body(self) -> str | int | None:
        sent = self.sent
        of_params = sent.session_params.id if isinstance(sent.session_params, SessionParams) else None
        named = (of_params, sent.session_id, sent.conversation_id, sent.routing_key)
        return next((name for name in named if name not in (None, "")), None)

    @property
    def arrival_ns(self) -> int | None:
        """Since the epoch; the log's unix times are preferred."""
        time = unix_time(self.sent, self.meta)
        if time is None:
            return self.stamp_ns
        whole = int(time)
        return whole * 1_000_000_000 + round((time - whole) * 1e9)


def unix_time(sent: Sent, meta: MetaInfo | None) -> float | None:
    """When the request arrived, if the log has it on the clock of the world."""
    times = (meta.request_received_ts if meta else None, sent.received_time)
    return next((time for time in times if time is not None and _UNIX <= time < 10 * _UNIX), None)


_texts = ValueDecoder(str)
_tokens = ValueDecoder(list[int])


def prompt_of(sent: Sent, is_shortened_at_level_2: bool) -> tuple[Prompt | None, list[int] | None, int]:
    """Prompt and token ids where they are whole, and their size.

    Lists that were shortened have "..." among them, so that they are no lists of numbers.
    """
    if len(sent.text) <= len(b"null") >= len(sent.input_ids):
        return None, None, 0
    tokens, text = _tokens.decode(sent.input_ids), _texts.decode(sent.text)
    prompt = None
    if isinstance(text, str) and not (is_shortened_at_level_2 and _is_shortened(text)):
        group = sent.extra_key if isinstance(sent.extra_key, str) else None
        prompt = Prompt(messages_of(text), group=group) if text else None
    tokens = None if isinstance(tokens, Fault) or not tokens or min(tokens) < 0 else tokens
    return prompt, tokens, len(sent.text) + 8 * len(tokens or ())


def _is_shortened(text: str) -> bool:
    return len(text) == 2 * _HALF + 3 and text[_HALF : _HALF + 3] == "..."


def batch(reading: Reading, chunk: Chunk | None, requests: Sequence[Request]) -> Batch:
    """Rows of some requests."""
    columns = Columns(reading, chunk, np.array([r.line for r in requests], dtype=np.int64))
    metas = [r.meta or MetaInfo() for r in requests]
    columns.arrival([r.arrival_ns for r in requests], "$.request_received_ts", "ns")
    for name, field in (
        ("ttft_s", "first_token_latency"),
        ("e2e_s", "e2e_latency"),
        ("queue_s", "queue_time"),
    ):
        columns.seconds(name, [getattr(meta, field) for meta in metas], f"$.{field}")
    spans = [
        (meta.forward_entry_time, meta.prefill_finished_time, meta.request_finished_ts) for meta in metas
    ]
    columns.seconds("prefill_s", [_between(start, end) for start, end, _ in spans], "$.prefill_finished_time")
    columns.seconds("decode_s", [_between(start, end) for _, start, end in spans], "$.request_finished_ts")
    for name, field in (
        ("output_tokens", "completion_tokens"),
        ("cached_tokens", "cached_tokens"),
        ("reasoning_tokens", "reasoning_tokens"),
    ):
        columns.tokens(name, [getattr(meta, field) for meta in metas], f"$.{field}")
    prompt = [
        len(r.tokens) if meta.prompt_tokens is None and r.tokens else meta.prompt_tokens
        for r, meta in zip(requests, metas, strict=True)
    ]
    columns.tokens("prompt_tokens", prompt, "$.prompt_tokens", low=1)
    columns.tokens("cached_external_tokens", [_external(meta) for meta in metas], "$.cached_tokens_details")
    columns.tokens("max_tokens", [_max_tokens(r.sent) for r in requests], "$.sampling_params.max_new_tokens")
    ids = [(r.meta and r.meta.id) or (r.sent.rid if isinstance(r.sent.rid, str) else None) for r in requests]
    columns.text("request_id", ids)
    columns.text("join_id", [bare_id(id) for id in ids])
    columns.text("session_id", [r.session_id for r in requests])
    columns.put("session_header", [True if r.is_named_by_header else None for r in requests])
    columns.text("instance", [None if meta.dp_rank is None else f"dp{meta.dp_rank}" for meta in metas])
    columns.put("stream", [r.sent.stream for r in requests])
    priorities = [r.sent.priority for r in requests]
    too_large = np.array(
        [p is not None and not -(1 << 31) <= p < 1 << 31 for p in priorities], dtype=np.bool_
    )
    columns.reject(too_large, "out_of_range", "$.priority")
    columns.put("priority", [None if bad else p for p, bad in zip(priorities, too_large, strict=True)])
    _put_ends(columns, requests)
    # Images are expanded in the prompt, but not in input_ids.
    lists = [
        r.tokens if r.tokens and len(r.tokens) == n else None for r, n in zip(requests, prompt, strict=True)
    ]
    if any(lists):
        groups = [r.sent.extra_key if isinstance(r.sent.extra_key, str) else None for r in requests]
        put_token_chains(reading, columns, lists, groups)
    if any(r.prompt for r in requests):
        columns.prompts([r.prompt for r in requests])
    return columns.batch()


def _put_ends(columns: Columns, requests: Sequence[Request]) -> None:
    reasons = [(r.meta and r.meta.finish_reason) or FinishReason() for r in requests]
    codes = [reason.status_code for reason in reasons]
    columns.put("status", [_status(reason) or r.status for reason, r in zip(reasons, requests, strict=True)])
    columns.put("http_status", [code if code and 100 <= code <= 599 else None for code in codes])
    said = [None if reason.type == "abort" else reason.type for reason in reasons]
    columns.text("finish_reason", said)
    # Calls are found in the text by the API server, after the engine said how it stopped.
    columns.put("hides_calls", [True if reason == "stop" else None for reason in said])


def _status(reason: FinishReason) -> str | None:
    if reason.type != "abort":
        return reason.type and "ok"
    code = reason.status_code or 0
    return "rejected" if 400 <= code < 500 or code == 503 else "error" if code >= 500 else "aborted"


def _between(start: float | None, end: float | None) -> float | None:
    return end - start if start and end and end >= start >= _UNIX else None


def _external(meta: MetaInfo) -> int | None:
    """Cached tokens that came from the host's memory or from storage."""
    details = meta.cached_tokens_details
    if details is None or details.host is details.storage is None:
        return None
    return (details.host or 0) + (details.storage or 0)


def _max_tokens(sent: Sent) -> Any:
    return sent.sampling_params.max_new_tokens if isinstance(sent.sampling_params, Sampling) else None
