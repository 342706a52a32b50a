"""How much load a candidate carries: a ladder of loads up to the knee and past it, on paired replicates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from agentctl.metrics import (
    Run,
    hit_ratio,
    imbalance_prefill,
    in_system,
    summary,
    tokens_per_s,
    tpot_s,
    ttft_s,
)
from agentctl.policies.base import Policy
from agentctl.recommend.statistics import Peak, peak_load
from agentctl.slo import Slo, requests_within_all, score_all

RUNGS_PER_DOUBLING = 3  # neighbouring loads differ by a quarter; the crossing is interpolated between them


@dataclass(frozen=True)
class Candidate:
    name: str  # of the policy, unique among those compared on as many engines
    policy: Policy
    engines: int
    n_gpus: int
    price_per_hour: float | None  # of all its engines; None: unknown


class Ladder(NamedTuple):
    """Rungs from `bottom` to `top`; rung 0 is the load of the trace, RUNGS_PER_DOUBLING rungs double it."""

    bottom: int
    top: int

    def load(self, rung: int) -> float:
        return 2.0 ** (rung / RUNGS_PER_DOUBLING)


class Measured(NamedTuple):
    """What one run says about a candidate at one load. None: not defined in this run."""

    score: float | None  # of the objectives: below 0 they fail
    attained: float | None  # share of requests within all objectives
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    tpot_p95_s: float | None
    hit_ratio: float | None
    imbalance_prefill: float | None
    tokens_per_s: float | None  # output tokens of requests within all objectives
    in_system_third: float | None  # mean requests in the system, third quarter of the arrivals
    in_system_fourth: float | None
    requests: int
    rejected: int


def measured(run: Run, slos: tuple[Slo, ...]) -> Measured:
    within = requests_within_all(slos, run)
    ttft, tpot = summary(ttft_s(run)), summary(tpot_s(run))
    return Measured(
        score=score_all(slos, run),
        attained=float(within.mean()) if within.size else None,
        ttft_p50_s=ttft.p50,
        ttft_p95_s=ttft.p95,
        tpot_p95_s=tpot.p95,
        hit_ratio=hit_ratio(run),
        imbalance_prefill=imbalance_prefill(run),
        tokens_per_s=tokens_per_s(run, within),
        in_system_third=in_system(run, 0.5, 0.75),
        in_system_fourth=in_system(run, 0.75, 1.0),
        requests=int(run.done.size),
        rejected=int((~run.done).sum()),
    )


@dataclass
class Found:
    """One candidate: what it did at every load tried on the whole trace, and its peak on every replicate."""

    candidate: Candidate
    at: dict[int, Measured]  # by rung
    peak: Peak | None  # of the whole trace; None: the objectives count no request
    replicates: list[Peak] = field(default_factory=list)


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
