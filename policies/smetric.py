"""SMetric: place a new session by load, keep its later turns where their KV lives, as long as the SLO allows.

The prefill time of n new tokens in a context of L is T(n, L) = c_linear n + c_attention n (L - n/2). An
engine's cost for a request is the backlog of prefill seconds already there plus T of what it does not
hold. A first turn goes to the least cost. A later turn goes to the engine with the longest hit ("home"),
unless its KV is gone (the hit is below `hit_ratio` of what the session left) or home cannot meet the
TTFT SLO: then it is placed like a first turn, and the session's next turns find their KV there. No
session table is kept.

Source: SMetric (arXiv 2607.08565), version 2. Sees: pending prefill (tokens and pairs), hit tokens, and
of the request its turn and the KV that its session should find. Where the paper is silent (slack,
hit_ratio, ties) the defaults are ours. Ties of cost rotate; equal hits go to the smaller backlog first.

    slack            1.0       share of the SLO that home may use before the session moves
    hit_ratio        0.7       of the expected hit; below it the KV counts as evicted
    slo_base_s       1.0       s; SLO = slo_base_s + slo_s_per_token * prompt tokens
    slo_s_per_token  62.5e-6   s per prompt token
    c_linear         profile   s per new token; the profile's b_prefill
    c_attention      profile   s per pair of tokens; the profile's b_attention
"""

from __future__ import annotations

import math
from typing import NamedTuple

from numba import njit

from agentctl.policies.base import ROTATE, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    slack: float = 1.0
    hit_ratio: float = 0.7
    slo_base_s: float = 1.0
    slo_s_per_token: float = 62.5e-6
    c_linear: float = math.nan
    c_attention: float = math.nan
    tie: int = ROTATE


@policy(
    "smetric",
    params=Params,
    source="SMetric v2, arXiv 2607.08565",
    sees=("pending_prefill_tokens", "pending_prefill_pairs", "hit_tokens", "expected_hit"),
    from_profile={"c_linear": "b_prefill", "c_attention": "b_attention"},
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    prompt = requests.prompt_tokens[r]
    new = prompt - view.hit_tokens
    backlog = my.c_linear * view.pending_prefill_tokens + my.c_attention * view.pending_prefill_pairs
    cost = backlog + my.c_linear * new + my.c_attention * new * (prompt - new / 2)
    calm = pick_least(cost, no_second(cost), view.seed, view.last_chosen, r, my.tie)
    if requests.turn[r] == 0:
        return calm
    home = pick_least(-view.hit_tokens, backlog, view.seed, view.last_chosen, r, my.tie)
    if view.hit_tokens[home] < my.hit_ratio * view.expected_hit:
        return calm
    if cost[home] > my.slack * (my.slo_base_s + my.slo_s_per_token * prompt):
        return calm
    return home
