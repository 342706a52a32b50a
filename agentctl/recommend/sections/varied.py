"""Does the ranking hold when an assumption changes: what every change does to every finalist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentctl.analyzers.words import count, percent
from agentctl.present import Curve, Figure, Mark, Section, Table, Unit, Value
from agentctl.recommend.objectives import OBJECTIVES
from agentctl.recommend.sections.names import Names
from agentctl.recommend.sensitivity import FRAGILE, Case, Family, Sensitivity

DRAWN = ("calibration", "ties")  # families of draws: as a range
UNITS = {
    "per_min": "session starts per minute", "tokens_per_s": "tokens/s", "per_s": "requests/s", "s": "s",
    "count": "GPUs", "price": "price of a million tokens", "tokens_per_joule": "tokens/J",
    "j": "J a session",
}  # fmt: skip


class Place(NamedTuple):
    """One row of the figure: what is assumed, and each finalist's value with its range."""

    name: str
    values: list[tuple[float | None, float | None, float | None]]  # low, middle, high


def varied(found: Sensitivity, objective: str, names: Names, rate_per_min: float | None) -> Section:
    one = OBJECTIVES[objective]
    is_load = one.name == "peak-load"
    scale = (rate_per_min or 1.0) if is_load else 1.0
    label = UNITS.get(one.unit, one.unit) if rate_per_min or not is_load else "multiple of the trace's load"
    places = [Place("nothing changed", [(v, v, v) for v in found.base]), *_places(found)]
    figures = (_figure(found, places, names, scale, f"{one.name} ({label})"),) if found.cases else ()
    tables = (_table(found, names),)
    return Section("sensitivity", "Does the ranking hold?", _sentence(found), tables=tables, figures=figures)


def _sentence(found: Sensitivity) -> str:
    if not found.cases:
        return "No assumption could be varied."
    if found.share is None:
        return "There is one finalist only: nobody can get ahead of it."
    told = f"The ranking holds in {percent(found.share)} of {count(len(found.cases), 'changed assumption')}"
    return f"{told}{f': it is FRAGILE (below {FRAGILE:.0%})' if found.fragile else ''}."


def _places(found: Sensitivity) -> Iterator[Place]:
    for family in found.families:
        cases = [case for case in found.cases if case.family == family.name]
        if family.name in DRAWN and cases:
            yield Place(f"{family.name}, {len(cases)} draws", [*_ranges(cases, len(found.finalists))])
        else:
            yield from (Place(case.name, [(v, v, v) for v in case.values]) for case in cases)


def _ranges(cases: Sequence[Case], n: int) -> Iterator[tuple[float | None, float | None, float | None]]:
    """Least, median and most of each finalist."""
    for place in range(n):
        values = sorted(value for case in cases if (value := case.values[place]) is not None)
        yield (values[0], values[len(values) // 2], values[-1]) if values else (None, None, None)


def _figure(found: Sensitivity, places: Sequence[Place], names: Names, scale: float, label: str) -> Figure:
    curves = []
    for n, candidate in enumerate(found.finalists):
        known = [(row, place.values[n]) for row, place in enumerate(places) if place.values[n][1] is not None]
        low, middle, high = (tuple(value[end] * scale for _, value in known) for end in range(3))  # type: ignore[operator]
        at = tuple(float(row) for row, _ in known)
        look = {"colour": names.colour(candidate), "is_strong": n == 0}
        curves.append(Curve(names.name(candidate), middle, at, "points", low, high, **look))  # type: ignore[arg-type]
    base = found.base[0]
    return Figure(
        name="sensitivity",
        question="What does each assumption change?",
        x_label=label,
        y_label="what is assumed otherwise",
        curves=tuple(curves),
        conclusion="All finalists meet the same change. What matters is their order in a row, not where the "
        "row is: it is fragile where the recommended one falls behind another. Bars reach from the least to "
        "the most of several draws.",
        categories=tuple(place.name for place in places),
        marks=(Mark("recommended, unchanged", x=base * scale),) if base is not None else (),
    )


def _table(found: Sensitivity, names: Names) -> Table:
    head: tuple[tuple[str, Unit], ...] = (
        ("assumption", ""), ("question", ""), ("cases", "count"), ("ranking holds", "ratio"),
        ("ahead then", ""),
    )  # fmt: skip
    rows: list[tuple[Value, ...]] = []
    for family in found.families:
        cases = [case for case in found.cases if case.family == family.name]
        ahead = dict.fromkeys(names.name(one) for case in cases for one in case.fails)
        told = ", ".join(ahead) if cases else _why_not(family)
        rows.append(
            (family.name, f"{family.question}?", len(cases), found.share_of(family.name), told or "nobody")
        )
    return Table(head, tuple(rows))


def _why_not(family: Family) -> str:
    return f"not varied: {family.why_not}" if family.why_not else "not varied"
