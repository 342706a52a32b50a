"""What "best" means: each objective's formula, the load at which it is read, and what it counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agentctl.errors import UsageError
from agentctl.pool_power import HINT, power_of
from agentctl.recommend.search import Candidate, Ladder, Measured
from agentctl.recommend.statistics import Peak
from agentctl.toml import suggestion

At = Mapping[int, Measured]  # by rung
Value = Callable[[Candidate, Peak, At, Ladder], float | None]

MILLION, HOUR_S = 1e6, 3600.0
PEAK, TRACE = "each candidate's own peak", "the trace's own load"


@dataclass(frozen=True)
class Objective:
    """
    value     of one workload, trace or resample; None: not defined there
    at_trace  read at the trace's own load: rung 0 has to be run on every resample
    missing   why a candidate has no value at all
    """

    name: str
    formula: str
    operating_load: str
    counts: str
    unit: str
    better: Literal["higher", "lower"]
    value: Value
    missing: Callable[[Candidate], str | None] = lambda candidate: None

    @property
    def at_trace(self) -> bool:
        return self.operating_load == TRACE

    @property
    def sign(self) -> float:
        return 1.0 if self.better == "higher" else -1.0


def at_peak(peak: Peak, at: At, ladder: Ladder, read: Callable[[Measured], float | None]) -> float | None:
    """A measure at the peak: linear in the logarithm of the load between the rungs around it; beyond the
    ladder, at its end."""
    values = {rung: value for rung, m in at.items() if (value := read(m)) is not None}
    if not values:
        return None
    place = math.log(peak.load / ladder.load(0)) / math.log(ladder.load(1) / ladder.load(0))
    below = max((rung for rung in values if rung <= place + 1e-9), default=min(values))
    above = min((rung for rung in values if rung >= place - 1e-9), default=max(values))
    if above == below:
        return values[below]
    share = (place - below) / (above - below)
    return values[below] + share * (values[above] - values[below])


def _peak_load(candidate: Candidate, peak: Peak, at: At, ladder: Ladder) -> float | None:
    return peak.load


def _peak_tps(candidate: Candidate, peak: Peak, at: At, ladder: Ladder) -> float | None:
    return at_peak(peak, at, ladder, lambda m: m.tokens_per_s)


def _goodput(candidate: Candidate, peak: Peak, at: At, ladder: Ladder) -> float | None:
    return at[0].requests_per_s if 0 in at else None


def _gpus(candidate: Candidate, peak: Peak, at: At, ladder: Ladder) -> float | None:
    return float(candidate.n_gpus)


def _ttfet(candidate: Candidate, peak: Peak, at: At, ladder: Ladder) -> float | None:
    return at[0].ttfet_mean_s if 0 in at else None


def _cost(candidate: Candidate, peak: Peak, at: At, ladder: Ladder) -> float | None:
    tokens, price = at[0].tokens_per_s if 0 in at else None, candidate.price_per_hour
    return MILLION * price / (HOUR_S * tokens) if tokens and price is not None else None


def _no_price(candidate: Candidate) -> str | None:
    if candidate.price_per_hour is not None:
        return None
    return "no price is known: price_per_hour of [[pool]] says what an engine costs"


def _tokens_per_joule(candidate: Candidate, peak: Peak, at: At, ladder: Ladder) -> float | None:
    one = at.get(0)
    return one.tokens_per_s / one.watts if one and one.watts and one.tokens_per_s is not None else None


def _session_energy(candidate: Candidate, peak: Peak, at: At, ladder: Ladder) -> float | None:
    return at[0].session_j if 0 in at else None


def _no_energy(candidate: Candidate) -> str | None:
    for pool in candidate.cluster.pools:
        if isinstance(why := power_of(pool), str):
            return f"{why}: {HINT}"
    return None


def _on_time_utility(candidate: Candidate, peak: Peak, at: At, ladder: Ladder) -> float | None:
    return at[0].on_time_utility if 0 in at else None


OBJECTIVES = {
    one.name: one
    for one in (
        Objective(
            "peak-load", "the highest session rate at which all SLOs hold", PEAK, "sessions that start",
            "per_min", "higher", _peak_load,
        ),
        Objective(
            "peak-tps", "output tokens a second within all SLOs at the peak load", PEAK,
            "output tokens of requests within all SLOs", "tokens_per_s", "higher", _peak_tps,
        ),
        Objective(
            "goodput", "requests a second within all SLOs at the trace's load", TRACE,
            "requests within all SLOs", "per_s", "higher", _goodput,
        ),
        Objective(
            "gpus", "the fewest GPUs that hold all SLOs at the trace's session rate, with 95 % confidence",
            TRACE, "GPUs of all engines", "count", "lower", _gpus,
        ),
        Objective(
            "ttfet", "the mean time from a session's start to the first token of its last turn", TRACE,
            "sessions with a finished turn", "s", "lower", _ttfet,
        ),
        Objective(
            "cost", "the price of a million output tokens within all SLOs at the trace's load", TRACE,
            "output tokens of requests within all SLOs", "price", "lower", _cost, _no_price,
        ),
        Objective(
            "tokens-per-joule", "output tokens within all SLOs over the energy of all engines", TRACE,
            "output tokens of requests within all SLOs", "tokens_per_joule", "higher",
            _tokens_per_joule, _no_energy,
        ),
        Objective(
            "session-energy", "the energy of all engines, idle power included, over the sessions that start",
            TRACE, "sessions that start", "j", "lower", _session_energy, _no_energy,
        ),
        Objective(
            "on-time-utility",
            "the mean over requests of score - lam * cost where the first token is on time, else 0",
            TRACE, "judged requests", "ratio", "higher", _on_time_utility,
        ),
    )
}  # fmt: skip


def objectives_in(text: str | Sequence[str]) -> tuple[Objective, ...]:
    """`peak-tps,cost` as objectives, the first one decides among equals. Raises UsageError."""
    names = [part.strip() for part in (text.split(",") if isinstance(text, str) else text)]
    if not any(names):
        raise UsageError("names no objective", place="--objective", expected=" or ".join(OBJECTIVES))
    for name in names:
        if name not in OBJECTIVES:
            hint = suggestion(name, OBJECTIVES)
            raise UsageError(f"unknown objective {name!r}", place="--objective", hint=hint)
    return tuple(OBJECTIVES[name] for name in dict.fromkeys(names))
