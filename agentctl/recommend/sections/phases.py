"""Which pool does which phase: the best candidate of every assignment of roles that was tried."""

from __future__ import annotations

from collections.abc import Sequence

from agentctl.analyzers.words import count
from agentctl.cluster import Pool
from agentctl.present import Section, Table, Unit, Value
from agentctl.recommend.decision import Decision, Row
from agentctl.recommend.objectives import OBJECTIVES
from agentctl.recommend.pairs import Range
from agentctl.recommend.roles import ROLES, roles_of
from agentctl.recommend.sections.pareto import SHOWN

MOST_ROWS = 20
DOES = {"prefill": "computes prompts", "decode": "decodes", "both": "does both"}


def phases(decision: Decision, rate_per_min: float | None) -> tuple[Section, ...]:
    """Nothing where no assignment was asked for."""
    chosen = decision.chosen
    if chosen is None or not any(ROLES in dict(row.candidate.settings) for row in decision.rows):
        return ()
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in decision.rows:
        groups.setdefault((_assignment(row), row.candidate.engines), []).append(row)
    best = sorted((_best(rows, decision) for rows in groups.values()), key=lambda row: _rank(row, decision))
    several = len({row.candidate.engines for row in best}) > 1
    names = list(dict.fromkeys([*decision.objectives, "peak-load"]))
    units: list[Unit] = [_unit(name, rate_per_min) for name in names]
    size: list[tuple[str, Unit]] = [("engines", "count")] if several else []
    columns: list[tuple[str, Unit]] = [("roles", ""), *size, ("policy", "")]
    columns += [(names[0], units[0]), ("low", units[0]), ("high", units[0])]
    columns += [*zip(names[1:], units[1:], strict=True)]
    columns += [("TTFT p95", "s"), ("TPOT p95", "s"), ("hit", "ratio")]
    shown = best[:MOST_ROWS]
    lines = tuple(_line(row, names, several, rate_per_min) for row in shown)
    title = f"The best of each by {names[0]}; times and hits are at the trace's load"
    places = [n for n, row in enumerate(shown) if row is chosen]
    marked = {0: places[0]} if places else {}
    table = Table(tuple(columns), lines, title, marked, best_is="recommended")
    return (Section("phases", "Which pool does which phase?", _sentence(chosen), tables=(table,)),)


def _assignment(row: Row) -> str:
    return roles_of(row.candidate.cluster) or "as today"


def _best(rows: Sequence[Row], decision: Decision) -> Row:
    return next((row for row in rows if row is decision.chosen), min(rows, key=lambda r: _rank(r, decision)))


def _rank(row: Row, decision: Decision) -> tuple[bool, bool, float]:
    """Who holds the SLOs at the trace's load comes first, then the better one; without a value the last."""
    name = "peak-load" if decision.objective == "gpus" else decision.objective
    value = _value(row, name)
    return not row.holds_on_trace, value is None, -OBJECTIVES[name].sign * value.value if value else 0.0


def _value(row: Row, name: str) -> Range | None:
    if name == "peak-load":
        return row.peak
    scored = row.scores.get(name)
    return scored.value if scored else None


def _unit(name: str, rate_per_min: float | None) -> Unit:
    if name == "peak-load" and rate_per_min is None:
        return "ratio"
    return SHOWN.get(OBJECTIVES[name].unit, "")


def _line(row: Row, names: Sequence[str], several: bool, rate_per_min: float | None) -> tuple[Value, ...]:
    at = row.found.at.get(0)
    scale = {"peak-load": rate_per_min or 1.0}
    values = [(_value(row, name) or (None, None, None), scale.get(name, 1.0)) for name in names]
    ends, of_first = values[0]
    size = [row.candidate.engines] if several else []
    return (
        _assignment(row), *size, _policy(row), *(_times(end, of_first) for end in ends),
        *(_times(value[0], of_one) for value, of_one in values[1:]),
        *((at.ttft_p95_s, at.tpot_p95_s, at.hit_ratio) if at else (None, None, None)),
    )  # fmt: skip


def _policy(row: Row) -> str:
    """With settings other than the roles."""
    others = [f"{key} {value}" for key, value in row.candidate.settings if key != ROLES]
    return ", ".join([row.candidate.name, *others])


def _times(value: float | None, scale: float) -> float | None:
    return None if value is None else scale * value


def _sentence(chosen: Row) -> str:
    pools = chosen.candidate.cluster.pools
    if all(pool.role == "both" for pool in pools):
        return "Every engine of the recommended candidate does both."
    return f"Recommended: {', '.join(f'{_pool(pool)} {DOES[pool.role]}' for pool in pools)}."


def _pool(pool: Pool) -> str:
    kind = [count(pool.engines, "engine"), *([pool.profile.gpu] if pool.profile.gpu else [])]
    kind += [f"{pool.power_cap_w:g} W"] if pool.power_cap_w else []
    return f"pool {pool.name} ({', '.join(kind)})"
