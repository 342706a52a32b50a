"""From peaks to a decision: verdicts against the current policy, the set that cannot be told from the best,
and its cheapest member. The point estimate's winner as such is never recommended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from agentctl.recommend.search import Candidate, Found
from agentctl.recommend.statistics import ALPHA, Estimate, Peak, estimate, holm

Verdict = Literal["BETTER", "NOT DISTINGUISHABLE", "WORSE", "NOT EVALUATED"]
OBJECTIVES = {
    "peak-load": "the highest session rate at which all SLOs hold",
    "gpus": "the fewest GPUs that hold all SLOs at the trace's session rate, with 95 % confidence",
}


class Range(NamedTuple):
    """A load, or a difference of two, in multiples of the trace's load, with its 95 % interval.

    None: unknown, or open because a peak was above every load that was tried.
    """

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Row:
    """One candidate in the comparison.

    peak        mean over replicates, with interval
    side        "above" or "below" when every replicate was beyond the loads that were tried
    difference  its peak minus that of the current policy on as many engines, paired, with interval; None
                where both are beyond the loads that were tried: then nothing is known of it
    p           of "as good as the current policy", adjusted for all comparisons (Holm)
    tied        cannot be told from the best candidate
    holds       carries the trace's own load within the SLOs, the interval's lower end included
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

    @property
    def candidate(self) -> Candidate:
        return self.found.candidate

    @property
    def holds_on_trace(self) -> bool:
        """At the trace's own load, in the run of the trace itself."""
        return _holds_on_trace(self.found)


@dataclass(frozen=True)
class Decision:
    """`chosen` is None when nothing could be compared; `clear`: no other candidate is tied with it."""

    rows: tuple[Row, ...]
    chosen: Row | None
    clear: bool
    objective: str
    n_replicates: int

    @property
    def tied(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.tied)


def decide(
    found: Sequence[Found], current: str, objective: str = "peak-load", reference_only: bool = False
) -> Decision:
    """Compare what was found.

    current         name of the policy in use; candidates are compared with its peak on as many engines
    reference_only  the current policy was not among the candidates asked for: it is never recommended
    """
    n_replicates = max((len(f.replicates) for f in found), default=0)
    references = {f.candidate.engines: f for f in found if f.candidate.name == current}
    current_of = [references.get(f.candidate.engines) for f in found]
    compared = [None if f is b else _compare(f, b) for f, b in zip(found, current_of, strict=True)]
    adjusted = _holm([pair.p if pair else None for pair in compared])
    eligible = [f for f in found if f.peak and not (reference_only and f in references.values())]
    best, tied = _tied_with_best(eligible, objective)
    rows = []
    for f, b, pair, p in zip(found, current_of, compared, adjusted, strict=True):
        rows.append(
            Row(
                found=f,
                peak=_peak(f),
                side=_side(f),
                difference=_difference(f, b, pair) if b and pair else None,
                p=p,
                verdict=_verdict(pair, p),
                is_current=f is b,
                tied=f in tied,
                holds=_holds_at_trace_load(f),
            )
        )
    tied_rows = [row for row in rows if row.tied]
    chosen = min(tied_rows, key=_cost) if best else None
    return Decision(tuple(rows), chosen, len(tied_rows) == 1, objective, n_replicates)


def _peaks(f: Found) -> list[Peak]:
    """Of the replicates; without them, of the trace itself."""
    return f.replicates or ([f.peak] if f.peak else [])


def _side(f: Found) -> str:
    sides = {peak.side for peak in _peaks(f)}
    return sides.pop() if len(sides) == 1 else ""


def _peak(f: Found) -> Range | None:
    if f.peak is None:
        return None
    found = estimate([peak.load for peak in _peaks(f)])
    low = None if found.low is None else max(found.low, 0.0)
    return Range(found.value, low, None if _open(f) else found.high)


def _open(f: Found) -> bool:
    return any(peak.side == "above" for peak in _peaks(f))


def _compare(a: Found, b: Found | None) -> Estimate | None:
    """Difference of two peaks, paired by replicate."""
    if b is None or a.peak is None or b.peak is None:
        return None
    if _side(a) == _side(b) != "":  # beyond the ladder on the same side: nothing is known of the difference
        return Estimate(0.0, None, None, 1.0 if len(a.replicates) > 1 else None)
    return estimate([x.load - y.load for x, y in zip(_peaks(a), _peaks(b), strict=True)])


def _difference(a: Found, b: Found, pair: Estimate) -> Range | None:
    if _side(a) == _side(b) != "":
        return None
    return Range(pair.value, None if _open(b) else pair.low, None if _open(a) else pair.high)


def _holm(p_values: Sequence[float | None]) -> list[float | None]:
    known = [p for p in p_values if p is not None]
    adjusted = iter(holm(known))
    return [None if p is None else next(adjusted) for p in p_values]


def _verdict(pair: Estimate | None, p: float | None) -> Verdict:
    if pair is None or p is None:
        return "NOT EVALUATED"
    if p >= ALPHA:
        return "NOT DISTINGUISHABLE"
    return "BETTER" if pair.value > 0 else "WORSE"


def _tied_with_best(found: Sequence[Found], objective: str) -> tuple[Found | None, list[Found]]:
    """The best candidate, and all that the paired intervals cannot tell from it (itself included)."""
    eligible = _eligible(found, objective)
    if not eligible:
        return None, []
    best = max(eligible, key=_mean_load)
    others = [f for f in eligible if f is not best]
    pairs = [_compare(f, best) for f in others]
    adjusted = _holm([pair.p if pair else None for pair in pairs])
    tied = [f for f, p in zip(others, adjusted, strict=True) if p is None or p >= ALPHA]
    return best, [best, *tied]


def _eligible(found: Sequence[Found], objective: str) -> Sequence[Found]:
    """Who may be recommended: those that hold the objectives at the trace's own load, or all when none does.

    Under `gpus` they must do so with confidence, and only the smallest size takes part.
    """
    if objective == "gpus":
        sure = [f for f in found if _holds_at_trace_load(f)]
        fewest = min((f.candidate.n_gpus for f in sure), default=None)
        return [f for f in sure if f.candidate.n_gpus == fewest] or found
    return [f for f in found if _holds_on_trace(f)] or found


def _mean_load(f: Found) -> float:
    peak = _peak(f)
    return peak.value if peak else 0.0


def _holds_on_trace(f: Found) -> bool:
    at_trace_load = f.at.get(0)
    return at_trace_load is not None and at_trace_load.score is not None and at_trace_load.score >= 0


def _holds_at_trace_load(f: Found) -> bool:
    """Also at the lower end of the peak's interval."""
    peak = _peak(f)
    return _holds_on_trace(f) and peak is not None and (peak.low is None or peak.low >= 1.0)


def _cost(row: Row) -> tuple[float, ...] | tuple[int, float, int, str]:
    """GPUs, then price (unknown last), then the number of signals that the policy needs, then its name."""
    candidate = row.candidate
    price = math.inf if candidate.price_per_hour is None else candidate.price_per_hour
    return candidate.n_gpus, price, candidate.policy.n_signals, candidate.name
