"""LMetric as released in vllm-router (`kv_aware`): the paper's product on the router's own counters.

cost = (n + T) (F + 1), least wins: n prompt tokens that the engine does not hold, T prefill tokens and F
requests that this router has in flight there. With one router it differs from the paper's in T, which
stays whole until the first token while the engine's queue shrinks chunk by chunk.

Source: vllm-router 0.1.17. Sees: hit tokens, the router's own requests and prefill tokens in flight. Ties:
the lowest engine number. A cost of 0, for which the router has a second rule, cannot occur: the last
token of a prompt is always computed. Of tokens behind those that the engine holds, its KV tiers save 0.8 each
and a tier of the whole cluster 0.6 (0.3 for disk, which is not told apart). Above temperature 0 the engine
is drawn: softmax of the negative cost, scaled to 0..1 (how the router scales it is our guess).

    temperature  0  least cost
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies._draws import draw, softmax
from agentctl.policies.base import FIRST, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests

HOST_CREDIT, SHARED_CREDIT = 0.8, 0.6


class Params(NamedTuple):
    temperature: float = 0.0
    tie: int = FIRST


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[np.float64]:
    tiers = HOST_CREDIT * view.host_hit_tokens + SHARED_CREDIT * view.global_hit_tokens
    new = requests.prompt_tokens[r] - view.hit_tokens - tiers
    return (new + view.inflight_prefill_tokens) * (view.inflight_requests + 1.0)


@policy(
    "lmetric@vllm-router",
    params=Params,
    source="vllm-router 0.1.17",
    sees=(
        "hit_tokens",
        "inflight_requests",
        "inflight_prefill_tokens",
        "host_hit_tokens",
        "global_hit_tokens",
    ),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    if my.temperature > 0:
        return draw(softmax(costs, my.temperature), view.seed, r)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
