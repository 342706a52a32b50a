"""How much was served, and how much of it within objectives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agentctl.distinct import distinct
from agentctl.metrics.base import Floats, Run, metric


@metric("tokens_per_s", "higher", "run")
def output_tokens_per_s(run: Run) -> float | None:
    """Output tokens of finished requests over the span from first arrival to last finish."""
    return tokens_per_s(run, run.done)


@metric("per_s", "higher", "run")
def requests_per_s(run: Run) -> float | None:
    """Finished requests over the span from first arrival to last finish."""
    return per_s(run, run.done)


@metric("per_min", "higher", "run")
def sessions_per_min(run: Run) -> float | None:
    """Sessions with a finished turn over the span from first arrival to last finish."""
    span = span_s(run)
    return 60.0 * distinct(run.session[run.done]).size / span if span else None


def session_starts_s(run: Run) -> Floats:
    """First arrival of every session that has one."""
    starts = np.full(run.n_sessions, np.inf)
    np.minimum.at(starts, run.session, run.arrival_s)
    return starts[np.isfinite(starts)]


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


def per_s(run: Run, counted: NDArray[np.bool_]) -> float | None:
    """The `counted` requests that finished over the span of the run."""
    span = span_s(run)
    return float((counted & run.done).sum()) / span if span else None


def in_system(run: Run, begin: float, end: float) -> float | None:
    """Mean requests in the system, queued or running, between two shares of the span of session starts.

    After the last start a system empties, however crowded it was.
    """
    if not run.done.any():
        return None
    starts = session_starts_s(run)
    first, span = starts.min(), np.ptp(starts)
    low, high = first + begin * span, first + end * span
    if high <= low:
        return None
    inside = np.clip(run.finish_s[run.done], low, high) - np.clip(run.arrival_s[run.done], low, high)
    return float(inside.sum() / (high - low))
