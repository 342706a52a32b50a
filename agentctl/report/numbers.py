"""Numbers as people read them: the only place where SI units become milliseconds, percent or thousands."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from agentctl.present import Unit, Value

UNKNOWN = "–"
LATENCIES = ("ttft", "tpot", "latency", "itl")  # read in ms whatever their size
WIDE = 100  # one unit cannot show durations whose largest is this many times the smallest
NAMES: dict[str, str] = {
    "": "",
    "s": "s",
    "tokens": "tokens",
    "blocks": "blocks",
    "ratio": "%",
    "count": "",
    "per_s": "/s",
    "per_min": "/min",
    "tokens_per_s": "tok/s",
    "j": "J",
    "w": "W",
    "tokens_per_j": "tok/J",
    "microdollar": "µ$",
}


class Style(NamedTuple):
    """How the numbers of one column are written: value * factor, with so many decimals, in `unit`.

    No factor: durations from seconds to hours, each with a unit of its own.
    """

    factor: float | None
    decimals: int
    unit: str

    def write(self, value: Value) -> str:
        """The number without its unit; an unknown one is a dash, never 0."""
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            return UNKNOWN
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, str):
            return value
        if self.factor is None:
            factor, _, unit = _duration(abs(value), "")
            return with_unit(f"{value * factor:.3g}", unit)
        return f"{value * self.factor:,.{self.decimals}f}"


def style_of(values: Iterable[Value], unit: Unit, label: str = "") -> Style:
    """One style for all of `values`, so that a column can be compared by eye."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    sizes = [abs(number) for number in numbers if math.isfinite(number)]
    largest = max(sizes, default=0.0)
    if unit == "ratio":
        return Style(100.0, 1, "%")
    if unit == "s":
        smallest = min((size for size in sizes if size), default=largest)
        is_latency = any(word in label.lower() for word in LATENCIES)
        is_wide = not is_latency and largest > WIDE * smallest
        return Style(None, 0, "") if is_wide else Style(*_duration(largest, label))
    prefix, factor = _thousands(largest, unit)
    whole = all(float(number).is_integer() for number in sizes) and factor == 1.0
    name = f"{prefix}{'' if unit == 'j' else ' '}{NAMES[unit]}".strip() if prefix else NAMES[unit]
    return Style(factor, 0 if whole else _decimals(largest * factor), name)


def with_unit(text: str, unit: str) -> str:
    """`1,870 ms`, `81.4 %`; a thousands letter stands at the number: `12.3k tok/s`."""
    if not unit or text == UNKNOWN:
        return text
    return f"{text}{unit}" if unit[1:2] == " " else f"{text} {unit}"


def heading(label: str, unit: str) -> str:
    """A column's header with its unit: `ttft p95 ms`, `prompt (M tokens)`."""
    return f"{label} ({unit})" if " " in unit else f"{label} {unit}".strip()


def fact_text(value: Value, unit: Unit, label: str = "") -> str:
    """One number with its unit, such as `81.4 %` or `12.3k tok/s`."""
    style = style_of([value], unit, label)
    text = style.write(value)
    return text if isinstance(value, str | bool) else with_unit(text, style.unit)


def exact(value: Value) -> str:
    """Full precision for a machine; an unknown value is empty."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _duration(largest: float, label: str) -> tuple[float, int, str]:
    """Factor, decimals and unit for durations up to `largest` seconds."""
    if any(word in label.lower() for word in LATENCIES) or 0 < largest < 1:
        return 1e3, _decimals(largest * 1e3), "ms"
    seconds, unit = (1, "s") if largest < 600 else (60, "min") if largest < 7200 else (3600, "h")
    return 1 / seconds, _decimals(largest / seconds), unit


def _thousands(largest: float, unit: Unit) -> tuple[str, float]:
    if unit not in ("tokens", "blocks", "tokens_per_s", "j"):
        return "", 1.0
    for limit, prefix, factor in ((1e9, "G", 1e-9), (1e6, "M", 1e-6), (1e4, "k", 1e-3)):
        if largest >= limit and (unit in ("tokens_per_s", "j") or limit > 1e4):
            return prefix, factor
    return "", 1.0


def _decimals(size: float) -> int:
    """Three significant digits for the largest number of a column."""
    return 0 if size >= 100 else 1 if size >= 10 else 2
