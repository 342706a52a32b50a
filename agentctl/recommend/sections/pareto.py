"""What one objective costs in another: every candidate by two of them, and who is dominated by nobody."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from agentctl.analyzers.words import count
from agentctl.present import Curve, Figure, Section, Table, Unit, Value
from agentctl.recommend.decision import Decision, Row
from agentctl.recommend.objectives import OBJECTIVES
from agentctl.recommend.pairs import Range
from agentctl.recommend.sections.names import MOST_LINES, Names
from agentctl.recommend.sections.varied import UNITS

OTHERS = "others"
MOST_ROWS = 20  # of the table: the Pareto set first
SPREAD = 0.4  # of the gap between two sizes, which the points at a size take
Point = tuple[Row, float, Range]
SHOWN: dict[str, Unit] = {
    "per_min": "per_min", "tokens_per_s": "tokens_per_s", "per_s": "per_s", "s": "s", "count": "count",
    "tokens_per_joule": "tokens_per_j", "j": "j",
}  # fmt: skip


def pareto(decision: Decision, names: Names, rate_per_min: float | None) -> tuple[Section, ...]:
    """Under several objectives, or for clusters of several sizes; else nothing is to be traded."""
    sizes = {row.candidate.n_gpus for row in decision.rows}
    if len(decision.objectives) > 1:
        return (_objectives(decision, names, rate_per_min),)
    return (_sizes(decision, names, rate_per_min),) if len(sizes) > 1 else ()


def _objectives(decision: Decision, names: Names, rate_per_min: float | None) -> Section:
    wanted = decision.objectives
    scale = {name: (rate_per_min or 1.0) if name == "peak-load" else 1.0 for name in wanted}
    head: list[tuple[str, Unit]] = [("policy", "")]
    head += [(name, SHOWN.get(OBJECTIVES[name].unit, "")) for name in wanted]
    head += [("in the Pareto set", "")]
    rows: list[tuple[Value, ...]] = []
    for row in sorted(decision.rows, key=lambda row: not row.in_pareto)[:MOST_ROWS]:
        values = (_of(row, name, scale[name]) for name in wanted)
        told = (value.value if value else None for value in values)
        rows.append((names.name(row.candidate), *told, row.in_pareto))
    x, y = wanted[:2]
    points = [(row, _of(row, x, scale[x]), _of(row, y, scale[y])) for row in decision.rows]
    by_size = OBJECTIVES[x].unit == "count"
    curves = _points([(row, a.value, b) for row, a, b in points if a and b], names, by_size)
    n = len(decision.pareto)
    figure = Figure(
        name="pareto",
        question=f"How do {x} and {y} go together?",
        x_label=_label(x, rate_per_min),
        y_label=_label(y, rate_per_min),
        curves=curves,
        x_unit="count" if by_size else "",
        conclusion=f"Better is {_way(x, 'to the right', 'to the left')} and {_way(y, 'up', 'down')}. Who is "
        "not in the Pareto set has another candidate that is as good in every objective and surely better "
        "in one." + (" Points of one size stand beside each other." if by_size else ""),
    )
    sentence = (
        f"{count(n, 'candidate')} of {len(decision.rows)} can be bettered in no objective without a loss in "
        "another."
    )
    return Section(
        "pareto",
        "What trades for what",
        sentence,
        tables=(Table(tuple(head), tuple(rows)),),
        figures=(figure,),
    )


def _sizes(decision: Decision, names: Names, rate_per_min: float | None) -> Section:
    scale = rate_per_min or 1.0
    points = [
        (row, float(row.candidate.n_gpus), _scaled(row.peak, scale)) for row in decision.rows if row.peak
    ]
    best: dict[float, float] = {}
    for _, x, peak in sorted(points, key=lambda point: (point[1], -point[2].value)):
        best.setdefault(x, peak.value)
    front = [x for x in sorted(best) if all(best[x] > best[less] for less in best if less < x)]
    edge = Curve("most of a size", tuple(front), tuple(best[x] for x in front), "step", colour=6)
    figure = Figure(
        name="pareto",
        question="What does one more GPU bring?",
        x_unit="count",
        x_label="GPUs",
        y_label=_label("peak-load", rate_per_min),
        curves=(*_points(points, names, by_policy=True), edge),
        conclusion="Points are peaks with their 95 % intervals. Where the steps become lower than the "
        "intervals are long, more engines bring nothing that this trace can show.",
    )
    sentence = f"{count(len(best), 'size')} of the cluster were compared; the most of each is on the edge."
    return Section("pareto", "What more engines bring", sentence, figures=(figure,))


def _points(points: Sequence[Point], names: Names, by_policy: bool = False) -> tuple[Curve, ...]:
    """One entry of the legend per candidate, or per policy with all its sizes; the many are one entry."""
    groups: dict[str, list[Point]] = {}
    for point in sorted(points, key=lambda point: names.rank(point[0].candidate)):
        candidate = point[0].candidate
        name = candidate.title if by_policy else names.name(candidate)
        room = name in groups or len(groups) < MOST_LINES - 1
        groups.setdefault(name if room else OTHERS, []).append(point)
    beside = _beside([x for _, x, _ in points], len(groups))
    curves = []
    for place, (name, unsorted) in enumerate(groups.items()):
        group = sorted(unsorted, key=lambda point: point[1])
        x, y = tuple(x + beside[place] for _, x, _ in group), tuple(y.value for _, _, y in group)
        low, high = tuple(y.low for _, _, y in group), tuple(y.high for _, _, y in group)
        strong = any(names.is_chosen(row.candidate) for row, _, _ in group)
        curves.append(Curve(name, x, y, "points", low, high, colour=place, is_strong=strong))
    return tuple(curves)


def _beside(x: Sequence[float], groups: int) -> list[float]:
    """Where whole numbers repeat, the points of a group stand a little beside those of others."""
    places = sorted(set(x))
    gaps = [right - left for left, right in pairwise(places)]
    is_count = len(places) < len(x) and all(one.is_integer() for one in places)
    width = SPREAD * min(gaps, default=1.0) if is_count else 0.0
    return [width * ((place + 0.5) / groups - 0.5) for place in range(groups)]


def _of(row: Row, objective: str, scale: float) -> Range | None:
    scored = row.scores.get(objective)
    return _scaled(scored.value, scale) if scored and scored.value else None


def _scaled(value: Range, scale: float) -> Range:
    return Range(*(None if end is None else end * scale for end in value))  # type: ignore[arg-type]


def _label(objective: str, rate_per_min: float | None) -> str:
    unit = UNITS.get(OBJECTIVES[objective].unit, OBJECTIVES[objective].unit)
    if objective == "peak-load" and not rate_per_min:
        unit = "multiple of the trace's load"
    return f"{objective} ({unit})"


def _way(objective: str, higher: str, lower: str) -> str:
    return higher if OBJECTIVES[objective].better == "higher" else lower
