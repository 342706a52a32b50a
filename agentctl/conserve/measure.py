"""What the paper measured of a run, and what its clocks left out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from agentctl.conserve.costs import Machine, wrong_turn_s
from agentctl.conserve.run import COLLOCATED, DISAGGREGATED, Rules, run
from agentctl.conserve.state import F64, I64, Sessions, State
from agentctl.estimators.power_model import presets
from agentctl.metrics import (
    SLO_TIMES_ISOLATED,
    Isolated,
    Run,
    geometric_mean,
    isolated_of,
    share_above,
    summary,
    times_isolated,
)
from agentctl.metrics.sessions import session_s, sessions_in_flight_max, ttfet_s
from agentctl.metrics.turns import tbt_last_turn_s, ttft_first_turn_s


class Measured(NamedTuple):
    """`x`: times the isolated run. Everything but the last three as the paper counts."""

    ttfet_x_p95: float
    ttfet_x_gmean: float
    ttfet_above_5: float
    e2e_x_p95: float
    e2e_x_gmean: float
    tbt_x_p95: float  # of tokens of the last turn, pooled
    tbt_above_5: float  # of sessions, their mean
    ttft_first_p50_s: float
    ttft_later_p50_s: float
    in_flight_max: float
    span_s: float
    moves_per_session: float
    tokens_per_j: float
    # what is in no latency
    waited_p95_s: float  # for the prefill engine and for room, before turn 0
    counted_ttfet_x_p95: float  # with that
    counted_ttfet_above_5: float


def as_run(sessions: Sessions, state: State, arrival: F64 | None = None) -> Run:
    """The run as metrics read it.

    arrival: of first turns; default as the paper counts, when its own prefill began, or when it was sent
    """
    n, turns = state.sent.shape
    came = state.sent.copy()
    came[:, 0] = state.sent[:, 0] - state.before_s if arrival is None else arrival
    last = state.first_token + state.output - 1
    nothing, unknown = np.zeros(n * turns, np.int64), np.full(n * turns, np.nan)
    return Run(
        n_engines=state.ends.size,
        n_sessions=n,
        done=np.ones(n * turns, dtype=bool),
        session=np.repeat(np.arange(n, dtype=np.int32), turns),
        engine=np.repeat(state.engine, turns),
        arrival_s=came.ravel(),
        first_token_s=state.token_s[state.first_token].ravel(),
        finish_s=state.token_s[last].ravel(),
        prompt_tokens=state.prompt.ravel(),
        output_tokens=state.output.ravel(),
        cached_tokens=nothing,
        computed_prefill_tokens=nothing,
        scheduled_s=unknown,
        itl_max_s=unknown,
        preemptions=nothing,
    )


def isolated_sessions(fresh: I64, output: I64, machine: Machine) -> Isolated:
    """Every session on an engine of its own, nothing shared and no prefill engine."""
    alone = []
    for s in range(fresh.shape[0]):
        at, right = np.zeros(1), np.zeros((1, fresh.shape[1]), dtype=bool)
        session = Sessions(at, fresh[s : s + 1], output[s : s + 1], right)
        alone.append(isolated_of(as_run(session, run(session, Rules(COLLOCATED), 1, machine))))
    return Isolated(*(np.concatenate(of_sessions) for of_sessions in zip(*alone, strict=True)))


def measure(sessions: Sessions, state: State, rules: Rules, machine: Machine, isolated: Isolated) -> Measured:
    one = as_run(sessions, state)
    ttfet = times_isolated(ttfet_s(one), isolated.ttfet_s)
    counted = times_isolated(ttfet_s(as_run(sessions, state, sessions.at)), isolated.ttfet_s)
    e2e = times_isolated(session_s(one), isolated.session_s)
    tbt = times_isolated(tbt_last_turn_s(one), isolated.tbt_last_turn_s)
    in_system = as_run(sessions, state, state.sent[:, 0])
    later = (one.first_token_s - one.arrival_s).reshape(state.sent.shape)[:, 1:].ravel()
    context = state.prompt + state.output
    return Measured(
        ttfet_x_p95=_p(ttfet, 95),
        ttfet_x_gmean=_known(geometric_mean(ttfet)),
        ttfet_above_5=_known(share_above(ttfet, SLO_TIMES_ISOLATED)),
        e2e_x_p95=_p(e2e, 95),
        e2e_x_gmean=_known(geometric_mean(e2e)),
        tbt_x_p95=_p(_last_gaps(state) / np.repeat(isolated.tbt_last_turn_s, state.output[:, -1] - 1), 95),
        tbt_above_5=_known(share_above(tbt, SLO_TIMES_ISOLATED)),
        ttft_first_p50_s=_p(ttft_first_turn_s(one), 50),
        ttft_later_p50_s=_p(later, 50),
        in_flight_max=float(sessions_in_flight_max(in_system) or 0),
        span_s=float(one.finish_s.max() - state.sent.min()),
        moves_per_session=float(state.moves.mean()),
        tokens_per_j=float(context.sum()) / energy_j(sessions, state, rules, machine),
        waited_p95_s=_p(state.sent[:, 0] - state.before_s - sessions.at, 95),
        counted_ttfet_x_p95=_p(counted, 95),
        counted_ttfet_above_5=_known(share_above(counted, SLO_TIMES_ISOLATED)),
    )


def energy_j(sessions: Sessions, state: State, rules: Rules, machine: Machine) -> float:
    """Joules of all engines, as the paper adds them up, with what an A40 draws fitted to its figures.

    Engines: from the first turn sent to the last token. Prefill engine: over its own run, which came before,
    and idle for the rest; a wrong turn has its average watts for as long as it takes, queue excluded.
    """
    a40 = presets()["a40"]
    assert a40.compute_w is not None and a40.memory_w is not None
    span = float(state.token_s.max() - state.sent.min())
    joules = a40.idle_w * span * state.ends.size
    joules += a40.compute_w * state.compute_s.sum() + a40.memory_w * state.read_s.sum()
    if rules.policy == COLLOCATED:
        return float(joules)
    computed = state.prompt.sum() if rules.policy == DISAGGREGATED else state.fresh[:, 0].sum()
    busy = a40.compute_w * machine.b_prefill * computed
    if rules.policy == DISAGGREGATED:
        return float(joules + a40.idle_w * span + busy)
    own_span = float(state.came.max() - sessions.at.min())
    watts = a40.idle_w + busy / own_span
    history = rules.history_start + state.prompt - state.fresh
    wrong = np.argwhere(state.wrong)
    wrong_s = sum(wrong_turn_s(history[s, k], state.fresh[s, k]) for s, k in wrong) if wrong.size else 0.0
    return float(joules + watts * (own_span + wrong_s) + a40.idle_w * max(span - own_span, 0.0))


def _last_gaps(state: State) -> F64:
    """Between the tokens of every session's last turn, one session after the other."""
    first, n = state.first_token[:, -1], state.output[:, -1]
    gaps = [np.diff(state.token_s[a : a + m]) for a, m in zip(first, n, strict=True)]
    return np.concatenate(gaps)


def _p(values: F64, percent: int) -> float:
    found = summary(values)
    return _known(found.p95 if percent == 95 else found.p50)


def _known(value: float | None) -> float:
    return float("nan") if value is None else value
