"""One run, as the paper ran it: sessions that come, wait, are served turn by turn and leave.

conserve       turn 0 goes through the prefill engine, one after the other, and moves; then the session asks
               for a decoder and stays there. A wrong turn waits in the prefill engine's queue, too
collocated     asks for one of all engines when the prefill engine would have begun with it
disaggregated  every turn asks for room on a decoder, then on the prefill engine, is computed there whole and
               moves

Asking: every 50 ms on a phase of its own a session looks for the engine with the most free room (ties: the
lowest number); nobody is before anybody. What it waits for turn 0 is in no latency.

At one instant: batches that end; sessions whose turn ended, by number; those that waited, by number; engines
that start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from agentctl.conserve.costs import A40, BLOCK_TOKENS, Machine, cached_prefill_s, transfer_s, wrong_turn_s
from agentctl.conserve.engines import end_batch, join, start_batch
from agentctl.conserve.state import (
    ASKS,
    ASKS_PREFILL,
    COMES,
    IS_SERVED,
    SENDS,
    Sessions,
    State,
)
from agentctl.errors import InputError

LOOK_S = 0.05  # between two looks for room
CONSERVE, COLLOCATED, DISAGGREGATED = range(3)
ORACLE, PER_TURN, QUANTILE = range(3)  # what a session reserves on a decoder


class Rules(NamedTuple):
    """kv: ORACLE, what it will have at its end; PER_TURN, what a turn adds, unchecked after the first;
    QUANTILE, the `quantile` (nearest rank) of what ended sessions had, and what exceeds it, unchecked.

    history_start: tokens that the cost of a wrong turn counts before a session's own (the authors': 25,000)
    """

    policy: int = CONSERVE
    kv: int = ORACLE
    quantile: float = 0.9
    history_start: int = 0


def run(sessions: Sessions, rules: Rules, n_engines: int, machine: Machine = A40) -> State:
    """Simulate; results are in the state. Raises InputError for a session that no engine's room holds."""
    whole = sessions.fresh.sum(axis=1) + sessions.output.sum(axis=1)
    if whole.max() > min(machine.kv_tokens, machine.prefill_kv_tokens):
        raise InputError(
            f"{int((whole > machine.kv_tokens).sum())} sessions need more KV than an engine has",
            expected=f"at most {machine.kv_tokens:,} tokens",
        )
    state = State.of(sessions, n_engines)
    _simulate(state, rules, machine)
    return state


@njit(cache=True)
def _simulate(state: State, rules: Rules, machine: Machine) -> None:
    ended = np.zeros(state.due.size, dtype=np.int64)
    while True:
        now = min(state.ends.min(), state.due.min())
        if now == np.inf:
            return
        n_ended = 0
        for e in range(state.ends.size):
            if state.ends[e] == now:
                n_ended += end_batch(state, e, ended[n_ended:])
        for s in np.sort(ended[:n_ended]):
            _after_turn(state, rules, machine, int(s), now)
        s = int(np.argmin(state.due))
        while state.due[s] == now:
            state.due[s] = np.inf
            _go_on(state, rules, machine, s, now)
            s = int(np.argmin(state.due))
        for e in range(state.ends.size):
            if state.ends[e] == np.inf:
                start_batch(state, machine, e, now)


@njit(cache=True)
def _go_on(state: State, rules: Rules, machine: Machine, s: int, now: float) -> None:
    """What session s does now that its time has come."""
    if state.stage[s] == COMES:
        _come(state, rules, machine, s, now)
        return
    if state.stage[s] == ASKS:
        if state.need[s] == 0:
            state.need[s] = _need(state, rules, s)
        e = np.argmin(state.used)
        if machine.kv_tokens - state.used[e] < state.need[s]:
            return  # until somebody gives room back
        state.used[e] += state.need[s]
        state.engine[s], state.held[s] = e, state.need[s]
        if rules.policy == DISAGGREGATED:
            state.stage[s], state.asked[s] = ASKS_PREFILL, now
        else:
            state.stage[s] = SENDS
    if state.stage[s] == ASKS_PREFILL:
        prompt = state.prompt[s, state.turn[s]]
        if machine.prefill_kv_tokens - state.prefill_used[0] < prompt:
            return
        state.prefill_used[0] += prompt
        state.sent[s, state.turn[s]] = now
        state.stage[s], state.due[s] = SENDS, _prefill(state, machine, s, prompt, now)
        return
    if state.stage[s] == SENDS:
        _send(state, rules, s, now)


@njit(cache=True)
def _come(state: State, rules: Rules, machine: Machine, s: int, now: float) -> None:
    """The prefill engine's queue, or what would have been its queue."""
    state.stage[s] = ASKS
    if rules.policy == CONSERVE:
        began = max(now, state.prefiller[0])
        state.due[s] = _prefill(state, machine, s, state.fresh[s, 0], now)
        state.before_s[s] = state.due[s] - began
    else:
        state.due[s] = max(now, state.prefiller[1])
        state.prefiller[1] = state.due[s] + machine.b_prefill * state.fresh[s, 0]
    state.asked[s] = state.came[s] = state.due[s]


@njit(cache=True)
def _prefill(state: State, machine: Machine, s: int, tokens: int, now: float) -> float:
    """Compute `tokens` after all that came before, and move them; returns when they are there."""
    state.prefiller[0] = max(now, state.prefiller[0]) + machine.b_prefill * tokens
    state.moves[s] += 1
    state.moved[s] += tokens
    return state.prefiller[0] + transfer_s(tokens)


@njit(cache=True)
def _send(state: State, rules: Rules, s: int, now: float) -> None:
    """A turn goes to the session's engine, which finds whole blocks of what it has computed of it before."""
    k, state.stage[s] = state.turn[s], IS_SERVED
    prompt = state.prompt[s, k]
    if rules.policy == DISAGGREGATED:
        join(state, s, prompt - 1, 1)
        return
    state.sent[s, k] = now
    here = state.computed[s]
    if k == 0:
        here = prompt if rules.policy == CONSERVE else 0
    hit = BLOCK_TOKENS * (min(here, prompt - 1) // BLOCK_TOKENS)
    join(state, s, hit, prompt - hit)


@njit(cache=True)
def _after_turn(state: State, rules: Rules, machine: Machine, s: int, now: float) -> None:
    """Room is given back or taken, and the next turn follows at once: there are no tools here."""
    state.turn[s] += 1
    k, is_over = state.turn[s], state.turn[s] == state.fresh.shape[1]
    if is_over or rules.policy == DISAGGREGATED:
        state.used[state.engine[s]] -= state.held[s]
        if rules.policy == DISAGGREGATED:
            state.prefill_used[0] -= state.prompt[s, k - 1]
        _wake(state, now)
    if is_over:
        state.finals[0] += 1
        state.finals[state.finals[0]] = state.prompt[s, k - 1] + state.output[s, k - 1]
        return
    if rules.policy == DISAGGREGATED:
        state.stage[s], state.due[s], state.asked[s] = ASKS, now, now
        state.need[s] = 0
        return
    more = max(0, state.prompt[s, k] + state.output[s, k] - state.held[s])  # 0 where all was known
    state.held[s] += more
    state.used[state.engine[s]] += more
    if state.wrong[s, k] and rules.policy == CONSERVE:
        history = rules.history_start + state.prompt[s, k - 1] + state.output[s, k - 1]
        began = max(now, state.prefiller[0])
        state.prefiller[0] = began + cached_prefill_s(history + state.fresh[s, k])
        state.stage[s], state.due[s] = SENDS, began + wrong_turn_s(history, state.fresh[s, k])
    else:
        _send(state, rules, s, now)


@njit(cache=True)
def _need(state: State, rules: Rules, s: int) -> int:
    """Tokens of room for a session, or for a turn where every turn asks."""
    k, last = state.turn[s], state.fresh.shape[1] - 1
    first = state.prompt[s, k] + state.output[s, k]
    if rules.policy == DISAGGREGATED:
        return first
    if rules.policy == COLLOCATED or rules.kv == ORACLE:
        return state.prompt[s, last] + state.output[s, last]
    ended = state.finals[0]
    if rules.kv == QUANTILE and ended > 0:
        rank = max(int(np.ceil(rules.quantile * ended)), 1)
        return max(first, np.sort(state.finals[1 : ended + 1])[rank - 1])
    return first


@njit(cache=True)
def _wake(state: State, now: float) -> None:
    """Those who look for room look again, each at its own next time."""
    for s in range(state.due.size):
        if state.due[s] == np.inf and (state.stage[s] == ASKS or state.stage[s] == ASKS_PREFILL):
            looks = max(np.ceil((now - state.asked[s]) / LOOK_S), 0.0)
            while looks > 0 and state.asked[s] + (looks - 1) * LOOK_S >= now:
                looks -= 1
            while state.asked[s] + looks * LOOK_S < now:
                looks += 1
            state.due[s] = state.asked[s] + looks * LOOK_S
