"""What `--map COLUMN=FIELD` may name: columns of the dataset, with the unit in the name of a time."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import NamedTuple

from agentctl.errors import UsageError
from agentctl.formats._cells import NS_PER

TEXT = (
    "request_id", "parent_request_id", "session_id", "agent_path", "tenant", "model", "instance",
    "finish_reason",
)  # fmt: skip
COUNTS = (
    "prompt_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "cached_external_tokens",
    "reasoning_tokens", "max_tokens", "turn_index", "priority", "n_messages", "n_assistant", "n_tools",
    "n_tool_calls_out",
)  # fmt: skip
DURATIONS = ("ttft", "e2e", "queue", "prefill", "decode", "gap", "slo_ttft", "slo_e2e")
TIMES = ("arrival", "end")
OTHERS = ("hash_ids", "status", "http_status", "stream")
ALIASES = {"input_tokens": "prompt_tokens", "timestamp": "arrival", "block_ids": "hash_ids", "think": "gap"}


class Field(NamedTuple):
    """A column without its unit, where the file has it, and the unit (None: none, or to be found out)."""

    column: str
    path: str
    unit: str | None


def named(column_map: Mapping[str, str]) -> dict[str, Field]:
    """The mapped columns by name. Raises UsageError for names that no column has."""
    fields: dict[str, Field] = {}
    for name, path in column_map.items():
        column, unit = _column_and_unit(name)
        if column in fields:
            raise UsageError(f"{column} is mapped twice", place="--map")
        fields[column] = Field(column, path, unit)
    if "parent_request_id" in fields and "request_id" not in fields:
        raise UsageError("parent_request_id needs request_id, which it refers to", place="--map")
    return fields


def resolve(column_map: Mapping[str, str]) -> dict[str, Field]:
    """The same for a table of which nothing is known: the arrival must be mapped."""
    fields = named(column_map)
    if "arrival" not in fields:
        raise UsageError(
            "no field is mapped to arrival",
            place="--map",
            hint="--map arrival=FIELD for dates and epoch times, --map arrival_s=FIELD for seconds from 0",
        )
    return fields


def _column_and_unit(name: str) -> tuple[str, str | None]:
    stem, _, suffix = name.rpartition("_")
    stem = ALIASES.get(stem, stem)
    if suffix in NS_PER and (stem in DURATIONS or stem in TIMES):
        return stem, suffix
    column = ALIASES.get(name, name)
    if column in (*TEXT, *COUNTS, *TIMES, *OTHERS):
        return column, None
    if column in DURATIONS:
        units = " or ".join(f"{name}_{unit}" for unit in NS_PER)
        raise UsageError(f"{name} needs its unit", place="--map", expected=units)
    known = [*TIMES, *COUNTS, *(f"{stem}_s" for stem in DURATIONS), *TEXT, *OTHERS]
    alike = difflib.get_close_matches(name, [*known, *ALIASES], 1)
    raise UsageError(
        f"{name!r} is no column that can be mapped",
        place="--map",
        expected=None if alike else "one of " + ", ".join(known),
        hint=f"did you mean {alike[0]}?" if alike else None,
    )
