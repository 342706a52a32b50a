"""A session's first and last turn, and how much longer it takes than alone (ConServe, arXiv 2606.01839).

Isolated is the same session, with its gaps, alone on one empty engine: `Run.isolated`, an outcome of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from agentctl.metrics.base import METRICS, Floats, Isolated, Metric, Run, Unknown, metric
from agentctl.metrics.sessions import first_turns, last_turns, session_s, ttfet_s

SLO_TIMES_ISOLATED = 5.0  # ConServe's objective
NOT_ISOLATED = Unknown("sessions were not run in isolation")


@metric("s", "lower", "session")
def ttft_first_turn_s(run: Run) -> Floats:
    """TTFT of the session's first finished turn (the first to arrive)."""
    return _of(first_turns(run), run.first_token_s - run.arrival_s)


@metric("s", "lower", "session")
def ttft_first_turn_unqueued_s(run: Run) -> Floats:
    """First token minus first admission into a batch, of the session's first finished turn."""
    return _of(first_turns(run), run.first_token_s - run.scheduled_s)


@metric("s", "lower", "session")
def ttft_last_turn_s(run: Run) -> Floats:
    """TTFT of the session's last finished turn (the last to arrive)."""
    return _of(last_turns(run), run.first_token_s - run.arrival_s)


@metric("s", "lower", "session")
def ttft_last_turn_unqueued_s(run: Run) -> Floats:
    """First token minus first admission into a batch, of the session's last finished turn."""
    return _of(last_turns(run), run.first_token_s - run.scheduled_s)


@metric("s", "lower", "session")
def tbt_last_turn_s(run: Run) -> Floats:
    """Mean time between tokens of the session's last finished turn. A one-token output has none."""
    gaps = np.where(run.output_tokens > 1, run.output_tokens - 1, np.nan)
    return _of(last_turns(run), (run.finish_s - run.first_token_s) / gaps)


def isolated_of(run: Run) -> Isolated:
    """What `Run.isolated` holds, of a run in which every session was alone."""
    return Isolated(ttfet_s(run), session_s(run), tbt_last_turn_s(run))


def times_isolated(values: Floats, isolated: Floats) -> Floats:
    """How many times the isolated value each is; NaN where either does not exist."""
    return values / np.where(isolated > 0, isolated, np.nan)


def geometric_mean(values: Floats) -> float | None:
    """Of those that exist."""
    known = values[~np.isnan(values)]
    return float(np.exp(np.log(known).mean())) if known.size else None


def share_above(values: Floats, limit: float) -> float | None:
    """Of those that exist."""
    known = values[~np.isnan(values)]
    return float((known > limit).mean()) if known.size else None


TIMES: dict[str, tuple[str, Callable[[Run], Floats]]] = {
    "ttfet": ("TTFET", ttfet_s),
    "session": ("Session completion time", session_s),
    "tbt_last_turn": ("Mean time between tokens of the last turn", tbt_last_turn_s),
}


def _times(seconds: Callable[[Run], Floats], place: int) -> Callable[[Run], Floats | Unknown]:
    return lambda run: (
        NOT_ISOLATED if run.isolated is None else times_isolated(seconds(run), run.isolated[place])
    )


def _violations(times: Callable[[Run], Floats | Unknown]) -> Callable[[Run], float | Unknown | None]:
    def compute(run: Run) -> float | Unknown | None:
        values = times(run)
        return values if isinstance(values, Unknown) else share_above(values, SLO_TIMES_ISOLATED)

    return compute


def _geometric(times: Callable[[Run], Floats | Unknown]) -> Callable[[Run], float | Unknown | None]:
    def compute(run: Run) -> float | Unknown | None:
        values = times(run)
        return values if isinstance(values, Unknown) else geometric_mean(values)

    return compute


for _place, (_key, (_words, _seconds)) in enumerate(TIMES.items()):
    _name, _compute = f"{_key}_x_isolated", _times(_seconds, _place)
    _formula = f"{_words}, as a multiple of what the same session takes alone on one empty engine."
    METRICS[_name] = Metric(_name, "", "lower", "session", _formula, _compute)
    METRICS[f"{_name}_gmean"] = Metric(
        f"{_name}_gmean", "", "lower", "run", f"Geometric mean of {_name}.", _geometric(_compute)
    )
    METRICS[f"{_name}_above_5"] = Metric(
        f"{_name}_above_5", "ratio", "lower", "run",
        f"Share of sessions whose {_name} is above 5, ConServe's objective.", _violations(_compute),
    )  # fmt: skip


def _of(turns: np.ndarray, values: Floats) -> Floats:
    """By session; NaN without a turn."""
    return np.where(turns >= 0, values[turns], np.nan)
