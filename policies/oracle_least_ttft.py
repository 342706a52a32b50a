"""Oracle of least TTFT: `least-ttft` that also knows when the batch in flight ends.

An engine keeps that to itself: no router could run this policy. It shows what `least-ttft` loses by not
knowing how far engines have come; greedy for each request, it is no bound on what a cluster can do. Where no
request waits, pending tokens up to `chunk_tokens` are taken to be in the batch in flight.

Source: ours. Sees: pending prefill (tokens and pairs), hit tokens, waiting and running requests, context
tokens, the end of the batch in flight. Needs fresh metrics for its name. Ties rotate.

    chunk_tokens     8192     prefill tokens of a batch; the engines' max_num_batched_tokens
    b0, b_prefill, b_decode, b_context_mixed, b_attention, h0, h_seq
                     profile  the coefficients of the same names
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies._seconds import FIRST_TOKEN, first_token_s
from agentctl.policies.base import no_second, pick_least, policy
from agentctl.policies.least_ttft import Params
from agentctl.sim.view import View
from agentctl.workload import Requests


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    costs = np.empty(view.hit_tokens.size)
    for e in range(costs.size):
        in_flight = 0.0
        if view.waiting_requests[e] == 0:
            in_flight = min(float(view.pending_prefill_tokens[e]), my.chunk_tokens)
        costs[e] = first_token_s(view, requests.prompt_tokens[r], e, in_flight, my)
        if view.step_ends_at[e] < np.inf:
            costs[e] += view.step_ends_at[e] - view.now
    return costs


@policy(
    "oracle-least-ttft",
    params=Params,
    source="ours",
    sees=(
        "pending_prefill_tokens", "pending_prefill_pairs", "hit_tokens", "waiting_requests",
        "running_requests", "context_tokens", "step_ends_at",
    ),
    from_profile=FIRST_TOKEN,
    cost=cost,
)  # fmt: skip
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
