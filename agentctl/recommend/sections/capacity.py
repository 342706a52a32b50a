"""How much load the candidates carry: attainment against load, with bands for the finalists."""

from __future__ import annotations

from collections.abc import Sequence

from agentctl.present import Curve, Figure, Mark, Section, Table, Unit, Value
from agentctl.recommend.bands import MOST_REPLICATES, Band
from agentctl.recommend.decision import Decision, Row
from agentctl.recommend.objectives import OBJECTIVES
from agentctl.recommend.search import Ladder
from agentctl.recommend.sections.names import Names, shown

Column = tuple[str, Unit]


def capacity(
    decision: Decision,
    bands: Sequence[Band],
    ladder: Ladder,
    rate_per_min: float | None,
    slos: Sequence[str],
    wanted: float | None,
) -> Section:
    """wanted: the share that every SLO asks for; None: they ask for different ones, or for a mean."""
    names, rows = Names(decision), shown(decision)
    by_candidate = {id(band.candidate): band for band in bands if band.at}
    scale = rate_per_min or 1.0
    unit = "sessions/min" if rate_per_min else "times the trace's load"
    curves = tuple(_curve(row, by_candidate.get(id(row.candidate)), names, ladder, scale) for row in rows)
    marks = (Mark("the trace's load", x=scale), *((Mark("objective", y=wanted),) if wanted else ()))
    left = len(decision.rows) - len(rows)
    figure = Figure(
        name="capacity",
        question="How much load does each candidate carry?",
        x_label="session starts per minute" if rate_per_min else "multiple of the trace's load",
        y_label="share of requests within all objectives",
        curves=tuple(curve for curve in curves if curve.x),
        conclusion="A candidate is better when its line stays high further to the right. "
        + _about_bands(decision, bool(by_candidate))
        + (f" {left} more candidates are not drawn." if left else ""),
        x_log=True,
        y_unit="ratio",
        marks=marks,
    )
    formula = OBJECTIVES[decision.objective].formula
    sentence = f"The objective is {formula}: {' and '.join(slos)}."
    tables = (_table(rows, by_candidate, names, ladder, scale, unit),) if by_candidate else ()
    return Section("load", "Load carried", sentence, tables=tables, figures=(figure,))


def _about_bands(decision: Decision, are_drawn: bool) -> str:
    if not are_drawn:
        return "Lines are runs of the whole trace: small differences between them mean nothing."
    n = min(decision.n_replicates, MOST_REPLICATES)
    return (
        f"Lines are runs of the whole trace. The band of a finalist is its 95 % interval by {n} resampled "
        "workloads; candidates meet the same ones and are compared in pairs, so that bands may overlap and "
        "the verdicts still tell two apart."
    )


def _curve(row: Row, band: Band | None, names: Names, ladder: Ladder, scale: float) -> Curve:
    look = {"colour": names.colour(row.candidate), "is_strong": names.is_chosen(row.candidate)}
    name = names.name(row.candidate)
    if band is None:
        points = [(rung, m.attained) for rung, m in sorted(row.found.at.items()) if m.attained is not None]
        x = tuple(ladder.load(rung) * scale for rung, _ in points)
        return Curve(name, x, tuple(share for _, share in points), **look)  # type: ignore[arg-type]
    x = tuple(ladder.load(rung) * scale for rung in band.at)
    found = band.at.values()
    return Curve(
        name, x, tuple(one.value for one in found), "line", tuple(one.low for one in found),
        tuple(one.high for one in found), **look,  # type: ignore[arg-type]
    )  # fmt: skip


def _table(
    rows: Sequence[Row], bands: dict[int, Band], names: Names, ladder: Ladder, scale: float, unit: str
) -> Table:
    """The bands as numbers: a line per finalist, a column per load."""
    known = [row for row in rows if id(row.candidate) in bands]
    rungs = sorted({rung for band in bands.values() for rung in band.at})
    head: tuple[Column, ...] = (
        ("policy", ""),
        *((f"at {ladder.load(rung) * scale:.3g}", "") for rung in rungs),
    )
    body: list[tuple[Value, ...]] = []
    for row in known:
        at = bands[id(row.candidate)].at
        cells = (_percent(at[rung].low, at[rung].high) if rung in at else None for rung in rungs)
        body.append((names.name(row.candidate), *cells))
    return Table(head, tuple(body), f"Within all objectives, 95 % interval in %, by load in {unit}")


def _percent(low: float | None, high: float | None) -> str:
    ends = ("" if end is None else f"{100 * end:.0f}" for end in (low, high))
    return " – ".join(ends)
