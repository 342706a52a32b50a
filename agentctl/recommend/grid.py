"""Lists and ranges that people write on the command line: every value of them is tried.

4..32            doubling from the first, the last included: 4, 8, 16, 32
1..2+0.25        in steps: 1, 1.25, 1.5, 1.75, 2
64,128           a list; of a policy's parameter too: smetric:slack=1,1.5,hit_ratio=0.5..0.9+0.2,lmetric
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Sequence
from typing import Any, NamedTuple

from agentctl.errors import UsageError
from agentctl.policies._names import split_policies

MOST_VALUES = 100  # of one range: more is a slip of the finger
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
_RANGE = re.compile(rf"(?P<first>{_NUMBER})\.\.(?P<last>{_NUMBER})(?:\+(?P<step>{_NUMBER}))?", re.IGNORECASE)
FORM = "FIRST..LAST (doubling) or FIRST..LAST+STEP"


class Axis(NamedTuple):
    """One thing that is varied: a key of the cluster file, and the values it takes."""

    key: str
    values: tuple[Any, ...]


def axis(text: str, place: str = "--vary") -> Axis:
    """`max_num_seqs=64,128` or `kv_tier.host.capacity_tokens=1e6..8e6`. Raises UsageError."""
    key, equals, rest = text.partition("=")
    key = key.strip()
    pieces = [piece.strip() for piece in rest.split(",")]
    if not equals or not key:
        raise UsageError(f"cannot read {text!r}", place=place, expected="KEY=VALUE,VALUE,...")
    if not all(pieces):
        raise UsageError("an empty grid" if not rest.strip() else "an empty value", place=f"{place} {key}",
                         expected=f"VALUE,VALUE,... or {FORM}")  # fmt: skip
    values: list[Any] = []
    for piece in pieces:
        values += values_in(piece, f"{place} {key}") if ".." in piece else [_value(piece)]
    return Axis(key, tuple(dict.fromkeys(values)))


def values_in(text: str, place: str) -> list[int | float]:
    """A number or a range as numbers; whole where all that is written is whole. Raises UsageError."""
    if ".." not in text:
        return [_number(text, place)]
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"cannot read {text!r}", place=place, expected=FORM)
    first, last = (_number(match[end], place) for end in ("first", "last"))
    step = _number(match["step"], place) if match["step"] else None
    if last < first or (step is not None and step <= 0):
        raise UsageError(f"{text!r} is an empty grid", place=place, expected="FIRST not above LAST")
    if step is None and first <= 0 and first != last:
        raise UsageError(f"{text!r} cannot double from {first:g}", place=place, expected="FIRST..LAST+STEP")
    if (last - first) / step > MOST_VALUES if step else first > 0 and math.log2(last / first) > MOST_VALUES:
        raise UsageError(f"{text!r} has too many values", place=place, expected=f"at most {MOST_VALUES}")
    found = [first]
    while (following := found[-1] * 2 if step is None else first + len(found) * step) < last * (1 - 1e-12):
        found.append(following if isinstance(following, int) else float(f"{following:.12g}"))
    return found if found[-1] == last else [*found, last]


def policy_grid(text: str, place: str = "--policies") -> list[str]:
    """Policies with single parameters, from a list of policies whose parameters may be lists and ranges.

    `smetric:slack=1,2,lmetric` -> `smetric:slack=1`, `smetric:slack=2`, `lmetric`. Raises UsageError.
    """
    found: list[str] = []
    for one in _policies(text):
        name, _, rest = one.rpartition(":")
        if "=" not in rest:
            found.append(one)
            continue
        axes = []
        for pair in _pairs(rest):
            key, _, listed = pair.partition("=")
            values = [v for piece in listed.split(",") for v in _written(piece.strip(), f"{place} {one}")]
            axes.append([f"{key.strip()}={value}" for value in values])
        found += [f"{name}:{','.join(chosen)}" for chosen in itertools.product(*axes)]
    if not found:
        raise UsageError(f"{text!r} holds no name", place=place, expected="NAME or NAME,NAME,...")
    return list(dict.fromkeys(found))


def _policies(text: str) -> list[str]:
    """Split at commas, but not before KEY=NUMBER nor before another number of the same key."""
    joined: list[str] = []
    value = rf"{_NUMBER}|[^,:=]*\.\.[^,:=]*"
    for part in split_policies(text):
        after_parameter = bool(joined) and "=" in joined[-1].rpartition(":")[2]
        if after_parameter and re.match(rf"(?:{value})(?:,|$)", part):  # `2`, or `2,hit_ratio=0.5`
            joined[-1] += f",{part}"
        else:
            joined.append(part)
    return joined


def _pairs(rest: str) -> list[str]:
    """`slack=1,2,hit_ratio=0.5` -> `slack=1,2` and `hit_ratio=0.5`."""
    return re.split(r",(?=[^,=]*=)", rest)


def _written(piece: str, place: str) -> Sequence[str]:
    return [f"{value:.12g}" for value in values_in(piece, place)] if ".." in piece else [piece]


def _number(text: str, place: str) -> int | float:
    try:
        value = float(text)
    except ValueError as error:
        raise UsageError(f"cannot read {text!r}", place=place, expected="a number") from error
    if not math.isfinite(value):
        raise UsageError(f"{text} is not finite", place=place)
    return int(value) if value.is_integer() and "." not in text else value


def _value(piece: str) -> Any:
    """As TOML reads it; a bare word is a string."""
    try:
        value = tomllib.loads(f"value = {piece}")["value"] if "\n" not in piece else piece
        return int(value) if isinstance(value, float) and value.is_integer() and value >= 1000 else value
    except tomllib.TOMLDecodeError:
        try:
            return _number(piece, "")
        except UsageError:
            return piece
