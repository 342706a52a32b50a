"""From peaks to a decision: verdicts against the current policy, the set that cannot be told from the best,
and its cheapest member. The point estimate's winner as such is never recommended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from agentctl.recommend.search import Candidate, Found
from agentctl.recommend.statistics import ALPHA, Estimate, estimate, holm, log_ratio

Verdict = Literal["BETTER", "NOT DISTINGUISHABLE", "WORSE", "NOT EVALUATED"]
OBJECTIVES = {
    "peak-load": "the highest session rate at which all SLOs hold",
    "gpus": "the fewest GPUs that hold all SLOs at the trace's session rate, with 95 % confidence",
}


class Range(NamedTuple):
    """A positive quantity with its 95 % interval; None: unknown or open at that end."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Row:
    """One candidate in the comparison.

    peak        multiple of the trace's load, with interval
    difference  ratio of its peak to that of the current policy on as many engines, with interval
    p           of "as good as the current policy", adjusted for all comparisons (Holm)
    tied        cannot be told from the best candidate
    holds       carries the trace's own load within the SLOs, the interval's lower end included
    """

    found: Found
    peak: Range | None
    difference: Range | None
    p: float | None
    verdict: Verdict
    is_current: bool
    tied: bool
    holds: bool

    @property
    def candidate(self) -> Candidate:
        return self.found.candidate


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
                peak=_peak_range(f),
                difference=_as_ratio(f, b, pair) if b and pair else None,
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


def _compare(a: Found, b: Found | None) -> Estimate | None:
    """Logarithm of the ratio of two peaks, paired by replicate."""
    if b is None or a.peak is None or b.peak is None:
        return None
    pairs = zip(a.replicates, b.replicates, strict=True)
    paired = [log_ratio(x.load, y.load) for x, y in pairs]
    found = estimate(log_ratio(a.peak.load, b.peak.load), paired)
    if (
        a.peak.side and a.peak.side == b.peak.side
    ):  # both beyond the ladder, on the same side: nothing is known
        return Estimate(0.0, None, None, 1.0)
    return found


def _as_ratio(a: Found, b: Found, pair: Estimate) -> Range:
    """The interval of the ratio; open where a peak is only known to be beyond the ladder."""
    assert a.peak and b.peak
    low = None if pair.low is None or a.peak.side == "below" or b.peak.side == "above" else math.exp(pair.low)
    high = (
        None if pair.high is None or a.peak.side == "above" or b.peak.side == "below" else math.exp(pair.high)
    )
    return Range(math.exp(pair.value), low, high)


def _peak_range(f: Found) -> Range | None:
    if f.peak is None:
        return None
    found = estimate(math.log(f.peak.load), [math.log(peak.load) for peak in f.replicates])
    low = None if found.low is None or f.peak.side == "below" else math.exp(found.low)
    high = None if found.high is None or f.peak.side == "above" else math.exp(found.high)
    return Range(f.peak.load, low, high)


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


def _tied_with_best(eligible: Sequence[Found], objective: str) -> tuple[Found | None, list[Found]]:
    """The best candidate, and all that the paired intervals cannot tell from it (itself included).

    Under `gpus` only the smallest size that holds the SLOs at the trace's load takes part; when none holds
    them, all do.
    """
    if objective == "gpus":
        holding = [f for f in eligible if _holds_at_trace_load(f)]
        fewest = min((f.candidate.n_gpus for f in holding), default=None)
        eligible = [f for f in holding if f.candidate.n_gpus == fewest] if holding else eligible
    if not eligible:
        return None, []
    best = max(eligible, key=lambda f: f.peak.load if f.peak else 0.0)
    others = [f for f in eligible if f is not best]
    pairs = [_compare(f, best) for f in others]
    adjusted = _holm([pair.p if pair else None for pair in pairs])
    tied = [f for f, p in zip(others, adjusted, strict=True) if p is None or p >= ALPHA]
    return best, [best, *tied]


def _holds_at_trace_load(f: Found) -> bool:
    at_trace_load = f.at.get(0)
    if at_trace_load is None or at_trace_load.score is None or at_trace_load.score < 0:
        return False
    peak = _peak_range(f)
    return peak is not None and (peak.low is None or peak.low >= 1.0)


def _cost(row: Row) -> tuple[float, ...] | tuple[int, float, int, str]:
    """GPUs, then price (unknown last), then the number of signals that the policy needs, then its name."""
    candidate = row.candidate
    price = math.inf if candidate.price_per_hour is None else candidate.price_per_hour
    return candidate.n_gpus, price, candidate.policy.n_signals, candidate.name
