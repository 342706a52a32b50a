"""What the user of `agentctl ingest` may choose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from agentctl.errors import UsageError
from agentctl.ingest.hashing import DEFAULT_BLOCK_TOKENS, HashOptions, read_salt
from agentctl.ingest.zones import parse_zone

MAX_BLOCK_TOKENS = 1 << 20  # no engine hashes more tokens at once
MAX_YEAR = 2115  # as far as times in 62 bits of nanoseconds go


@dataclass(frozen=True)
class IngestOptions:
    """Defaults are those of the command line; `format` None means recognised by content."""

    format: str | None = None
    map: Mapping[str, str] = field(default_factory=dict)  # schema column -> field of the file
    sessions: Literal["auto", "explicit", "none"] = "auto"
    max_bad: int | None = None
    max_bad_ratio: float | None = None
    quarantine_raw: Path | None = None  # file for the bad lines themselves
    block_tokens: int | None = None
    json_document: bool = False
    session_rate_per_min: float = 1.0
    seed: int = 0
    duplicates: Literal["drop", "keep"] = "drop"
    salt: Path | None = None  # file; None: drawn for this run and forgotten
    hash_ids: bool = False  # requests, sessions, tenants, engines, sub-agents and files become keyed hashes
    blocks: Literal["auto", "token", "bytes", "message"] = "auto"
    tokenizer: Path | None = None
    tools_order: Literal["first", "after-system"] = "first"
    join: str | None = None  # the id by which logs of the same requests become one row a request
    unmatched: Literal["keep", "drop"] = "keep"  # with join: requests that one log alone has
    force: bool = False
    year: int | None = None  # in which logs without years begin
    timezone: str | None = None  # of times without a zone; None: UTC is assumed

    def __post_init__(self) -> None:
        if not 0 < self.session_rate_per_min < math.inf:
            raise UsageError(
                f"is {self.session_rate_per_min}",
                place="--session-rate",
                expected="a finite number above 0, sessions per minute",
            )
        if self.timezone is not None:
            parse_zone(self.timezone)
        if self.year is not None and not 1970 <= self.year <= MAX_YEAR:
            raise UsageError(f"is {self.year}", place="--year", expected=f"1970 to {MAX_YEAR}")
        if self.block_tokens is not None and not 1 <= self.block_tokens <= MAX_BLOCK_TOKENS:
            raise UsageError(
                f"is {self.block_tokens}", place="--block-tokens", expected=f"1 to {MAX_BLOCK_TOKENS}"
            )
        if self.tokenizer and self.blocks not in ("auto", "token"):
            raise UsageError(f"is not used for blocks of {self.blocks}", place="--tokenizer")

    def hash_options(self, output: Path) -> HashOptions:
        """How text is hashed in the dataset `output`. Reads, or makes, the salt's file."""
        salt: dict[str, Any] = {}
        if self.salt is not None:
            salt = {"salt": read_salt(self.salt, output), "is_ephemeral": False}
        return HashOptions(
            level="token" if self.tokenizer else "bytes" if self.blocks == "auto" else self.blocks,
            tokenizer=self.tokenizer,
            block_tokens=self.block_tokens or DEFAULT_BLOCK_TOKENS,
            tools_first=self.tools_order == "first",
            names=self.hash_ids,
            **salt,
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
