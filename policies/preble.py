"""Preble's E2: exploit a prefix that covers most of the prompt, else explore where least work is.

Load of an engine = seconds of prefill sent to it in the last `window_s` + requests in flight * output_tokens
* tpot_s. If some engine holds more than `match_ratio` of the prompt, the engines with the longest hit compete
and the least load wins. Otherwise the least load + T(n, L) wins, T being the time to prefill the n tokens of
the prompt that the engine does not hold. With `high_load` > 0 a holder whose load is more than that many
times the least load counts as no holder.

Source: Preble (arXiv 2407.00023) and its code of 2024. There load is kept per node of a prefix tree, the
prefill of a node shared by its engines; here per request, on the engine that it went to. The cost of what
would be evicted, off by default in that code, is left out. T by SMetric's two coefficients instead of
polynomials for one GPU. Sees: hit tokens, the router's own requests in flight. Ties rotate (ours).

    match_ratio    0.5      of the prompt; above it a prefix is exploited
    window_s       180      s of the past that count as load
    output_tokens  45       tokens of a typical output
    tpot_s         0.15     s per output token
    high_load      0        times the least load; 0: holders are never too busy
    c_linear       profile  s per new token; the profile's b_prefill
    c_attention    profile  s per pair of tokens; the profile's b_attention
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies._only import among
from agentctl.policies._seconds import prefill_s
from agentctl.policies._window import forget, note, recent_s, window_size
from agentctl.policies.base import ROTATE, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    match_ratio: float = 0.5
    window_s: float = 180.0
    output_tokens: float = 45.0
    tpot_s: float = 0.15
    high_load: float = 0.0
    c_linear: float = math.nan
    c_attention: float = math.nan
    tie: int = ROTATE


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    prompt, hit = requests.prompt_tokens[r], view.hit_tokens
    forget(view.memory, hit.size, view.now, my.window_s)
    load = recent_s(view.memory, hit.size)
    for e in range(load.size):
        load[e] += my.output_tokens * my.tpot_s * view.inflight_requests[e]
    if hit.max() > my.match_ratio * prompt:
        of_holders = among(hit == hit.max(), load)
        if my.high_load == 0 or of_holders.min() <= my.high_load * load.min():
            return of_holders
    for e in range(load.size):
        load[e] += prefill_s(prompt - hit[e], prompt, my)
    return load


@policy(
    "preble",
    params=Params,
    source="Preble, arXiv 2407.00023",
    sees=("hit_tokens", "inflight_requests"),
    from_profile={"c_linear": "b_prefill", "c_attention": "b_attention"},
    memory=window_size,
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    prompt, n = requests.prompt_tokens[r], view.hit_tokens.size
    costs = cost(view, requests, r, my)
    engine = pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
    note(view.memory, n, engine, view.now, prefill_s(prompt - view.hit_tokens[engine], prompt, my))
    return engine
