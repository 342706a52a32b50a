"""LMetric as released in vllm-router (`kv_aware`): the paper's product on the router's own counters.

score = (n + T) (F + 1), least wins: n prompt tokens that the engine does not hold, T prefill tokens and F
requests that this router has in flight there. With one router it differs from the paper's in T, which
stays whole until the first token while the engine's queue shrinks chunk by chunk.

Source: vllm-router 0.1.17. Sees: hit tokens, the router's own requests and prefill tokens in flight. Ties:
the lowest engine number. A score of 0, for which the router has a second rule, cannot occur: the last
token of a prompt is always computed. Its credits for slower KV tiers and its temperature are left out.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies.base import FIRST, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    tie: int = FIRST


@policy(
    "lmetric@vllm-router",
    params=Params,
    source="vllm-router 0.1.17",
    sees=("hit_tokens", "inflight_requests", "inflight_prefill_tokens"),
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    new = requests.prompt_tokens[r] - view.hit_tokens
    score = (new + view.inflight_prefill_tokens) * (view.inflight_requests + 1)
    return pick_least(score, no_second(score), view.seed, view.last_chosen, r, my.tie)
