"""A profile as a TOML file: what a calibration writes and agentctl/profile.py reads."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(tables: Mapping[str, Any], comment: str = "") -> str:
    """Tables as TOML: plain values first, then tables; None is left out, for unknown has no value in TOML."""
    lines = [f"# {line}" for line in comment.splitlines()] + list(_table(tables, ()))
    return "\n".join(lines) + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    plain = {
        key: value for key, value in table.items() if value is not None and not isinstance(value, Mapping)
    }
    if path and (plain or not table):
        yield f"\n[{'.'.join(map(_key, path))}]"
    for key, value in plain.items():
        yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _table(value, (*path, key))


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _value(key)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float() if not math.isfinite(value):
            raise ValueError(
                f"{value} in a profile"
            )  # ours: unknown is left out, and nothing else is infinite
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise TypeError(f"{type(value).__name__} has no form in a profile")


def without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table without what is unknown: TOML has no null."""
    return {
        key: without_none(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }
