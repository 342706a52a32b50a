"""Engines that batch: who is in the next batch, how long it takes, who has a token when it ends.

vLLM's order in time: those in line get their tokens one after the other until the batch is full. Nobody is
ever thrown out: what is short here is not blocks but the room that clients count (agentctl.conserve.run).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.conserve.costs import Machine
from agentctl.conserve.state import State


@njit(cache=True)
def join(state: State, s: int, computed: int, left: int) -> None:
    """Session s goes to the end of its engine's line: `left` tokens to compute behind `computed`."""
    e, state.computed[s], state.left[s], state.emitted[s] = state.engine[s], computed, left, 0
    state.line[e, state.in_line[e]], state.chunk[s] = s, 0
    state.in_line[e] += 1


@njit(cache=True)
def start_batch(state: State, machine: Machine, e: int, now: float) -> None:
    """The next batch of an idle engine, if anybody is in line."""
    budget, prefill, decodes, context = machine.batch_tokens, 0, 0, 0
    for place in range(state.in_line[e]):
        s = state.line[e, place]
        tokens = min(state.left[s], budget)
        state.chunk[s] = tokens
        budget -= tokens
        if state.emitted[s] == 0:
            prefill += tokens
        elif tokens > 0:
            decodes += 1
            context += state.computed[s]
    if prefill + decodes == 0:
        return
    gpu = machine.b0 + machine.b_prefill * prefill + machine.b_decode * decodes + machine.b_context * context
    state.ends[e] = now + max(gpu, machine.h0)
    state.compute_s[e] += machine.b_prefill * prefill
    state.read_s[e] += machine.b_decode * decodes + machine.b_context * context


@njit(cache=True)
def end_batch(state: State, e: int, ended: NDArray[np.int64]) -> int:
    """Tokens exist; `ended` gets the sessions whose turn is over. Returns how many."""
    now, n, kept = state.ends[e], 0, 0
    state.ends[e] = np.inf
    for place in range(state.in_line[e]):
        s = state.line[e, place]
        state.computed[s] += state.chunk[s]
        state.left[s] -= state.chunk[s]
        is_out = state.chunk[s] > 0 and state.left[s] == 0
        if is_out:
            k = state.turn[s]
            state.token_s[state.first_token[s, k] + state.emitted[s]] = now
            state.emitted[s] += 1
            state.left[s] = 1
        if is_out and state.emitted[s] == state.output[s, state.turn[s]]:
            ended[n] = s
            n += 1
        else:
            state.line[e, kept] = s
            kept += 1
    state.in_line[e] = kept
    return n
