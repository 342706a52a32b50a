"""Sessions as wholes: how long agents take, where their turns go, how many are under way."""

from __future__ import annotations

import numpy as np

from agentctl.distinct import distinct
from agentctl.metrics.base import NOTHING, Counts, Floats, Run, Unknown, metric


def session_spans(run: Run) -> tuple[Floats, Floats]:
    """First arrival and last end of every session, NaN without a finished turn; a rejected turn ends at its
    arrival."""
    start = np.full(run.n_sessions, np.inf)
    end = np.full(run.n_sessions, -np.inf)
    has_done = np.zeros(run.n_sessions, dtype=bool)
    np.minimum.at(start, run.session, run.arrival_s)
    np.maximum.at(end, run.session, np.where(run.done, run.finish_s, run.arrival_s))
    np.logical_or.at(has_done, run.session, run.done)
    return np.where(has_done, start, np.nan), np.where(has_done, end, np.nan)


@metric("s", "lower", "session")
def session_s(run: Run) -> Floats:
    """Session completion time: last end minus first arrival in the session, gaps between turns included.
    A rejected turn ends at its arrival; a session without a finished turn has none."""
    start, end = session_spans(run)
    return end - start


@metric("s", "lower", "session")
def ttfet_s(run: Run) -> Floats:
    """Time to first effective token: first token of the session's last finished turn (the last to arrive)
    minus the session's first arrival. ConServe's definition."""
    start, _ = session_spans(run)
    last = last_turns(run)
    return np.where(last >= 0, run.first_token_s[last] - start, np.nan)


@metric("s", "lower", "request")
def ttfet_every_turn_s(run: Run) -> Floats:
    """Time to first effective token if every turn's were one: first token of a turn minus the session's first
    arrival."""
    start, _ = session_spans(run)
    return np.where(run.done, run.first_token_s - start[run.session], np.nan)


@metric("s", "lower", "session")
def ttfet_first_non_tool_turn_s(run: Run) -> Unknown:
    """Time to first effective token if the first turn that calls no tool has it: first token of that turn
    minus the session's first arrival."""
    return Unknown("traces do not say which turns call tools")


@metric("count", "lower", "run")
def migrations(run: Run) -> int:
    """Turns whose prompt was computed on another engine than that of the finished turn of their session that
    arrived before; with roles: than where that was decoded."""
    _, moved = _later_turns(run)
    return int(moved.sum())


@metric("ratio", "lower", "run")
def migration_ratio(run: Run) -> float | None:
    """Migrations over finished turns that have an earlier one."""
    later, moved = _later_turns(run)
    return float(moved.sum() / later.size) if later.size else None


@metric("count", "lower", "session")
def engines_per_session(run: Run) -> Floats:
    """Different engines that served a session's finished turns, prompt or rest: session replication."""
    session, engine = run.session[run.done].astype(np.int64), run.engine[run.done]
    if run.hand_overs is not None:
        session = np.tile(session, 2)
        engine = np.concatenate([engine, run.hand_overs.decode_engine[run.done]])
    served = distinct(session * run.n_engines + engine)
    n = np.bincount(served // run.n_engines, minlength=run.n_sessions).astype(np.float64)
    return np.where(n > 0, n, np.nan)


@metric("count", "lower", "run")
def sessions_in_flight_mean(run: Run) -> float | None:
    """Mean sessions between their first arrival and their last end, over the run from the first arrival to
    the last end (Little's law: the sum of session times over that span)."""
    start, end = session_spans(run)
    if np.isnan(start).all():
        return None
    span = np.nanmax(end) - np.nanmin(start)
    return float(np.nansum(end - start) / span) if span > 0 else None


@metric("count", "lower", "run")
def sessions_in_flight_max(run: Run) -> int | None:
    """Most sessions at once between their first arrival and their last end."""
    _, n = sessions_in_flight(run)
    return int(n.max()) if n.size else None


def sessions_in_flight(run: Run) -> tuple[Floats, Counts]:
    """Instants, and how many sessions are under way from each until the next."""
    start, end = session_spans(run)
    known = ~np.isnan(start)
    if not known.any():
        return NOTHING, NOTHING.astype(np.int64)
    times, change = np.unique(np.concatenate([start[known], end[known]]), return_inverse=True)
    steps = np.zeros(times.size, dtype=np.int64)
    np.add.at(steps, change, np.repeat([1, -1], known.sum()))
    return times, np.cumsum(steps)


def first_turns(run: Run) -> Counts:
    """The finished request of every session that arrived first, of several the first; -1: none."""
    done = np.flatnonzero(run.done)
    arrival, session = run.arrival_s[done], run.session[done]
    first = np.full(run.n_sessions, np.inf)
    np.minimum.at(first, session, arrival)
    found = np.flatnonzero(arrival == first[session])[::-1]  # the last one written stays
    result = np.full(run.n_sessions, -1)
    result[session[found]] = done[found]
    return result


def last_turns(run: Run) -> Counts:
    """The finished request of every session that arrived last, of several the last; -1: none."""
    done = np.flatnonzero(run.done)
    arrival, session = run.arrival_s[done], run.session[done]
    last = np.full(run.n_sessions, -np.inf)
    np.maximum.at(last, session, arrival)
    found = np.flatnonzero(arrival == last[session])
    result = np.full(run.n_sessions, -1)
    result[session[found]] = done[found]
    return result


def _turns(run: Run) -> Counts:
    """Finished requests by session, in the order of their arrival."""
    done = np.flatnonzero(run.done)
    done = done[np.argsort(run.arrival_s[done], kind="stable")]
    # sorting one number is several times as fast as sorting places by two keys
    ordered = np.sort(run.session[done].astype(np.int64) * done.size + np.arange(done.size))
    return done[ordered % max(done.size, 1)]


def _later_turns(run: Run) -> tuple[Counts, Counts]:
    """(finished turns after a session's first, whether each is on another engine than the one before)."""
    turns = _turns(run)
    session, engine = run.session[turns], run.engine[turns]
    before = engine if run.hand_overs is None else run.hand_overs.decode_engine[turns]
    later = np.flatnonzero(session[1:] == session[:-1]) + 1
    return turns[later], engine[later] != before[later - 1]
