"""From peaks to a decision: verdicts against the current policy, the set that cannot be told from the best,
and its cheapest member. The point estimate's winner as such is never recommended."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from agentctl.recommend.objectives import OBJECTIVES, Objective
from agentctl.recommend.pairs import (
    Range,
    compare,
    estimate_of,
    is_open,
    is_surely_better,
    peak_of,
    side_of,
    values_of,
)
from agentctl.recommend.search import Candidate, Found, Ladder
from agentctl.recommend.statistics import ALPHA, Estimate, estimate, holm

Verdict = Literal["BETTER", "NOT DISTINGUISHABLE", "WORSE", "NOT EVALUATED"]
PEAK_LOAD = OBJECTIVES["peak-load"]


class Scored(NamedTuple):
    """One candidate under one objective.

    value       of the trace, with interval; None with the reason in `why_not`
    difference  against the current configuration on as many engines, paired
    p           of "as good as the current one", adjusted for all comparisons (Holm)
    """

    value: Range | None
    difference: Range | None
    p: float | None
    verdict: Verdict
    why_not: str | None = None


@dataclass(frozen=True)
class Row:
    """One candidate in the comparison.

    peak        of the trace, with the interval that the replicates' spread gives it
    side        "above" or "below" when the trace and every replicate were beyond the loads that were tried
    difference  its peak minus that of the current configuration on as many engines, paired, with interval;
                None where both are beyond the loads that were tried: then nothing is known of it
    p           of "as good as the current configuration", adjusted for all comparisons (Holm)
    verdict     by the first objective
    tied        cannot be told from the best candidate
    holds       carries the trace's own load within the SLOs, the interval's lower end included
    scores      by objective
    in_pareto   under several objectives: no other candidate is as good in all and surely better in one
    """

    found: Found
    peak: Range | None
    side: str
    difference: Range | None
    p: float | None
    verdict: Verdict
    is_current: bool
    tied: bool
    holds: bool
    scores: dict[str, Scored] = field(default_factory=dict)
    in_pareto: bool = False

    @property
    def candidate(self) -> Candidate:
        return self.found.candidate

    @property
    def holds_on_trace(self) -> bool:
        """At the trace's own load, in the run of the trace itself."""
        return _holds_on_trace(self.found)


@dataclass(frozen=True)
class Decision:
    """`chosen` is None when nothing could be compared; `clear`: no other candidate is tied with it.

    objective   the first of `objectives`: it decides, among those in the Pareto set
    why_not     why nothing was chosen
    """

    rows: tuple[Row, ...]
    chosen: Row | None
    clear: bool
    objective: str
    n_replicates: int
    objectives: tuple[str, ...] = ("peak-load",)
    why_not: str | None = None

    @property
    def tied(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.tied)

    @property
    def pareto(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.in_pareto)


NO_LADDER = Ladder(0, 0)
NOT_DEPLOYABLE = "nothing that was compared can be deployed on the router that was asked for"


def decide(
    found: Sequence[Found],
    current: str,
    objectives: Sequence[Objective] = (PEAK_LOAD,),
    reference_only: bool = False,
    ladder: Ladder = NO_LADDER,
    may_be_chosen: Callable[[Candidate], bool] = lambda candidate: True,
) -> Decision:
    """Compare what was found.

    found           who holds the SLOs at the trace's own load goes before all others
    current         name of the policy in use; with today's settings it is what others are compared with
    reference_only  the current configuration is not among what was asked for: it is never recommended
    may_be_chosen   whether a candidate can be deployed: others are compared, and never recommended
    """
    first = objectives[0]
    n_replicates = max((len(f.replicates) for f in found), default=0)
    today = {
        f.candidate.engines: f for f in found if f.candidate.name == current and not f.candidate.settings
    }
    references = [today.get(f.candidate.engines) for f in found]
    peaks = _against(found, references, PEAK_LOAD, ladder)
    scores = {one.name: _scored(found, references, one, ladder) for one in objectives}
    deciding = _deciding(first)
    eligible = [f for f in found if f.peak and not (reference_only and f in today.values())]
    may_be = [f for f in eligible if may_be_chosen(f.candidate)]
    why_not = NOT_DEPLOYABLE if eligible and not may_be else _no_value(may_be, first)
    eligible = may_be
    eligible = [f for f in eligible if first.missing(f.candidate) is None]
    eligible = [f for f in eligible if _holds_on_trace(f)] or eligible
    front = _pareto(eligible, objectives, ladder) if len(objectives) > 1 else eligible
    best, tied = _tied_with_best(front, first, deciding, ladder)
    rows = []
    for i, (f, b) in enumerate(zip(found, references, strict=True)):
        pair, p = peaks[i]
        by_objective = {name: scored[i] for name, scored in scores.items()}
        rows.append(
            Row(
                found=f,
                peak=peak_of(f),
                side=side_of(f),
                difference=_difference(f, b, pair) if b and pair else None,
                p=p,
                verdict=_verdict(pair, p) if deciding is PEAK_LOAD else by_objective[first.name].verdict,
                is_current=f is b,
                tied=f in tied,
                holds=_holds_at_trace_load(f),
                scores=by_objective,
                in_pareto=len(objectives) > 1 and any(f is one for one in front),
            )
        )
    tied_rows = [row for row in rows if row.tied]
    chosen = min(tied_rows, key=_cost) if best else None
    names = tuple(one.name for one in objectives)
    return Decision(tuple(rows), chosen, len(tied_rows) == 1, first.name, n_replicates, names, why_not)


def _deciding(first: Objective) -> Objective:
    """What candidates are compared by; among as few GPUs, by the load that they carry."""
    return PEAK_LOAD if first.name == "gpus" else first


def _no_value(eligible: Sequence[Found], first: Objective) -> str | None:
    reasons = [first.missing(f.candidate) for f in eligible]
    return reasons[0] if reasons and all(reasons) else None


def _against(
    found: Sequence[Found], references: Sequence[Found | None], objective: Objective, ladder: Ladder
) -> list[tuple[Estimate | None, float | None]]:
    """Each against its reference, and the p value adjusted for all of them."""
    pairs = [
        None if f is b else compare(f, b, objective, ladder) for f, b in zip(found, references, strict=True)
    ]
    return list(zip(pairs, _holm([pair.p if pair else None for pair in pairs]), strict=True))


def _scored(
    found: Sequence[Found], references: Sequence[Found | None], objective: Objective, ladder: Ladder
) -> list[Scored]:
    scored = []
    for f, (pair, p) in zip(found, _against(found, references, objective, ladder), strict=True):
        why_not = objective.missing(f.candidate) if f.peak else "the SLOs count no request"
        whole, replicates = values_of(f, objective, ladder)
        known = [value for value in replicates if value is not None]
        value = None if whole is None else estimate(known, whole)
        difference = None
        if pair and pair.low is not None and pair.high is not None:
            ends = sorted((objective.sign * pair.low, objective.sign * pair.high))
            difference = Range(objective.sign * pair.value, *ends)
        scored.append(
            Scored(
                value=_none_below_0(value) if value else None,
                difference=difference,
                p=p,
                verdict=_verdict(pair, p),
                why_not=why_not or (None if value else "nothing to measure it by at this load"),
            )
        )
    return scored


def _none_below_0(value: Estimate) -> Range:
    """No objective can be: a rate, a time, a price or a count."""
    return Range(value.value, None if value.low is None else max(value.low, 0.0), value.high)


def _difference(a: Found, b: Found, pair: Estimate) -> Range | None:
    if side_of(a) == side_of(b) != "":
        return None
    return Range(pair.value, None if is_open(b) else pair.low, None if is_open(a) else pair.high)


def _holm(p_values: Sequence[float | None]) -> list[float | None]:
    known = [p for p in p_values if p is not None]
    adjusted = iter(holm(known))
    return [None if p is None else next(adjusted) for p in p_values]


def _verdict(pair: Estimate | None, p: float | None) -> Verdict:
    """`pair` is above 0 where the candidate is better, whatever the objective."""
    if pair is None or p is None:
        return "NOT EVALUATED"
    if p >= ALPHA:
        return "NOT DISTINGUISHABLE"
    return "BETTER" if pair.value > 0 else "WORSE"


def _tied_with_best(
    found: Sequence[Found], first: Objective, deciding: Objective, ladder: Ladder
) -> tuple[Found | None, list[Found]]:
    """The best candidate, and all that the paired intervals cannot tell from it (itself included)."""
    eligible = _eligible(found, first)
    if not eligible:
        return None, []
    best = max(eligible, key=lambda f: estimate_of(f, deciding, ladder))
    others = [f for f in eligible if f is not best]
    pairs = [compare(f, best, deciding, ladder) for f in others]
    adjusted = _holm([pair.p if pair else None for pair in pairs])
    tied = [f for f, p in zip(others, adjusted, strict=True) if p is None or p >= ALPHA]
    return best, [best, *tied]


def _eligible(found: Sequence[Found], first: Objective) -> Sequence[Found]:
    """Under `gpus` those of the smallest size that holds the SLOs at the trace's load with confidence, or all
    when none does."""
    if first.name != "gpus":
        return found
    sure = [f for f in found if _holds_at_trace_load(f)]
    fewest = min((f.candidate.n_gpus for f in sure), default=None)
    return [f for f in sure if f.candidate.n_gpus == fewest] or found


def _pareto(found: Sequence[Found], objectives: Sequence[Objective], ladder: Ladder) -> list[Found]:
    """Those that nobody dominates: as good by the estimates in every objective, and surely better in one."""

    def dominated(f: Found) -> bool:
        return any(
            other is not f
            and all(estimate_of(other, one, ladder) >= estimate_of(f, one, ladder) for one in objectives)
            and any(is_surely_better(compare(other, f, one, ladder)) for one in objectives)
            for other in found
        )

    return [f for f in found if not dominated(f)]


def _holds_on_trace(f: Found) -> bool:
    at_trace_load = f.at.get(0)
    return at_trace_load is not None and at_trace_load.score is not None and at_trace_load.score >= 0


def _holds_at_trace_load(f: Found) -> bool:
    """Also at the lower end of the peak's interval."""
    peak = peak_of(f)
    return _holds_on_trace(f) and peak is not None and (peak.low is None or peak.low >= 1.0)


def _cost(row: Row) -> tuple[int, float, bool, int, str, str]:
    """GPUs, then price (unknown last), then whether it is surely better than the current configuration, then
    the number of signals that the policy needs, then its name.

    Without the third a policy whose peak nobody can tell, for it swings between resamples, would be tied with
    the best and be taken for its few signals.
    """
    candidate = row.candidate
    price = math.inf if candidate.price_per_hour is None else candidate.price_per_hour
    not_better = row.verdict != "BETTER"
    return candidate.n_gpus, price, not_better, candidate.policy.n_signals, candidate.name, candidate.label
