"""SMetric: place a new session by load, keep its later turns where their KV lives, as long as the SLO allows.

The prefill time of n new tokens in a context of L is T(n, L) = c_linear n + c_attention n (L - n/2). An
engine's cost for a request is the backlog of prefill seconds already there plus T of what it does not
hold. A first turn goes to the least cost. A later turn goes to the engine with the longest hit ("home"),
unless its KV is gone (the hit is below `hit_ratio` of what the session left) or home cannot meet the
TTFT SLO: then it is placed like a first turn, and the session's next turns find their KV there. No
session table is kept. The paper calls the load of placement LMetric-like: `first_turn` 1 reads that as
LMetric's score, (q + n) (b + 1), and 0 as the cost in seconds. Seconds of prefill do not see decodes: whoever
holds the common system prompt and owes no prefill gets every new session (10,000 agentic requests at 80 a
second on 8 engines: mean TTFT 344 ms against 53 ms).

Source: SMetric (arXiv 2607.08565), version 2. Sees: pending prefill (tokens and pairs), hit tokens, waiting
and running requests, and of the request its turn and the KV that its session should find. Where the paper is
silent (slack, hit_ratio, ties) the defaults are ours. Ties of cost rotate; equal hits go to the smaller
backlog first.

    slack            1.0       share of the SLO that home may use before the session moves
    hit_ratio        0.7       of the expected hit; below it the KV counts as evicted
    slo_base_s       1.0       s; SLO = slo_base_s + slo_s_per_token * prompt tokens
    slo_s_per_token  62.5e-6   s per prompt token
    first_turn       1         what places a session: 1 LMetric's score, 0 the cost in seconds
    c_linear         profile   s per new token; the profile's b_prefill
    c_attention      profile   s per pair of tokens; the profile's b_attention
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies._only import only
from agentctl.policies._seconds import backlog_s, until_prefilled_s
from agentctl.policies.base import ROTATE, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    slack: float = 1.0
    hit_ratio: float = 0.7
    slo_base_s: float = 1.0
    slo_s_per_token: float = 62.5e-6
    first_turn: float = 1.0
    c_linear: float = math.nan
    c_attention: float = math.nan
    tie: int = ROTATE


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    prompt = requests.prompt_tokens[r]
    seconds = until_prefilled_s(view, prompt, my)
    if requests.turn[r] > 0:
        home = pick_least(-view.hit_tokens, backlog_s(view, my), view.seed, view.last_chosen, r, my.tie)
        is_there = view.hit_tokens[home] >= my.hit_ratio * view.expected_hit
        if is_there and seconds[home] <= my.slack * (my.slo_base_s + my.slo_s_per_token * prompt):
            return only(home, seconds)
    if my.first_turn > 0:
        batch = view.waiting_requests + view.running_requests
        return (view.pending_prefill_tokens + (prompt - view.hit_tokens)) * (batch + 1.0)
    return seconds


@policy(
    "smetric",
    params=Params,
    source="SMetric v2, arXiv 2607.08565",
    sees=(
        "pending_prefill_tokens", "pending_prefill_pairs", "hit_tokens", "expected_hit",
        "waiting_requests", "running_requests",
    ),
    from_profile={"c_linear": "b_prefill", "c_attention": "b_attention"},
    cost=cost,
)  # fmt: skip
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
