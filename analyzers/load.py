"""Load: how much comes, how unevenly, and whether a cluster of n engines can be balanced under it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentctl.analyzers.base import AnalyzeOptions
from agentctl.analyzers.columns import floats, numbered
from agentctl.analyzers.elapsed import elapsed, to_clock
from agentctl.analyzers.hot_prefixes import Prefix, hot_prefixes
from agentctl.analyzers.load_text import describe as describe
from agentctl.present import Curve
from agentctl.trace import Trace

NAME = "load"
ORDER = 40

MIN_WINDOWS = 10  # fewer counts say nothing about their variance
MIN_END_COVERAGE = 0.9  # requests in flight are not counted when more of their ends are unknown
N_RATE_POINTS = 120


@dataclass(frozen=True)
class Concurrency:
    """Requests or sessions at once, weighted by time."""

    mean: float
    p50: float
    p99: float
    max: int


@dataclass(frozen=True)
class Burstiness:
    """Variance over mean of the counts per window; 1 is Poisson. None: too few windows, or below the tick."""

    window_s: float
    requests_dispersion: float | None
    sessions_dispersion: float | None


@dataclass(frozen=True)
class TopSessions:
    session_ratio: float
    sessions: int
    token_ratio: float


@dataclass(frozen=True)
class Headroom:
    """What n engines share, and the prefixes that fail the hot-prefix test there."""

    engines: int
    requests_per_min_per_engine: float
    hot_prefixes: int | None


@dataclass(frozen=True)
class Result:
    starts: str  # absolute | relative | synthesised
    multi_turn_sessions: int  # of two or more requests
    span_s: float  # from the first to the last arrival
    rates_reason: str | None  # why rates are None
    requests_per_min: float | None
    peak_requests_per_min: float | None  # in the busiest minute; None: the log is shorter than one
    sessions_per_min: float | None  # between the first and the last start
    prompt_tokens_per_s: float | None
    output_tokens_per_s: float | None
    requests_in_flight: Concurrency | None
    sessions_in_flight: Concurrency | None
    concurrency_reason: str | None  # why they are None
    burstiness: tuple[Burstiness, ...]
    top_sessions: tuple[TopSessions, ...]
    headroom: tuple[Headroom, ...]
    common_prefix_tokens: int | None  # what all requests share
    prefixes: tuple[Prefix, ...]  # the most used ones below that
    prefixes_reason: str | None  # why there are none
    hash_scope: str | None
    arrivals_curve: Curve


def analyze(trace: Trace, options: AnalyzeOptions) -> Result:
    rows = trace.requests(["session_id", "arrival_s", "end_s", "prompt_tokens", "output_tokens", "tip_node"])
    arrival, end = floats(rows["arrival_s"]), floats(rows["end_s"])
    prompt, output = floats(rows["prompt_tokens"]), floats(rows["output_tokens"])
    session = numbered(rows["session_id"])
    starts = arrival[np.unique(session, return_index=True)[1]]
    span = float(elapsed(arrival[-1], arrival[0])) if arrival.size else 0.0
    per_s = 1 / span if span > 0 else None
    in_flight, sessions_in_flight, reason = _concurrency(arrival, end, session)
    found = None
    if trace.block_tokens and rows["tip_node"].count():
        tip = rows["tip_node"].fill_null(0).to_numpy()
        found = hot_prefixes(trace.tree, tip, session, trace.block_tokens, options.engines)
    return Result(
        starts=trace.meta["time"]["origin"],
        multi_turn_sessions=int((np.bincount(session) > 1).sum()),
        span_s=span,
        rates_reason=None if per_s else "all requests arrive at one instant",
        requests_per_min=per_s and 60 * per_s * arrival.size,
        peak_requests_per_min=_peak_per_min(arrival) if span >= 60 else None,
        sessions_per_min=_start_rate_per_min(starts),
        prompt_tokens_per_s=per_s and _rate(prompt, per_s),
        output_tokens_per_s=per_s and _rate(output, per_s),
        requests_in_flight=in_flight,
        sessions_in_flight=sessions_in_flight,
        concurrency_reason=reason,
        burstiness=_burstiness(arrival, starts, options.count_windows_s),
        top_sessions=_top_sessions(session, np.nan_to_num(prompt) + np.nan_to_num(output), options),
        headroom=tuple(
            Headroom(n, 60 * per_s * arrival.size / n, found.hot[n] if found else None)
            for n in options.engines
            if per_s
        ),
        common_prefix_tokens=found.common_tokens if found else None,
        prefixes=found.most_used if found else (),
        prefixes_reason=None if found else "the trace has no block chains",
        hash_scope=(trace.meta["hash"] or {}).get("scope"),
        arrivals_curve=_arrivals_curve(arrival, span),
    )


def _rate(tokens: NDArray[np.float64], per_s: float) -> float | None:
    return None if np.isnan(tokens).any() else float(tokens.sum()) * per_s


def _start_rate_per_min(starts: NDArray[np.float64]) -> float | None:
    lasts = float(starts.max() - starts.min()) if starts.size else 0.0
    return 60 * (starts.size - 1) / lasts if lasts > 0 else None


def _peak_per_min(arrival: NDArray[np.float64]) -> float:
    """Most arrivals within any 60 s."""
    since = elapsed(arrival, arrival[0])
    return float((np.searchsorted(since, to_clock(since + 60.0)) - np.arange(since.size)).max())


def _concurrency(
    arrival: NDArray[np.float64], end: NDArray[np.float64], session: NDArray[np.int64]
) -> tuple[Concurrency | None, Concurrency | None, str | None]:
    known = ~np.isnan(end)
    if known.sum() < MIN_END_COVERAGE * max(arrival.size, 1):
        return None, None, f"the end is known for {known.mean() if known.size else 0:.0%} of the requests"
    last_end = np.full(session.max(initial=-1) + 1, -np.inf)
    np.maximum.at(last_end, session, np.where(known, end, arrival))
    starts = arrival[np.unique(session, return_index=True)[1]]
    requests, sessions = in_flight(arrival[known], end[known]), in_flight(starts, last_end)
    return requests, sessions, None if requests else "no request takes any time"


def in_flight(start: NDArray[np.float64], end: NDArray[np.float64]) -> Concurrency | None:
    """Intervals that overlap, weighted by time from the first start to the last end; None without time."""
    times = to_clock(np.concatenate([start, end]))
    order = np.argsort(times, kind="stable")
    level = np.cumsum(np.where(order < start.size, 1, -1))[:-1]
    lasts = np.diff(times[order])
    level, lasts = level[lasts > 0], lasts[lasts > 0]
    if lasts.size == 0:
        return None
    by_level = np.argsort(level, kind="stable")
    share = np.cumsum(lasts[by_level]) / lasts.sum()
    p50, p99 = (int(level[by_level[np.searchsorted(share, q)]]) for q in (0.50, 0.99))
    return Concurrency(float(level @ lasts / lasts.sum()), p50, p99, int(level.max()))


def _burstiness(
    arrival: NDArray[np.float64], starts: NDArray[np.float64], windows: tuple[float, ...]
) -> tuple[Burstiness, ...]:
    steps = elapsed(arrival[1:], arrival[:-1])
    tick = steps[steps > 0].min(initial=np.inf)  # below it, counts show the clock, not the load
    return tuple(
        Burstiness(w, *((dispersion(t, w) if w >= tick else None) for t in (arrival, starts)))
        for w in windows
    )


def dispersion(times: NDArray[np.float64], window: float) -> float | None:
    """Index of dispersion of counts: variance over mean per whole window, `times` in any order."""
    if times.size == 0:
        return None
    since = elapsed(times, times.min())
    n_windows = int(since.max() // window)
    if n_windows < MIN_WINDOWS:
        return None
    place = (since // window).astype(np.int64)
    counts = np.bincount(place[place < n_windows], minlength=n_windows)
    return float(counts.var(ddof=1) / counts.mean())


def _top_sessions(
    session: NDArray[np.int64], tokens: NDArray[np.float64], options: AnalyzeOptions
) -> tuple[TopSessions, ...]:
    """Share of all prompt and output tokens in the sessions that have most of them."""
    largest = np.sort(np.bincount(session, weights=tokens))[::-1] if session.size else np.empty(0)
    if largest.sum() <= 0:
        return ()
    sizes = [(share, int(np.ceil(share * largest.size))) for share in options.top_sessions]
    return tuple(TopSessions(share, n, float(largest[:n].sum() / largest.sum())) for share, n in sizes)


def _arrivals_curve(arrival: NDArray[np.float64], span: float) -> Curve:
    """Requests per minute over equal stretches of the trace."""
    if span <= 0:
        return Curve("requests", (), ())
    counts, edges = np.histogram(arrival - arrival[0], bins=N_RATE_POINTS, range=(0.0, span))
    per_min = counts * (60 * N_RATE_POINTS / span)
    return Curve("requests", tuple(edges[:-1].tolist()), tuple(per_min.tolist()), "step")
