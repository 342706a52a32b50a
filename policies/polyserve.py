"""PolyServe as LMetric's artifact compares it: pack requests on the slowest engine that keeps the SLOs.

Engines with a predicted TTFT up to `ttft_slo_s` and a predicted TPOT up to `tpot_slo_s` are feasible; of
these the largest TPOT wins, so that light engines stay free for what is urgent. When none is feasible, any
engine is drawn. Predictions: seconds by `least-ttft`'s estimate, and one batch of all the engine's requests
as decodes, this one included.

Source: artifact of LMetric (arXiv 2603.15202); the idea is PolyServe's (arXiv 2507.17769), whose predictions
come from profile tables. Sees: pending prefill (tokens and pairs), hit tokens, waiting and running
requests, context tokens. Ties: random.

    ttft_slo_s       1.0      s
    tpot_slo_s       0.2      s
    chunk_tokens     8192     prefill tokens of a batch; the engines' max_num_batched_tokens
    b0, b_prefill, b_decode, b_context, b_context_mixed, b_attention, h0, h_seq
                     profile  the coefficients of the same names
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies._seconds import FIRST_TOKEN, decode_step_s, first_token_s
from agentctl.policies.base import RANDOM, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    ttft_slo_s: float = 1.0
    tpot_slo_s: float = 0.2
    chunk_tokens: float = 8_192.0
    b0: float = math.nan
    b_prefill: float = math.nan
    b_decode: float = math.nan
    b_context: float = math.nan
    b_context_mixed: float = math.nan
    b_attention: float = math.nan
    h0: float = math.nan
    h_seq: float = math.nan
    tie: int = RANDOM


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    """The negative TPOT of feasible engines; 0 for all when none is."""
    prompt, costs, n_feasible = requests.prompt_tokens[r], np.empty(view.hit_tokens.size), 0
    for e in range(costs.size):
        tpot = decode_step_s(view, prompt, e, my)
        costs[e] = np.inf
        if tpot <= my.tpot_slo_s and first_token_s(view, prompt, e, 0.0, my) <= my.ttft_slo_s:
            costs[e] = -tpot
            n_feasible += 1
    return costs if n_feasible else np.zeros(costs.size)


@policy(
    "polyserve",
    params=Params,
    source="artifact of LMetric, arXiv 2603.15202",
    sees=(
        "pending_prefill_tokens", "pending_prefill_pairs", "hit_tokens", "waiting_requests",
        "running_requests", "context_tokens",
    ),
    from_profile={**FIRST_TOKEN, "b_context": "b_context"},
    cost=cost,
)  # fmt: skip
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
