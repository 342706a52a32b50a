"""What the user of `agentctl ingest` may choose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agentctl.errors import UsageError

MAX_BLOCK_TOKENS = 1 << 20  # no engine hashes more tokens at once


@dataclass(frozen=True)
class IngestOptions:
    """Defaults are those of the command line; `format` None means recognised by content."""

    format: str | None = None
    map: Mapping[str, str] = field(default_factory=dict)  # schema column -> field of the file
    sessions: Literal["auto", "explicit", "none"] = "auto"
    max_bad: int | None = None
    max_bad_ratio: float | None = None
    block_tokens: int | None = None
    json_document: bool = False
    session_rate_per_min: float = 1.0
    seed: int = 0
    duplicates: Literal["drop", "keep"] = "drop"
    workers: int = 1
    force: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.session_rate_per_min < math.inf:
            raise UsageError(
                f"is {self.session_rate_per_min}",
                place="--session-rate",
                expected="a finite number above 0, sessions per minute",
            )
        if self.block_tokens is not None and not 1 <= self.block_tokens <= MAX_BLOCK_TOKENS:
            raise UsageError(
                f"is {self.block_tokens}", place="--block-tokens", expected=f"1 to {MAX_BLOCK_TOKENS}"
            )


def parse_map(pairs: Sequence[str]) -> dict[str, str]:
    """`["prompt_tokens=usage.input", ...]` -> {column: field}. Raises UsageError."""
    columns: dict[str, str] = {}
    for pair in pairs:
        column, equals, name = pair.partition("=")
        if not equals or not column.strip() or not name.strip():
            raise UsageError(f"{pair!r} is no mapping", place="--map", expected="COLUMN=FIELD")
        if any("\ud800" <= char <= "\udfff" for char in pair):  # bytes of the command line that are no text
            raise UsageError(f"{pair!r} is not UTF-8", place="--map", expected="COLUMN=FIELD")
        if column.strip() in columns:
            raise UsageError(f"{column.strip()} is mapped twice", place="--map")
        columns[column.strip()] = name.strip()
    return columns
