"""How much load a candidate carries: a ladder of loads up to the knee and past it, on paired replicates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from agentctl.cluster import Cluster
from agentctl.metrics import (
    Run,
    hit_ratio,
    idle_w,
    imbalance_prefill,
    in_system,
    on_time_utility,
    session_starts_s,
    summary,
    tpot_s,
    ttfet_s,
    ttft_s,
)
from agentctl.policies.base import Policy
from agentctl.recommend.roles import ROLES
from agentctl.recommend.statistics import Peak, peak_load
from agentctl.slo import Slo, requests_within_all, score_all

RUNGS_PER_DOUBLING = 3  # neighbouring loads differ by a quarter; the crossing is interpolated between them
WARM_UP = 0.1  # of the span of session starts: who starts there finds emptier caches than everybody after


@dataclass(frozen=True)
class Candidate:
    """A policy on a cluster.

    name      of the policy, with the parameters that were written
    cluster   what is simulated: size, limits and tiers, the router as it is under the policy
    settings  what differs from the cluster as it is today, the number of engines aside: (key, value)
    """

    name: str
    policy: Policy
    cluster: Cluster
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def engines(self) -> int:
        return self.cluster.n_engines

    @property
    def n_gpus(self) -> int:
        return self.cluster.n_gpus

    @property
    def price_per_hour(self) -> float | None:
        """Of all its engines; None: unknown."""
        return self.cluster.price_per_hour

    @property
    def label(self) -> str:
        """The settings in words; empty for those of today."""
        return ", ".join(str(value) if key == ROLES else f"{key} {value}" for key, value in self.settings)

    @property
    def title(self) -> str:
        """Unique among candidates of as many engines."""
        return f"{self.name}, {self.label}" if self.settings else self.name


class Ladder(NamedTuple):
    """Rungs from `bottom` to `top`; rung 0 is the load of the trace, RUNGS_PER_DOUBLING rungs double it."""

    bottom: int
    top: int

    def load(self, rung: int) -> float:
        return 2.0 ** (rung / RUNGS_PER_DOUBLING)


class Measured(NamedTuple):
    """What one run says about a candidate at one load. None: not defined in this run.

    Counts sessions that start after the warm-up, but for the last four. Rates are over the time in which
    these sessions start: while the last of them end, others would come.
    """

    score: float | None  # of the objectives: below 0 they fail
    attained: float | None  # share of requests within all objectives
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    tpot_p95_s: float | None
    ttfet_mean_s: float | None  # of sessions: time to the first token of the last turn
    hit_ratio: float | None
    imbalance_prefill: float | None
    tokens_per_s: float | None  # output tokens of requests within all objectives
    requests_per_s: float | None  # requests within all objectives
    watts: float | None  # of all engines: above idle what these sessions drew, and idle power
    session_j: float | None  # these watts, over the rate at which sessions start
    on_time_utility: float | None  # between models
    in_system_third: float | None  # mean requests in the system, third quarter of the session starts
    in_system_fourth: float | None
    requests: int
    rejected: int


def measured(run: Run, slos: tuple[Slo, ...]) -> Measured:
    warm = after_warm_up(run)
    within = requests_within_all(slos, warm)
    window_s = window_of_starts_s(run)
    ttft, tpot = summary(ttft_s(warm)), summary(tpot_s(warm))
    watts = _watts(warm, window_s)
    return Measured(
        score=score_all(slos, warm),
        attained=float(within.mean()) if within.size else None,
        ttft_p50_s=ttft.p50,
        ttft_p95_s=ttft.p95,
        tpot_p95_s=tpot.p95,
        ttfet_mean_s=summary(ttfet_s(warm)).mean,
        hit_ratio=hit_ratio(warm),
        imbalance_prefill=imbalance_prefill(warm),
        tokens_per_s=float(warm.output_tokens[within].sum()) / window_s if window_s else None,
        requests_per_s=float(within.sum()) / window_s if window_s else None,
        watts=watts,
        session_j=watts * window_s / warm.n_sessions if watts is not None and window_s else None,
        on_time_utility=_number(on_time_utility(warm)),
        in_system_third=in_system(run, 0.5, 0.75),
        in_system_fourth=in_system(run, 0.75, 1.0),
        requests=int(run.done.size),
        rejected=int((~run.done).sum()),
    )


def _number(value: object) -> float | None:
    return value if isinstance(value, float) else None


def _watts(warm: Run, window_s: float | None) -> float | None:
    """Mean power; None where it is not known of every engine, and where no rate is."""
    idle = idle_w(warm)
    if idle is None or warm.energy_j is None or not window_s:
        return None
    return idle + float(warm.energy_j[warm.done].sum()) / window_s


def after_warm_up(run: Run) -> Run:
    """The same run, counting only sessions that start after the first WARM_UP of the span of starts."""
    starts = np.full(run.n_sessions, np.inf)
    np.minimum.at(starts, run.session, run.arrival_s)
    known = starts[np.isfinite(starts)]
    if not known.size:
        return run
    counted = (starts >= known.min() + WARM_UP * np.ptp(known)) & np.isfinite(starts)
    of_request = counted[run.session]
    numbers = np.cumsum(counted) - 1
    kept: dict[str, Any] = {
        name: values[of_request]
        for name, values in run._asdict().items()
        if isinstance(values, np.ndarray) and values.shape == of_request.shape
    }
    kept["session"] = numbers[kept["session"]].astype(np.int32)
    if run.hand_overs is not None:
        kept["hand_overs"] = run.hand_overs.of(of_request)
    return run._replace(n_sessions=int(counted.sum()), **kept)


def window_of_starts_s(run: Run) -> float | None:
    """How long the sessions that are counted take to start; None when all start at once: no rate is known."""
    starts = session_starts_s(run)
    window = (1 - WARM_UP) * float(np.ptp(starts)) if starts.size else 0.0
    return window or None


@dataclass
class Found:
    """One candidate: what it did at every load tried on the whole trace, and on every replicate.

    dropped_after  replicates after which it was surely worse than the leader by more than the indifference
                   zone, or not among the best few; None: it went the whole way
    """

    candidate: Candidate
    at: dict[int, Measured]  # by rung
    peak: Peak | None  # of the whole trace; None: the objectives count no request
    replicates: list[Peak] = field(default_factory=list)
    at_replicates: list[dict[int, Measured]] = field(default_factory=list)
    dropped_after: int | None = None


Measure = Callable[[int], Measured]  # of a rung


def search(
    measure: Measure, ladder: Ladder, start: int, stride: int
) -> tuple[Peak | None, dict[int, Measured]]:
    """The peak load, and every rung that was measured on the way.

    Walks in strides until the objectives hold below and fail above, then halves the bracket down to
    neighbouring rungs.
    """
    at: dict[int, Measured] = {}

    def holds(rung: int) -> bool | None:
        if rung not in at:
            at[rung] = measure(rung)
        score = at[rung].score
        return None if score is None else score >= 0

    start = min(max(start, ladder.bottom), ladder.top)
    if holds(start) is None:
        return None, at
    low, high = start, start  # holds at low, fails at high, once they differ
    if holds(start):
        while high < ladder.top and (high == low):
            high = min(low + stride, ladder.top)
            if holds(high):
                low = high
    else:
        while low > ladder.bottom and (high == low):
            low = max(high - stride, ladder.bottom)
            if not holds(low):
                high = low
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    scores = {ladder.load(rung): found.score for rung, found in at.items() if found.score is not None}
    return peak_load(scores), at
