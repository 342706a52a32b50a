"""Cache-aware routing of the SGLang and vLLM routers: the engine that got the prefix, while loads are
even.

Loads F are this router's own requests in flight. When the largest exceeds the least by more than
`balance_abs_threshold` and is more than `balance_rel_threshold` times the least, the least loaded engine
wins. Otherwise, when more than `cache_threshold` of the prompt was sent somewhere before, the engine that
got the longest part of it; else again the least loaded. One gate for the whole fleet: when it opens,
affinity is gone for every request. An idle cluster sends every new session to the same engine.

Source: sglang-router 0.3.2 and vllm-router 0.1.17, cache_aware. Sees: hit tokens (of the router's own tree),
the router's own requests in flight. Ties: the first engine in the router's order. Of several engines with the
same longest part vllm-router takes the least loaded; sglang-router takes the one that got it first, for which
the first in order stands here: the same as long as that part was first sent to an idle cluster.

    cache_threshold        0.3  share of the prompt
    balance_abs_threshold  64   requests between the most and the least loaded engine
    balance_rel_threshold  1.5  most loaded over least loaded
    calm_of_equals         0    1: of equal matches the least loaded, 0: the first
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies.base import FIRST, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    cache_threshold: float = 0.3
    balance_abs_threshold: float = 64.0
    balance_rel_threshold: float = 1.5
    calm_of_equals: float = 0.0
    tie: int = FIRST


@policy(
    "cache-aware",
    params=Params,
    source="sglang-router 0.3.2, vllm-router 0.1.17",
    sees=("hit_tokens", "inflight_requests"),
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    load, hit = view.inflight_requests, view.hit_tokens
    least, most = load.min(), load.max()
    uneven = most - least > my.balance_abs_threshold and most > my.balance_rel_threshold * least
    if uneven or hit.max() <= my.cache_threshold * requests.prompt_tokens[r]:
        return pick_least(load, no_second(load), view.seed, view.last_chosen, r, my.tie)
    then = load * (my.calm_of_equals > 0)
    return pick_least(-hit, then, view.seed, view.last_chosen, r, my.tie)
