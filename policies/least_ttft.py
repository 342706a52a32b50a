"""Least TTFT: the engine whose counters promise the earliest first token.

cost = seconds until the engine has computed its pending prefills and this prompt, in batches of
`chunk_tokens` that carry the running decodes along, by the batch-time model of the profile. Nothing is
replayed: requests that arrive, start or end meanwhile are not foreseen, nor is how far the batch in flight
has come. Simulator-based routers (llm-d's with Vidur, SFS) replay every engine's queue for the same number.

Source: least predicted TTFT, as in SFS (arXiv 2607.18253), from counters instead of a replay. Sees: pending
prefill (tokens and pairs), hit tokens, waiting and running requests, context tokens. Ties rotate.

    chunk_tokens     8192     prefill tokens of a batch; the engines' max_num_batched_tokens
    b0, b_prefill, b_decode, b_context_mixed, b_attention, h0, h_seq
                     profile  the coefficients of the same names
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies._seconds import FIRST_TOKEN, first_token_s
from agentctl.policies.base import ROTATE, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    chunk_tokens: float = 8_192.0
    b0: float = math.nan
    b_prefill: float = math.nan
    b_decode: float = math.nan
    b_context_mixed: float = math.nan
    b_attention: float = math.nan
    h0: float = math.nan
    h_seq: float = math.nan
    tie: int = ROTATE


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    costs = np.empty(view.hit_tokens.size)
    for e in range(costs.size):
        costs[e] = first_token_s(view, requests.prompt_tokens[r], e, 0.0, my)
    return costs


@policy(
    "least-ttft",
    params=Params,
    source="least predicted TTFT, from counters",
    sees=(
        "pending_prefill_tokens", "pending_prefill_pairs", "hit_tokens", "waiting_requests",
        "running_requests", "context_tokens",
    ),
    from_profile=FIRST_TOKEN,
    cost=cost,
)  # fmt: skip
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
