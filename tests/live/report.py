"""The page of a live run: each bar, what was reached, and on what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """limit: None where nothing is asked, and it is only told; runs: of which `reached` is the median."""

    what: str
    reached: float
    limit: float | None
    unit: str = "%"
    runs: tuple[float, ...] = ()
    note: str = ""

    @property
    def is_met(self) -> bool:
        return self.limit is None or self.reached <= self.limit

    def row(self) -> str:
        asked = "" if self.limit is None else f"≤ {told(self.limit, self.unit)}"
        met = "" if self.limit is None else "yes" if self.is_met else "**no**"
        runs = ", ".join(told(one, self.unit) for one in self.runs)
        cells = (self.what, told(self.reached, self.unit), asked, met, runs, self.note)
        return f"| {' | '.join(cells)} |"


def told(value: float, unit: str) -> str:
    if unit == "%":
        return f"{100 * value:.1f} %"
    return f"{value:,.0f} {unit}".strip()


def page(facts: Mapping[str, str], bars: Sequence[Bar]) -> str:
    head = (
        "# What real engines on this machine said\n\n"
        "Written by `make test-live` (tests/live), which starts vLLM, in process and behind HTTP, and\n"
        "llama.cpp's server with a small Llama of random weights, calibrates them from inside and from\n"
        "outside, and stops them. Not part of `make test`.\n\n"
    )
    lines = [f"- {name}: {value}" for name, value in facts.items()]
    table = ["| what | reached | bar | met | runs | |", "| --- | ---: | ---: | --- | --- | --- |"]
    return head + "\n".join([*lines, "", *table, *(bar.row() for bar in bars)]) + "\n"
