"""Requests of vLLM's text log, put together from their lines, and their columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agentctl.formats._columns import Columns
from agentctl.formats._names import bare_id
from agentctl.formats._token_chains import put_token_chains
from agentctl.formats.base import Batch, Reading
from agentctl.ingest.prompts import Prompt


@dataclass(slots=True)
class Request:
    key: object
    line: int
    id: str
    arrival_ns: int
    service: str | None
    max_tokens: int | None
    prompt: Prompt | None
    tokens: list[int] | None
    size: int
    has_ended: bool = False
    end_ns: int | None = None
    status: str | None = None
    finish_reason: str | None = None
    output_tokens: int | None = None
    stream: bool | None = None


def batch(reading: Reading, requests: list[Request], statuses: list[str | None]) -> Batch:
    """Their columns, texts and token ids."""
    columns = Columns(reading, None, np.array([r.line for r in requests], dtype=np.int64))
    columns.arrival([r.arrival_ns for r in requests], "time", "ns")
    lasted = [None if r.end_ns is None else max(r.end_ns - r.arrival_ns, 0) / 1e9 for r in requests]
    columns.seconds("e2e_s", lasted, "time")
    columns.text("request_id", [r.id for r in requests])
    columns.text("join_id", [bare_id(r.id) for r in requests])
    columns.text("instance", [r.service for r in requests])
    columns.text("finish_reason", [r.finish_reason for r in requests])
    columns.tokens("max_tokens", [r.max_tokens for r in requests], "max_tokens")
    columns.tokens("output_tokens", [r.output_tokens for r in requests], "output_token_ids")
    columns.put("stream", [r.stream for r in requests])
    columns.put("status", statuses)
    _put_prompts(reading, columns, requests)
    return columns.batch()


def _put_prompts(reading: Reading, columns: Columns, requests: list[Request]) -> None:
    if any(r.tokens for r in requests):
        columns.tokens("prompt_tokens", [r.tokens and len(r.tokens) for r in requests], "prompt_token_ids")
        groups = [r.prompt.group if r.prompt else None for r in requests]
        put_token_chains(reading, columns, [r.tokens for r in requests], groups)
    if any(r.prompt for r in requests):
        columns.prompts([r.prompt for r in requests])
