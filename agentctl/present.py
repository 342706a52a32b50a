"""What a result says, before it is drawn: the terminal and the HTML report render the same sections.

Analyzers build these; no renderer computes a number. Values keep full precision and SI units; a renderer
converts (`s` to ms, ratios to %) by the unit that stands beside the value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Unit = Literal[
    "", "s", "tokens", "blocks", "ratio", "count", "per_s", "per_min", "tokens_per_s", "j", "w",
    "tokens_per_j", "microdollar",
]  # fmt: skip
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
    """Rows of values under headed, typed columns; `best` maps a column to the row that is best in it, in the
    sense of `best_is`."""

    columns: tuple[tuple[str, Unit], ...]
    rows: tuple[tuple[Value, ...], ...]
    title: str = ""
    best: dict[int, int] = field(default_factory=dict)
    best_is: str = "best"


@dataclass(frozen=True)
class Curve:
    """One line of a figure: y over x, with its name in the legend; with categories, x beside places in them.

    low, high  ends of an interval around y (with categories: around x), one each per point; None: open. A
               band around a line, bars at points
    colour     place in the palette: the same thing looks the same in every figure; None: by position
    is_strong  what the reader came for
    panel      which of the figure's panels it is in
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    shape: Literal["line", "step", "bar", "points", "stack"] = "line"
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    colour: int | None = None
    is_strong: bool = False
    panel: int = 0


@dataclass(frozen=True)
class Heat:
    """Values over x in rows, from 0 upwards: z[row][k] holds from x[k] to x[k + 1]."""

    x: tuple[float, ...]
    z: tuple[tuple[float, ...], ...]
    label: str  # what z is, with its unit
    panel: int = 0


@dataclass(frozen=True)
class Mark:
    """A line across a figure at one x or one y, such as a limit."""

    name: str
    x: float | None = None
    y: float | None = None


@dataclass(frozen=True)
class Figure:
    """A question as the title, units on both axes, and what to conclude (and when not to).

    panels      names of parts that lie above each other over the same x; none: one part without a name
    categories  names along the y axis: the y of curves are places in them
    """

    name: str  # stable id, used for the div
    question: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    conclusion: str
    x_log: bool = False
    y_unit: Unit = ""
    x_unit: Unit = ""
    panels: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    heats: tuple[Heat, ...] = ()
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Section:
    """One analyzer's answer: a sentence first, then its evidence, then what was assumed.

    is_detail   on a terminal its tables are shown when asked for
    is_refusal  of a verdict: nothing is claimed or recommended
    """

    name: str
    title: str
    sentence: str
    facts: tuple[Fact, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    is_detail: bool = False
    is_refusal: bool = False

    @property
    def is_assumptions(self) -> bool:
        """It says nothing but what was assumed."""
        return bool(self.assumptions) and not (self.facts or self.tables or self.figures or self.warnings)
