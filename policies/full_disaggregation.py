"""Full disaggregation: every turn's prompt is computed on a prefill engine, and its KV moves every time.

A decoder keeps room for the whole context of a request, prompt and output, until it ends; the one with most
KV unreserved is taken, when the request arrives or (`at_hand_over` 1) when its prompt is computed, and
requests wait until there is room. What a decoder still has of the prompt is not moved again. The prefill
engine is the one whose outstanding uncached tokens take least time.

Source: the baseline of ConServe (arXiv 2606.01839), as in DistServe and Splitwise. Sees: roles, KV blocks in
total, which requests have ended, its own prefill tokens in flight. Ties: the lowest engine number.

    at_hand_over  0  1: the decoder is chosen when the prompt is computed
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies._pools import (
    HEAD,
    SEEN,
    free_tokens,
    has_decoders,
    largest,
    least_outstanding,
    most_free,
)
from agentctl.policies.base import Share, policy
from agentctl.sim.roles import LATER, NOT_YET, REFUSED, hand_over
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    at_hand_over: Share = 0.0


def memory_size(n_requests: int, n_sessions: int, n_engines: int) -> int:
    """Reserved tokens per engine; the decoder + 1 of every request."""
    return HEAD + n_engines + n_requests


@njit(cache=True)
def give_back(view: View, requests: Requests) -> None:
    """The room of requests that have ended."""
    memory, first = view.memory, HEAD + view.roles.size
    for k in range(int(memory[SEEN]), view.n_over):
        q = view.over[k]
        decoder = int(memory[first + q]) - 1
        if decoder >= 0:
            memory[HEAD + decoder] -= requests.prompt_tokens[q] + requests.output_tokens[q]
    memory[SEEN] = view.n_over


@njit(cache=True)
def keep_room(view: View, requests: Requests, r: int) -> int:
    """The decoder that keeps room for request r; -1: none yet."""
    need, decoder = requests.prompt_tokens[r] + requests.output_tokens[r], most_free(view)
    if free_tokens(view, decoder) < need:
        return -1
    view.memory[HEAD + decoder] += need
    view.memory[HEAD + view.roles.size + r] = decoder + 1
    return decoder


@policy(
    "full-disaggregation",
    params=Params,
    source="ConServe, arXiv 2606.01839",
    sees=("kv_total_blocks", "block_tokens", "inflight_prefill_tokens", "roles", "over"),
    memory=memory_size,
    places=True,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    give_back(view, requests)
    if requests.prompt_tokens[r] + requests.output_tokens[r] > largest(view):
        return REFUSED
    is_arrival = view.prefill_engine < 0
    if is_arrival and my.at_hand_over > 0 and has_decoders(view):
        return hand_over(least_outstanding(view), LATER)
    decoder = keep_room(view, requests, r)
    if decoder < 0:
        return NOT_YET
    prefill = least_outstanding(view)
    return hand_over(prefill, decoder) if is_arrival and prefill >= 0 else decoder
