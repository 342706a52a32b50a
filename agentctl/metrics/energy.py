"""What a run drew: joules of requests, sessions and all engines, and what they served for it."""

from __future__ import annotations

import math

import numpy as np

from agentctl.metrics.base import Counts, Floats, Run, Unknown, metric
from agentctl.metrics.rates import span_s

NOT_KNOWN = Unknown("what the GPU of an engine draws is not known: its profile has no [power]")


@metric("j", "lower", "request")
def energy_j(run: Run) -> Floats | Unknown:
    """Joules above idle that a request's steps drew; a step's go to its requests by the GPU time that each
    adds to it. Idle power belongs to no request."""
    return NOT_KNOWN if run.energy_j is None else np.where(run.done, run.energy_j, np.nan)


@metric("j", "lower", "session")
def session_energy_j(run: Run) -> Floats | Unknown:
    """Joules above idle of all finished requests of a session."""
    if run.energy_j is None:
        return NOT_KNOWN
    total, has_done = np.zeros(run.n_sessions), np.zeros(run.n_sessions, dtype=bool)
    np.add.at(total, run.session[run.done], run.energy_j[run.done])
    np.logical_or.at(has_done, run.session, run.done)
    return np.where(has_done, total, np.nan)


@metric("j", "lower", "run")
def total_energy_j(run: Run) -> float | Unknown | None:
    """Joules of all engines from the first arrival to the last finish: above idle in their steps, and idle
    power all the time."""
    watts = idle_w(run)
    if watts is None or run.draws is None:
        return NOT_KNOWN
    span = span_s(run)
    return run.draws.busy_j + watts * span if span else None


@metric("ratio", "lower", "run")
def idle_energy_ratio(run: Run) -> float | Unknown | None:
    """Share of all joules that is idle power."""
    total, watts = total_energy_j(run), idle_w(run)
    return watts * (span_s(run) or 0.0) / total if isinstance(total, float) and watts is not None else total


@metric("j", "lower", "run")
def energy_per_session_j(run: Run) -> float | Unknown | None:
    """All joules, idle included, over the sessions with a finished turn."""
    total = total_energy_j(run)
    n = np.unique(run.session[run.done]).size
    return total / n if isinstance(total, float) else total


@metric("tokens_per_j", "higher", "run")
def tokens_per_j(run: Run) -> float | Unknown | None:
    """Prompt tokens, cached ones each time they are found, and output tokens of finished requests over all
    joules. ConServe's definition."""
    return _per_joule(run, run.prompt_tokens + run.output_tokens)


@metric("tokens_per_j", "higher", "run")
def computed_tokens_per_j(run: Run) -> float | Unknown | None:
    """The same without prompt tokens that were found in a cache."""
    return _per_joule(run, run.prompt_tokens - run.cached_tokens + run.output_tokens)


@metric("tokens_per_j", "higher", "run")
def output_tokens_per_j(run: Run) -> float | Unknown | None:
    """Output tokens of finished requests over all joules."""
    return _per_joule(run, run.output_tokens)


def idle_w(run: Run) -> float | None:
    """Watts of all engines with nothing to do; None: unknown for any of them."""
    if run.draws is None or math.isnan(run.draws.idle_w) or math.isnan(run.draws.busy_j):
        return None
    return run.draws.idle_w


def _per_joule(run: Run, tokens: Counts) -> float | Unknown | None:
    total = total_energy_j(run)
    return int(tokens[run.done].sum()) / total if isinstance(total, float) else total
