"""What a result says, before it is drawn: the terminal and the HTML report render the same sections.

Analyzers build these; no renderer computes a number. Values keep full precision and SI units; a renderer
converts (`s` to ms, ratios to %) by the unit that stands beside the value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Unit = Literal["", "s", "tokens", "blocks", "ratio", "count", "per_s", "per_min", "tokens_per_s"]
Value = float | int | str | bool | None


@dataclass(frozen=True)
class Fact:
    """One number with its name, its unit and what it decides."""

    label: str
    value: Value
    unit: Unit = ""
    meaning: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of values under headed, typed columns; `best` maps a column to the row that is best in it."""

    columns: tuple[tuple[str, Unit], ...]
    rows: tuple[tuple[Value, ...], ...]
    title: str = ""
    best: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Curve:
    """One line of a figure: y over x, with its name in the legend."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    shape: Literal["line", "step", "bar", "points"] = "line"


@dataclass(frozen=True)
class Figure:
    """A question as the title, units on both axes, and what to conclude (and when not to)."""

    name: str  # stable id, used for the div
    question: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    conclusion: str
    x_log: bool = False
    y_unit: Unit = ""


@dataclass(frozen=True)
class Section:
    """One analyzer's answer: a sentence first, then its evidence, then what was assumed."""

    name: str
    title: str
    sentence: str
    facts: tuple[Fact, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_assumptions(self) -> bool:
        """It says nothing but what was assumed."""
        return bool(self.assumptions) and not (self.facts or self.tables or self.figures or self.warnings)
