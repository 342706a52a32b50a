"""The verdict and its reasons as sentences. Every number in them is in the document too."""

from __future__ import annotations

from agentctl.analyzers.words import count, number, percent, seconds
from agentctl.recommend.decision import Decision, Row
from agentctl.recommend.pairs import Range
from agentctl.recommend.search import Measured
from agentctl.recommend.sensitivity import Sensitivity

BUSIEST = "loads its busiest engine with {} times the mean prefill, {} {}"
MOST_NAMES = 8  # in one sentence
FEW_REPLICATES = 10  # below, a normal interval is rough


def engines(row: Row) -> str:
    return count(row.candidate.engines, "engine")


def load(value: float, rate_per_min: float | None) -> str:
    """A multiple of the trace's load as sessions/min, where the trace has a rate."""
    if rate_per_min is None:
        return f"{number(value)} times the trace's load"
    return f"{number(value * rate_per_min)} sessions/min"


def carries(row: Row, rate_per_min: float | None) -> str:
    """`smetric on 4 engines carries 2.1 sessions/min (95 % interval 1.8 to 2.4) within the objectives`."""
    assert row.peak is not None
    who, text = f"{row.candidate.title} on {engines(row)}", load(row.peak.value, rate_per_min)
    if row.side == "above":
        return f"{who} holds the objectives at every load that was tried, up to {text}"
    if row.side == "below":
        return f"{who} holds the objectives at no load that was tried, down to {text}"
    if row.peak.low is None:
        return f"{who} carries {text} within the objectives"
    return f"{who} carries {text} (95 % interval {interval(row.peak, rate_per_min)}) within the objectives"


def interval(value: Range, rate_per_min: float | None) -> str:
    scale = rate_per_min or 1.0
    return " to ".join("open" if end is None else number(end * scale) for end in (value.low, value.high))


def statement(decision: Decision, current: str, rate_per_min: float | None) -> str:
    """The decision as one or two sentences; the first words are the answer."""
    row = decision.chosen
    if row is None and decision.why_not:
        return f"Not evaluated: {decision.objective} has no value here: {decision.why_not}."
    if row is None or row.peak is None:
        return "No decision: the objectives count no request of this trace."
    told = carries(row, rate_per_min)
    missed = _values(decision, row, current) + _missing(decision)
    if decision.n_replicates < 2:
        return f"Not evaluated: {told}, but one run has no error; no candidate is preferred."
    if decision.clear:
        return f"{told}{_against(row, current, rate_per_min)}.{missed}"
    size = row.candidate.engines
    tied = [
        other.candidate.title + ("" if other.candidate.engines == size else f" on {engines(other)}")
        for other in decision.tied
        if other is not row
    ]
    names = _and(tied) if len(tied) <= 4 else f"{len(tied)} others"
    return (
        f"There is no clear winner: {row.candidate.title} cannot be told from {names}, and is recommended as "
        "the cheapest of them (GPUs, then price; then better than today, then fewer signals, then name). "
        f"{told[0].upper()}{told[1:]}{_against(row, current, rate_per_min)}.{missed}"
    )


VALUES = {
    "peak-tps": "{} output tokens a second within the objectives at its peak",
    "goodput": "{} requests a second within the objectives at the trace's load",
    "ttfet": "a mean time to the first token of the last turn of {} s at the trace's load",
    "tokens-per-joule": "{} output tokens a joule within the objectives at the trace's load",
    "session-energy": "{} J a session at the trace's load",
    "cost": "{} per million output tokens within the objectives at the trace's load",
}


def _values(decision: Decision, row: Row, current: str) -> str:
    """What the recommended one reaches under objectives that are not the load carried; the Pareto set, those
    that no candidate is surely better than in one objective and as good in the others."""
    told = ""
    for name in decision.objectives:
        scored = row.scores.get(name)
        if scored is None or name not in VALUES:
            continue
        if scored.value is None:
            told += f" Its {name} is not evaluated: {scored.why_not}."
            continue
        told += f" It has {VALUES[name].format(number(scored.value.value))} ({interval(scored.value, None)})"
        if scored.difference and scored.verdict in ("BETTER", "WORSE"):
            more = "more" if scored.difference.value > 0 else "less"
            change = f"{number(abs(scored.difference.value))} {more} than {current}"
            told += f", {change} ({interval(scored.difference, None)})"
        told += "."
    if len(decision.objectives) > 1:
        names = [f"{one.candidate.title} on {engines(one)}" for one in decision.pareto]
        told += f" Pareto set of {_and(list(decision.objectives))}: "
        told += f"{_and(names)}." if len(names) <= 4 else f"{len(names)} of {len(decision.rows)} candidates."
    return told


def fragility(varied: Sensitivity | None) -> str:
    """A warning when the ranking does not survive enough of the changed assumptions."""
    if varied is None or not varied.fragile:
        return ""
    assert varied.share is not None
    broken = []
    for family in varied.families:
        fails = [case.name for case in varied.cases if case.family == family.name and not case.holds]
        if fails:
            n = sum(case.family == family.name for case in varied.cases)
            broken.append(f"{len(fails)} of {n} {family.name}" if len(fails) > 2 else _and(fails))
    return (
        f" FRAGILE: the ranking holds in {percent(varied.share)} of {count(len(varied.cases), 'case')} of "
        f"changed assumptions, and not with {_and(broken)}."
    )


def _missing(decision: Decision) -> str:
    """Who misses the objectives at the trace's own load, when the chosen one holds them there."""
    assert decision.chosen is not None
    size = decision.chosen.candidate.engines
    fits = {row.candidate.title: row.holds_on_trace for row in decision.rows if row.candidate.engines == size}
    names = [name for name, holds in fits.items() if not holds]
    if not names or not decision.chosen.holds_on_trace:
        return ""
    if len(names) > MOST_NAMES:
        return f" At the trace's own load {len(names)} of {len(fits)} candidates miss the objectives."
    return f" At the trace's own load {_and(names)} {'misses' if len(names) == 1 else 'miss'} the objectives."


def out_of_reach(decision: Decision) -> str | None:
    """A warning when in some replicates no candidate holds the objectives at any load."""
    peaks = [row.found.replicates for row in decision.rows if row.peak and row.found.dropped_after is None]
    by_replicate = zip(*peaks, strict=True)
    hopeless = sum(all(peak.side == "below" for peak in peaks) for peaks in by_replicate)
    if not hopeless:
        return None
    return (
        f"in {hopeless} of {count(decision.n_replicates, 'resampled workload')} no candidate holds the "
        "objectives at any load that was tried: there the objectives decide, not the policy (a long cold "
        "prompt may be out of reach even for an idle engine); a smaller share or a looser limit would tell "
        "candidates apart"
    )


def _against(row: Row, current: str, rate_per_min: float | None) -> str:
    if row.is_current:
        return f"; it is {current}, the policy compared with"
    if row.difference is None or row.verdict == "NOT EVALUATED":
        return ""
    if row.verdict == "NOT DISTINGUISHABLE":
        return f", not distinguishable from {current}"
    change = row.difference.value
    text = load(abs(change), rate_per_min)
    word = "more" if change > 0 else "less"
    return f", {text} {word} than {current} (difference {interval(row.difference, rate_per_min)})"


def reasons(chosen: Row, other: Row, rung: int, load_text: str) -> tuple[str, ...]:
    """Why `chosen` differs from `other` at a load where both were run; only what does differ is said."""
    a, b = chosen.found.at[rung], other.found.at[rung]
    names = chosen.candidate.title, other.candidate.title
    said = [f"compared at {load_text}:"]
    pairs = (
        (a.hit_ratio, b.hit_ratio, "finds {} of the prompt tokens in cache, {} {}", percent, 0.005),
        (a.imbalance_prefill, b.imbalance_prefill, BUSIEST, "{:.2f}".format, 0.02),
        (_missed(a), _missed(b), "misses the objectives in {} of the requests, {} in {}", percent, 0.001),
        (a.ttft_p95_s, b.ttft_p95_s, "has a TTFT p95 of {}, {} {}", seconds, 0.005),
        (a.tpot_p95_s, b.tpot_p95_s, "has a TPOT p95 of {}, {} {}", seconds, 0.0002),
    )
    for mine, theirs, words, show, least in pairs:
        if mine is not None and theirs is not None and abs(mine - theirs) > least:
            said.append(f"{names[0]} " + words.format(show(mine), names[1], show(theirs)))
    return tuple(said) if len(said) > 1 else (f"at {load_text} {names[0]} and {names[1]} do the same",)


def _missed(m: Measured) -> float | None:
    return None if m.attained is None else 1 - m.attained


def replicates(n: int, by_default: bool = False) -> str:
    text = f"intervals come from {count(n, 'resampled workload')}, paired between candidates"
    if by_default:
        text += ", as many of 8, 16, 32 and 60 as the size of the trace allows"
    if n < FEW_REPLICATES:
        text += f"; with fewer than {FEW_REPLICATES} they are rough and wide: --replicates 20 narrows them"
    return text


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
