"""Values of cells that come without a type (CSV text, Parquet). What cannot be read raises ValueError.

An empty cell is None, unknown. The lax rule of JSON lines holds here too: "12" and "12.0" are the whole
number 12, 1.5 is none and is never rounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

NS_PER = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}

_WHOLE = re.compile(r"([+-]?[0-9]{1,40})(?:\.0*)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,]([0-9]{1,9})[0-9]*)?"
    r" ?(Z|z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_UTC = ("Z", "+00:00", "+00")
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


class Instant(NamedTuple):
    """Nanoseconds since the epoch; `zoned` when the text says its zone (else it was read as UTC)."""

    ns: int
    zoned: bool


def whole(value: Any) -> int | None:
    """A whole number."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        match = _WHOLE.fullmatch(value.strip())
        if match:
            return int(match.group(1))
    elif isinstance(value, int) and not isinstance(value, bool):
        return value
    elif isinstance(value, float | Decimal):
        if value != value:  # how pandas writes a missing number into a column of floats
            return None
        if value == int(value):
            return int(value)
    raise ValueError


def number(value: Any) -> float | None:
    """A number."""
    exact = decimal(value)
    return None if exact is None else float(exact)


def decimal(value: Any) -> Decimal | None:
    """A number exactly as it is written; a float is the shortest decimal that reads back as it."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        if _NUMBER.fullmatch(value.strip()):
            return Decimal(value.strip())
    elif isinstance(value, int | Decimal) and not isinstance(value, bool):
        return Decimal(value)
    elif isinstance(value, float):
        return None if value != value else Decimal(repr(value))
    raise ValueError


def text(value: Any) -> str | None:
    """A name; numbers become their text."""
    if value is None or value == "":
        return None
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise ValueError


def json_list(value: Any) -> bytes | None:
    """A list of block ids as JSON text."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, str):
            return bytes(msgspec.json.decode(value.strip(), type=msgspec.Raw))
        return bytes(value) if isinstance(value, msgspec.Raw) else msgspec.json.encode(value)
    except (msgspec.MsgspecError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError from error


def truth(value: Any) -> bool | None:
    """True or false."""
    if value is None or value == "":
        return None
    known = _TRUTH.get(str(value).strip().lower())
    if known is None:
        raise ValueError
    return known


def instant(value: str) -> Instant | None:
    """Date and time in ISO 8601, blank or T between them, exact to the nanosecond; None for an empty cell."""
    if value == "":
        return None
    match = _ISO.fullmatch(value.strip())
    if match is None:
        raise ValueError
    day, clock, fraction, zone = match.groups()
    seconds = _epoch_seconds(day, clock) - _offset_seconds(zone)
    return Instant(seconds * NS_PER["s"] + int((fraction or "0").ljust(9, "0")), zone is not None)


def nanoseconds(value: Decimal, unit: str) -> int:
    """A time in `unit` as whole nanoseconds."""
    if not value.is_finite() or abs(value) > 1 << 64:
        raise ValueError
    return int((value * NS_PER[unit]).to_integral_value())


def convert_all(convert: Callable[[Any], Any], cells: Sequence[Any]) -> list[Any] | None:
    """The same as `convert` on each cell, several times faster; None where only that can tell."""
    if convert not in (whole, instant) or not cells or set(map(type, cells)) != {str}:
        return None
    texts = pa.array(cells, pa.string())
    try:
        if convert is whole:
            numbers: list[Any] = texts.cast(pa.int64()).to_pylist()
            return numbers if pc.all(pc.utf8_is_decimal(texts)).as_py() else None  # Arrow reads 0x10, too
        zone = next((zone for zone in _UTC if cells[0].endswith(zone)), "")
        if zone:
            bare = pc.replace_substring_regex(texts, zone.replace("+", r"\+") + "$", "")
            if pc.any(pc.equal(bare, texts)).as_py():
                return None
            texts = bare
        if pc.min(pc.utf8_length(texts)).as_py() < len("2023-11-16 18:17:03"):
            return None  # Arrow takes dates without a time
        times = texts.cast(pa.timestamp("ns")).cast(pa.int64()).to_pylist()
        return [Instant(ns, bool(zone)) for ns in times]
    except pa.ArrowInvalid:
        return None


@lru_cache(maxsize=1024)  # requests come many to the second
def _epoch_seconds(day: str, clock: str) -> int:
    return int(datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=UTC).timestamp())


def _offset_seconds(zone: str | None) -> int:
    if zone is None or zone[0] not in "+-":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[3:].lstrip(":") or 0)
    return (-60 if zone[0] == "-" else 60) * minutes
