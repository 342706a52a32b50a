"""The result of a comparison as a document and as sections."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, NamedTuple

from agentctl import inside
from agentctl.analyzers.words import count
from agentctl.cluster import Pool
from agentctl.present import Section, Table, Unit, Value
from agentctl.recommend import words
from agentctl.recommend.bands import Band
from agentctl.recommend.decision import Decision, Row, Scored
from agentctl.recommend.finals import Finals
from agentctl.recommend.objectives import OBJECTIVES
from agentctl.recommend.pairs import Range
from agentctl.recommend.search import Candidate, Ladder, Measured
from agentctl.recommend.sections.capacity import capacity
from agentctl.recommend.sections.names import Names, shown
from agentctl.recommend.sections.pareto import pareto
from agentctl.recommend.sections.phases import phases
from agentctl.recommend.sections.varied import varied
from agentctl.recommend.sensitivity import Sensitivity
from agentctl.recommend.validity import Check
from agentctl.simulate import plain
from agentctl.tier_picture import TierPoint, tier_picture, tiers_of

RECOMMEND_SCHEMA = "agentctl/recommend/1"
MOST_ROWS = 20  # of a table; nobody reads more


class Told(NamedTuple):
    """Everything that the document and the sections say.

    current       the current policy in words, "(not yours)" included
    rate_per_min  session starts per minute of the trace; None: not defined
    bands         of the finalists; `finals`: their runs from inside
    status        "clear", "no clear winner", "objective not met", "declined" or "not evaluated"
    """

    decision: Decision
    checks: tuple[Check, ...]
    ladder: Ladder
    slos: tuple[str, ...]
    current: str
    rate_per_min: float | None
    status: str
    statement: str
    assumptions: tuple[str, ...]
    sensitivity: Sensitivity | None = None  # None: not evaluated
    bands: tuple[Band, ...] = ()
    finals: Finals = Finals()
    wanted_share: float | None = None  # of requests within the only SLO
    wanted_hit: float | None = None  # share of prompt tokens that a KV tier is to reach


def document(told: Told, head: dict[str, Any]) -> dict[str, Any]:
    decision, chosen = told.decision, told.decision.chosen
    return {
        "schema": RECOMMEND_SCHEMA,
        **head,
        "slo": list(told.slos),
        "warnings": list(_warnings(told)),
        "objective": _objective(decision.objective),
        "objectives": [_objective(name) for name in decision.objectives],
        "verdict": {
            "policy": chosen.candidate.name if chosen else None,
            "params": plain(chosen.candidate.policy.params) if chosen else None,
            "engines": chosen.candidate.engines if chosen else None,
            "status": told.status,
            "statement": told.statement,
            "fragile": told.sensitivity.fragile if told.sensitivity else None,
            "ranking_holds": told.sensitivity.share if told.sensitivity else None,
            "pareto": [_key(row) for row in decision.pareto],
            "reasons": list(_reasons(told)),
            "tied_with": [_key(row) for row in decision.tied if row is not chosen],
        },
        "current": told.current,
        "session_rate_per_min": told.rate_per_min,
        "replicates": decision.n_replicates,
        "candidates": [_candidate(row, told) for row in decision.rows],
        "sensitivity": _sensitivity(told.sensitivity),
        "bands": [_band(band, told.ladder) for band in told.bands],
        "finalists": _finals(told.finals),
        "validity": [asdict(check) for check in told.checks],
        "assumptions": list(told.assumptions),
    }


def _objective(name: str) -> dict[str, Any]:
    one = OBJECTIVES[name]
    facts = {"formula": one.formula, "operating_load": one.operating_load, "counts": one.counts}
    return {"name": name, **facts, "unit": one.unit, "better": one.better}


def _sensitivity(found: Sensitivity | None) -> dict[str, Any] | None:
    """Every changed assumption, what it changed for each finalist, and whether the ranking held."""
    if found is None:
        return None
    return {
        "finalists": [_name(candidate) for candidate in found.finalists],
        "share": found.share,
        "unchanged": list(found.base),
        "families": [
            {
                "name": family.name,
                "question": family.question,
                "why_not": family.why_not,
                "share": found.share_of(family.name),
                "cases": [
                    {
                        "name": case.name,
                        "values": list(case.values),
                        "holds": case.holds,
                        "behind": [_name(candidate) for candidate in case.fails],
                    }
                    for case in found.cases
                    if case.family == family.name
                ],
            }
            for family in found.families
        ],
    }


def _band(band: Band, ladder: Ladder) -> dict[str, Any]:
    """Share of requests within all objectives over resampled workloads, at the loads of the finalists."""
    at = [
        {"load": ladder.load(rung), "attained": found.value, "interval": _interval(found)}
        for rung, found in band.at.items()
    ]
    return {**_name(band.candidate), "at_load": at}


def _finals(finals: Finals) -> dict[str, Any]:
    """What outcome.parquet has of the recommended one, in numbers, and the same of the others."""
    pairs = zip(finals.candidates, finals.looks, strict=True)
    return {
        "load": finals.load,
        "runs": [{**_name(candidate), **inside.document(look)} for candidate, look in pairs],
    }


def sections(told: Told) -> tuple[Section, ...]:
    decision, finals, names = told.decision, told.finals, Names(told.decision)
    at = words.load(finals.load, told.rate_per_min)
    seen = inside.sections(finals.looks, at) if finals.looks else ()
    first = "peak-load" if decision.objective == "gpus" else decision.objective
    changed = (varied(told.sensitivity, first, names, told.rate_per_min),) if told.sensitivity else ()
    details = (
        capacity(decision, told.bands, told.ladder, told.rate_per_min, told.slos, told.wanted_share),
        *pareto(decision, names, told.rate_per_min),
        *tier_picture([_tier_point(row) for row in decision.rows], told.wanted_hit),
        *seen,
        *changed,
        _validity(told),
    )
    roles = phases(decision, told.rate_per_min)
    details = tuple(replace(one, is_detail=True) for one in details)
    return _verdict(told), *roles, _why(told), *details, _assumed(told)


def _tier_point(row: Row) -> TierPoint:
    """The candidate at the trace's own load, and what it carries."""
    tokens, speed = tiers_of(row.candidate.cluster)
    name = f"{row.candidate.name} on {count(row.candidate.engines, 'engine')}"
    for key, value in row.candidate.settings:
        if not key.startswith("kv_tier"):
            name += f", {key} {value}"
    hit = row.found.at[0].hit_ratio
    return TierPoint(name, tokens, speed, hit, None, None, row.peak.value if row.peak else None)


def _candidate(row: Row, told: Told) -> dict[str, Any]:
    candidate, found = row.candidate, row.found
    return {
        **_key(row),
        "params": plain(candidate.policy.params),
        "gpus": candidate.n_gpus,
        "pools": [_pool(pool) for pool in candidate.cluster.pools],
        "price_per_hour": candidate.price_per_hour,
        "signals": list(candidate.policy.sees),
        "peak": None
        if row.peak is None
        else row.peak.value,  # multiples of the trace's load, as all loads here
        "peak_is": None if row.peak is None else row.side or "found",
        "interval": _interval(row.peak),
        "peak_sessions_per_min": _times(row.peak.value if row.peak else None, told.rate_per_min),
        "interval_sessions_per_min": _interval(row.peak, told.rate_per_min),
        "difference_to_current": _difference(row),
        "verdict": row.verdict,
        "is_current": row.is_current,
        "tied_with_best": row.tied,
        "holds_at_trace_load": row.holds_on_trace,
        "holds_at_trace_load_with_confidence": row.holds,
        "trace_peak": None if found.peak is None else {"load": found.peak.load, "side": found.peak.side},
        "dropped_after_replicates": found.dropped_after,
        "objectives": {name: _scored(scored) for name, scored in row.scores.items()},
        "in_pareto_set": row.in_pareto,
        "replicate_peaks": [{"load": peak.load, "side": peak.side} for peak in found.replicates],
        "at_load": [
            {"load": told.ladder.load(rung), **measured._asdict()}
            for rung, measured in sorted(found.at.items())
        ],
    }


def _pool(pool: Pool) -> dict[str, Any]:
    """Who does which phase."""
    return {"name": pool.name, "role": pool.role, "engines": pool.engines, "gpu": pool.profile.gpu}


def _difference(row: Row) -> dict[str, Any] | None:
    if row.difference is None:
        return None
    return {"peak": row.difference.value, "interval": _interval(row.difference), "p_adjusted": row.p}


def _scored(scored: Scored) -> dict[str, Any]:
    return {
        "value": scored.value.value if scored.value else None,
        "interval": _interval(scored.value),
        "difference": scored.difference.value if scored.difference else None,
        "difference_interval": _interval(scored.difference),
        "p_adjusted": scored.p,
        "verdict": scored.verdict,
        "why_not": scored.why_not,
    }


def _key(row: Row) -> dict[str, Any]:
    return _name(row.candidate)


def _name(candidate: Candidate) -> dict[str, Any]:
    settings = [{"key": key, "value": value} for key, value in candidate.settings]
    return {"policy": candidate.name, "engines": candidate.engines, "settings": settings}


def _interval(value: Range | None, scale: float | None = 1.0) -> list[float | None] | None:
    if value is None or scale is None:
        return None
    return [_times(value.low, scale), _times(value.high, scale)]


def _times(value: float | None, scale: float | None) -> float | None:
    return None if value is None or scale is None else value * scale


def _verdict(told: Told) -> Section:
    rate, several = told.rate_per_min, len({row.candidate.engines for row in told.decision.rows}) > 1
    scale, name = (1.0, "peak / trace") if rate is None else (rate, "peak sessions")
    unit: Unit = "ratio" if rate is None else "per_min"
    head: list[tuple[str, Unit]] = [("policy", "")]
    head += [("engines", "count")] if several else []
    head += [(name, unit), ("low", unit), ("high", unit)]  # type: ignore[list-item]
    head += [
        ("against current", unit),
        ("TTFT p95", "s"),
        ("hit", "ratio"),
        ("verdict", ""),
    ]
    listed, left = _listed(told.decision)
    rows: list[tuple[Value, ...]] = []
    for row in listed:
        at = row.found.at.get(0)
        low, value, high = _shown(row)
        rows.append(
            (
                row.candidate.title,
                *([row.candidate.engines] if several else []),
                _times(value, scale),
                _times(low, scale),
                _times(high, scale),
                row.difference.value * scale if row.difference else None,
                at.ttft_p95_s if at else None,
                at.hit_ratio if at else None,
                "current" if row.is_current else row.verdict,
            )
        )
    best = {} if told.decision.chosen is None else {0: listed.index(told.decision.chosen)}
    title = "Times and hits are at the trace's load" + (f"; {left} more in result.json" if left else "")
    refused = told.status in ("declined", "objective not met", "not evaluated")
    table = Table(tuple(head), tuple(rows), title, best, best_is="best" if refused else "recommended")
    warnings = _warnings(told)
    return Section("verdict", "Verdict", told.statement, (), (table,), warnings=warnings, is_refusal=refused)


def _listed(decision: Decision) -> tuple[list[Row], int]:
    """The candidates that the tables list, in the order in which they were asked for, and how many not."""
    kept = {id(row) for row in shown(decision, MOST_ROWS)}
    listed = [row for row in decision.rows if id(row) in kept]
    return listed, len(decision.rows) - len(listed)


def _warnings(told: Told) -> tuple[str, ...]:
    failed = [f"{check.id} failed: {check.finding}" for check in told.checks if check.status == "FAIL"]
    hopeless = words.out_of_reach(told.decision)
    return (*failed, *([hopeless] if hopeless else []))


def _shown(row: Row) -> tuple[float | None, float | None, float | None]:
    """Low end, peak and high end for the table; beyond the loads that were tried only one end is known."""
    if row.peak is None:
        return None, None, None
    if row.side == "above":
        return row.peak.value, None, None
    if row.side == "below":
        return None, None, row.peak.value
    return row.peak.low, row.peak.value, row.peak.high


def contest(told: Told) -> tuple[Row, Row, int] | None:
    """The two rows that the reasons compare, and the rung: where the weaker one has just failed.

    The recommended one against the current policy on as many engines; when it is the current one itself,
    against the weakest candidate. None when there are not two.
    """
    chosen = told.decision.chosen
    if chosen is None:
        return None
    same_size = [
        row
        for row in told.decision.rows
        if row is not chosen and row.candidate.engines == chosen.candidate.engines and row.peak
    ]
    others = [row for row in same_size if row.is_current] or sorted(same_size, key=_peak_value)
    if not others:
        return None
    common = sorted(set(chosen.found.at) & set(others[0].found.at))
    weaker = min((chosen, others[0]), key=_peak_value)
    failed = [rung for rung in common if (weaker.found.at[rung].score or 0.0) < 0]
    return chosen, others[0], (failed[0] if failed else common[-1])


def _peak_value(row: Row) -> float:
    return row.peak.value if row.peak else 0.0


def _reasons(told: Told) -> tuple[str, ...]:
    found = contest(told)
    if found is None:
        return ()
    chosen, other, rung = found
    return words.reasons(chosen, other, rung, words.load(told.ladder.load(rung), told.rate_per_min))


def _why(told: Told) -> Section:
    found = contest(told)
    if found is None:
        return Section("why", "Why", "There is nothing to compare.")
    _, _, rung = found
    size = found[0].candidate.engines
    head: tuple[tuple[str, Unit], ...] = (
        ("policy", ""), ("within objectives", "ratio"), ("TTFT p50", "s"), ("TTFT p95", "s"),
        ("TPOT p95", "s"), ("hit", "ratio"), ("prefill, busiest / mean", "ratio"),
        ("output within", "tokens_per_s"),
    )  # fmt: skip
    rows = tuple(
        (row.candidate.title, *_measures(row.found.at[rung]))
        for row in _listed(told.decision)[0]
        if row.candidate.engines == size and rung in row.found.at
    )
    title = f"At {words.load(told.ladder.load(rung), told.rate_per_min)}"
    said = _reasons(told)
    sentence = said[0] if len(said) == 1 else f"{said[0]} {'; '.join(said[1:])}."
    return Section("why", "Why", sentence[0].upper() + sentence[1:], tables=(Table(head, rows, title),))


def _measures(m: Measured) -> tuple[Value, ...]:
    latency = (m.ttft_p50_s, m.ttft_p95_s, m.tpot_p95_s)
    return (m.attained, *latency, m.hit_ratio, m.imbalance_prefill, m.tokens_per_s)


def _validity(told: Told) -> Section:
    open_checks = [check for check in told.checks if check.status in ("WARN", "FAIL")]
    unknown = sum(check.status == "NOT EVALUATED" for check in told.checks)
    was = "was" if unknown == 1 else "were"
    sentence = f"{len(open_checks)} of {len(told.checks)} checks warn or fail, {unknown} {was} not evaluated."
    rows = tuple((check.id, check.question, check.status, check.finding) for check in told.checks)
    table = Table((("check", ""), ("question", ""), ("status", ""), ("finding", "")), rows)
    return Section("validity", "Can this trace carry the claim?", sentence, tables=(table,))


def _assumed(told: Told) -> Section:
    sentence = "The decision holds under these assumptions."
    return Section("assumptions", "What was assumed", sentence, assumptions=told.assumptions)
