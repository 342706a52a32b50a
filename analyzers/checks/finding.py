"""What a check finds, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import polars as pl

from agentctl.trace import Trace

Level = Literal["note", "warn", "fail"]  # good to know; a result depends on it; no claim stands on this log

COLUMNS = [
    "request_id", "source_file", "source_row", "model", "instance", "session_id", "session_source",
    "session_conf", "parent_request_id", "agent_path", "origin", "arrival_s", "ttft_s", "e2e_s",
    "end_s", "gap_s", "gap_kind", "prompt_tokens", "output_tokens", "token_source", "status",
    "tip_node", "n_blocks",
]  # fmt: skip


@dataclass(frozen=True)
class Finding:
    check: str  # stable name
    level: Level
    fact: str  # what was seen, with its count
    consequence: str
    cure: str
    count: int | None = None
    share: float | None = None  # of the rows or sessions that the fact speaks of


@dataclass(frozen=True)
class Log:
    """A trace under inspection."""

    trace: Trace

    @property
    def meta(self) -> dict[str, Any]:
        return self.trace.meta

    @property
    def is_synthesised(self) -> bool:
        """Session starts were made up at ingest: nothing can be said about the log's edges or span."""
        return bool(self.meta["time"]["origin"] == "synthesised")

    @cached_property
    def rows(self) -> pl.DataFrame:
        return self.trace.requests(COLUMNS)

    @cached_property
    def sessions(self) -> pl.DataFrame:
        """Per session, by its first request: origin of that, requests, first arrival, last known end."""
        return self.rows.group_by("session_id", maintain_order=True).agg(
            pl.col("origin").cast(pl.String).first(),
            pl.len().alias("requests"),
            pl.col("arrival_s").first().alias("first_s"),
            pl.max_horizontal("arrival_s", "end_s").max().alias("last_s"),
        )


Check = Callable[[Log], Finding | None]
