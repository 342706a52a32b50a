"""What a metric is, what it reads of a run, and how many values become a few. Percentiles are nearest-rank:
each is a value that occurred."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.present import Unit

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Per = Literal["request", "session", "sample", "run"]


class Samples(NamedTuple):
    """The state of every engine at instants `time_s`, after what ended then and before anything arrived.

    Arrays [sample, engine]; `emitted_tokens` counts output tokens since the start.
    """

    time_s: Floats
    waiting_requests: Counts
    running_requests: Counts
    pending_prefill_tokens: Counts
    context_tokens: Counts
    kv_used_blocks: Counts
    emitted_tokens: Counts
    kv_total_blocks: Counts  # [engine]

    @property
    def width_s(self) -> float:
        return float(self.time_s[1] - self.time_s[0]) if self.time_s.size > 1 else math.nan


class Isolated(NamedTuple):
    """What sessions take alone on one empty engine, arrays over sessions; NaN: nothing finished."""

    ttfet_s: Floats
    session_s: Floats
    tbt_last_turn_s: Floats


class Draws(NamedTuple):
    """What all engines of a run draw; NaN where that of any is unknown."""

    idle_w: float  # all the time
    busy_j: float  # above that, in their steps


class HandOvers(NamedTuple):
    """Of pools with roles: where requests were decoded and what happened there; arrays over requests.

    Who was not handed over was decoded on its own engine, and has zeros in the last two.
    """

    role_of_engine: Counts  # [engine] a number for each role: only engines of one role are expected alike
    decode_engine: Counts
    sent_s: Floats  # when it left the router
    computed_tokens: Counts  # of `computed_prefill_tokens`, on its decoder
    preemptions: Counts  # of `preemptions`, there

    def of(self, some: NDArray[np.bool_]) -> HandOvers:
        """Of these requests only."""
        return HandOvers(
            self.role_of_engine, self.decode_engine[some], self.sent_s[some], self.computed_tokens[some],
            self.preemptions[some],
        )  # fmt: skip


class Run(NamedTuple):
    """What the metrics read of one simulated run; arrays over requests in workload order, seconds and tokens.

    done           finished; the others were rejected at routing, their turn ended at arrival
    cached_tokens  prompt tokens found in any cache at first admission, KV tiers included
    host_tokens    of these, in tiers of the engine alone; global_tokens: in tiers of the whole cluster; None
                   without such a tier
    transfer_s     from the start of a request's loads, and of its hand-over, to their end; None without tiers
                   and roles
    energy_j       above idle, NaN where its engine's power is unknown; None: of all engines, as `draws`
    engine         where its prompt was computed; `hand_overs`: where the rest was, None: there, too

    Four cost extra and may be missing: `session_tokens` are the prompt tokens that an earlier request of the
    same session had, `copies` is on how many engines a block of content was, on average, `isolated` is what
    sessions take alone.

    Where pools serve different models, NaN of a request that was rejected: score as judged (NaN: nobody has),
    cost in millionths of a dollar, utility, the limit of the time to the first token, and what the router
    believed of that time (NaN: it asked nobody).
    """

    n_engines: int
    n_sessions: int
    done: NDArray[np.bool_]
    session: NDArray[np.int32]
    engine: NDArray[np.int64]
    arrival_s: Floats
    first_token_s: Floats
    finish_s: Floats
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    cached_tokens: NDArray[np.int64]
    computed_prefill_tokens: NDArray[np.int64]
    scheduled_s: Floats  # when first admitted
    itl_max_s: Floats  # longest gap between two output tokens, NaN: fewer than two
    preemptions: Counts
    session_tokens: Counts | None = None
    copies: float | None = None
    samples: Samples | None = None
    host_tokens: Counts | None = None
    global_tokens: Counts | None = None
    transfer_s: Floats | None = None
    isolated: Isolated | None = None
    energy_j: Floats | None = None
    draws: Draws | None = None
    hand_overs: HandOvers | None = None
    score: Floats | None = None
    cost: Floats | None = None
    utility: Floats | None = None
    tau_s: Floats | None = None
    believed_ttft_s: Floats | None = None


class Unknown(NamedTuple):
    """What cannot be computed, and why."""

    reason: str


@dataclass(frozen=True)
class Metric:
    """`compute` gives one number (or None) for `per` run, else an array; or Unknown."""

    name: str
    unit: Unit
    better: Literal["lower", "higher"]
    per: Per
    formula: str
    compute: Callable[[Run], Any]


METRICS: dict[str, Metric] = {}
NOTHING: Floats = np.empty(0)


def metric(
    unit: Unit, better: Literal["lower", "higher"], per: Per
) -> Callable[[Callable[[Run], Any]], Callable[[Run], Any]]:
    """Register a function under its name; its docstring is the formula."""

    def register(compute: Callable[[Run], Any]) -> Callable[[Run], Any]:
        formula = " ".join((compute.__doc__ or "").split())
        METRICS[compute.__name__] = Metric(compute.__name__, unit, better, per, formula, compute)
        return compute

    return register


class Summary(NamedTuple):
    """Of the values that exist; None everywhere when there is none."""

    n: int
    mean: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None


def summary(values: Floats) -> Summary:
    known = np.sort(values)  # NaN come last
    known = known[: known.size - np.count_nonzero(np.isnan(values))]
    if not known.size:
        return Summary(0, None, None, None, None, None)
    at = [float(known[nearest_rank(known.size, percent) - 1]) for percent in (50, 90, 95, 99)]
    return Summary(known.size, float(known.mean()), *at)  # sorted: the same in whatever order values came


def nearest_rank(n: int, percent: float) -> int:
    """Rank, from 1, of the percentile: the least k with k/n >= percent/100."""
    # percent * n may come out a hair above the whole number that it is.
    return min(n, max(1, math.ceil(percent * n / 100 - 1e-9 * n)))


def measure_of(name: str, run: Run) -> float | None:
    """One metric of a whole run; None where it is unknown."""
    value = METRICS[name].compute(run)
    return None if isinstance(value, Unknown) else value


def measure(run: Run) -> dict[str, dict[str, Any]]:
    """Every metric by name: its unit, and one value or a summary of many; null has its reason beside it."""
    result: dict[str, dict[str, Any]] = {}
    for one in METRICS.values():
        document: dict[str, Any] = {"unit": one.unit, "better": one.better, "per": one.per}
        value = one.compute(run)
        if isinstance(value, Unknown):
            document["reason"] = value.reason
            value = None if one.per == "run" else NOTHING
        document |= {"value": value} if one.per == "run" else summary(value)._asdict()
        result[one.name] = document
    return result
