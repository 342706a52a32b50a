"""What is measured in a run: every metric in one place, with its unit, its better direction and its formula.

A metric per request or per session is an array with NaN where it does not exist (a rejected request has
no TTFT, a one-token output no TPOT): it is summarised over the others, and the missing ones are counted,
never made 0. Percentiles are nearest-rank: each is a value that occurred.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.present import Unit

Floats = NDArray[np.float64]


class Run(NamedTuple):
    """What the metrics read of one simulated run; arrays over requests in workload order, seconds and tokens.

    done           finished; the others were rejected at routing, their turn ended at arrival
    cached_tokens  prompt tokens found in any cache at first admission
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


@dataclass(frozen=True)
class Metric:
    """`compute` gives an array for `per` request or session, one number (or None) for `per` run."""

    name: str
    unit: Unit
    better: Literal["lower", "higher"]
    per: Literal["request", "session", "run"]
    formula: str
    compute: Callable[[Run], Any]


METRICS: dict[str, Metric] = {}


def _metric(
    unit: Unit, better: Literal["lower", "higher"], per: Literal["request", "session", "run"]
) -> Callable[[Callable[[Run], Any]], Callable[[Run], Any]]:
    """Register a function under its name; its docstring is the formula."""

    def register(compute: Callable[[Run], Any]) -> Callable[[Run], Any]:
        formula = " ".join((compute.__doc__ or "").split())
        METRICS[compute.__name__] = Metric(compute.__name__, unit, better, per, formula, compute)
        return compute

    return register


@_metric("s", "lower", "request")
def ttft_s(run: Run) -> Floats:
    """Time to first token: first token minus arrival."""
    return np.where(run.done, run.first_token_s - run.arrival_s, np.nan)


@_metric("s", "lower", "request")
def tpot_s(run: Run) -> Floats:
    """Time per output token after the first: (finish - first token) / (output tokens - 1).
    A one-token output has none."""
    gaps = np.where(run.done & (run.output_tokens > 1), run.output_tokens - 1, np.nan)
    return (run.finish_s - run.first_token_s) / gaps


@_metric("s", "lower", "request")
def e2e_s(run: Run) -> Floats:
    """End to end: finish minus arrival."""
    return np.where(run.done, run.finish_s - run.arrival_s, np.nan)


@_metric("s", "lower", "session")
def session_s(run: Run) -> Floats:
    """Session completion time: last end minus first arrival in the session, gaps between turns included.
    A rejected turn ends at its arrival; a session without a finished turn has none."""
    start = np.full(run.n_sessions, np.inf)
    end = np.full(run.n_sessions, -np.inf)
    has_done = np.zeros(run.n_sessions, dtype=bool)
    np.minimum.at(start, run.session, run.arrival_s)
    np.maximum.at(end, run.session, np.where(run.done, run.finish_s, run.arrival_s))
    np.logical_or.at(has_done, run.session, run.done)
    return np.where(has_done, end, np.nan) - np.where(has_done, start, np.nan)


@_metric("ratio", "higher", "run")
def hit_ratio(run: Run) -> float | None:
    """Share of prompt tokens found in a cache at first admission, over finished requests, token-weighted."""
    total = int(run.prompt_tokens[run.done].sum())
    return int(run.cached_tokens[run.done].sum()) / total if total else None


@_metric("ratio", "lower", "run")
def imbalance_prefill(run: Run) -> float | None:
    """Computed prefill tokens of the busiest engine over the mean of all engines; 1 is even."""
    return _max_over_mean(_per_engine(run, run.computed_prefill_tokens.astype(np.float64)))


@_metric("ratio", "lower", "run")
def imbalance_batch(run: Run) -> float | None:
    """Mean batch size (queue included) of the busiest engine over the mean of all engines, whole run;
    by Little's law the sums of E2E times; 1 is even."""
    return _max_over_mean(_per_engine(run, run.finish_s - run.arrival_s))


@_metric("tokens_per_s", "higher", "run")
def output_tokens_per_s(run: Run) -> float | None:
    """Output tokens of finished requests over the span from first arrival to last finish."""
    return tokens_per_s(run, run.done)


@_metric("per_min", "higher", "run")
def sessions_per_min(run: Run) -> float | None:
    """Sessions with a finished turn over the span from first arrival to last finish."""
    span = span_s(run)
    return 60.0 * np.unique(run.session[run.done]).size / span if span else None


def span_s(run: Run) -> float | None:
    """From the first arrival to the last finish; None when nothing finished or it took no time."""
    if not run.done.any():
        return None
    span = float(run.finish_s[run.done].max() - run.arrival_s.min())
    return span if span > 0 else None


def tokens_per_s(run: Run, counted: NDArray[np.bool_]) -> float | None:
    """Output tokens of the `counted` requests over the span of the run: within SLO, given that mask."""
    span = span_s(run)
    return float(run.output_tokens[counted & run.done].sum()) / span if span else None


def in_system(run: Run, begin: float, end: float) -> float | None:
    """Mean requests in the system, queued or running, between two shares of the span of arrivals."""
    if not run.done.any():
        return None
    first, span = run.arrival_s.min(), np.ptp(run.arrival_s)
    low, high = first + begin * span, first + end * span
    if high <= low:
        return None
    inside = np.clip(run.finish_s[run.done], low, high) - np.clip(run.arrival_s[run.done], low, high)
    return float(inside.sum() / (high - low))


class Summary(NamedTuple):
    """Of the values that exist; None everywhere when there is none."""

    n: int
    mean: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None


def summary(values: Floats) -> Summary:
    known = np.sort(values[~np.isnan(values)])
    if not known.size:
        return Summary(0, None, None, None, None, None)
    at = [float(known[nearest_rank(known.size, percent) - 1]) for percent in (50, 90, 95, 99)]
    return Summary(known.size, math.fsum(known) / known.size, *at)


def nearest_rank(n: int, percent: float) -> int:
    """Rank, from 1, of the percentile: the least k with k/n >= percent/100."""
    # percent * n may come out a hair above the whole number that it is.
    return min(n, max(1, math.ceil(percent * n / 100 - 1e-9 * n)))


def measure(run: Run) -> dict[str, dict[str, Any]]:
    """Every metric by name: its unit, and either a summary over requests or sessions, or one value."""
    result: dict[str, dict[str, Any]] = {}
    for metric in METRICS.values():
        head = {"unit": metric.unit, "better": metric.better, "per": metric.per}
        value = metric.compute(run)
        rest = {"value": value} if metric.per == "run" else summary(value)._asdict()
        result[metric.name] = {**head, **rest}
    return result


def _per_engine(run: Run, amount: Floats) -> Floats:
    totals = np.zeros(run.n_engines)
    np.add.at(totals, run.engine[run.done], amount[run.done])
    return totals


def _max_over_mean(values: Floats) -> float | None:
    mean = values.mean()
    return float(values.max() / mean) if mean > 0 else None
