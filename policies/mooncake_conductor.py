"""Mooncake's conductor: least TTFT, where a much longer prefix elsewhere could be fetched.

cost = T_queue + T(L - h, L): the prefill seconds queued on the engine plus those of what it does not hold.
With `balancing_threshold` > 0, an engine whose hit is shorter than the best one by at least that factor is
priced as if it fetched the difference: transfer_s_per_token (h_best - h) + T_queue + T(L - h_best, L).

The simulator moves no KV between engines: such an engine computes the prompt after all. That is why the
threshold is 0, never, by default; another value shows what a belief in transfers does. Requests that would
miss their SLO are not rejected, as Mooncake does.

Source: Mooncake (FAST'25), algorithm 1, reconstructed; T by SMetric's two coefficients. Sees: pending prefill
(tokens and pairs), hit tokens. Ties rotate (ours).

    balancing_threshold   0        best hit over own hit from which KV is fetched; 0: never
    transfer_s_per_token  1e-5     s; a guess: 128 KiB per token over 100 Gbit/s
    c_linear              profile  s per new token; the profile's b_prefill
    c_attention           profile  s per pair of tokens; the profile's b_attention
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies._seconds import backlog_s, prefill_s
from agentctl.policies.base import ROTATE, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    balancing_threshold: float = 0.0
    transfer_s_per_token: float = 1e-5
    c_linear: float = math.nan
    c_attention: float = math.nan
    tie: int = ROTATE


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    prompt, best, threshold = requests.prompt_tokens[r], view.hit_tokens.max(), my.balancing_threshold
    costs = backlog_s(view, my)
    for e in range(costs.size):
        hit = view.hit_tokens[e]
        if threshold > 0 and best >= threshold * hit:
            costs[e] += my.transfer_s_per_token * (best - hit)
            hit = best
        costs[e] += prefill_s(prompt - hit, prompt, my)
    return costs


@policy(
    "mooncake-conductor",
    params=Params,
    source="Mooncake, FAST'25, algorithm 1",
    sees=("pending_prefill_tokens", "pending_prefill_pairs", "hit_tokens"),
    from_profile={"c_linear": "b_prefill", "c_attention": "b_attention"},
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
