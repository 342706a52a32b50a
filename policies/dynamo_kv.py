"""Dynamo's KV router as papers compare it: prefill work plus KV in use.

cost = overlap_weight P + a + L, least wins: P prefill tokens on the engine with this request, a context
tokens of its requests, L the prompt. Dynamo counts in blocks; one block size for all engines changes no
choice. An empty engine wins unless the prefix saves more tokens than the holder has active.

Source: NVIDIA Dynamo, as a baseline of SMetric (arXiv 2607.08565), at temperature 0; the product has more
terms since. Sees: pending prefill tokens, hit tokens, context tokens. Ties: random, as in Dynamo.

    overlap_weight  1  active tokens that one prefill token stands for
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies.base import RANDOM, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    overlap_weight: float = 1.0
    tie: int = RANDOM


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    prompt = requests.prompt_tokens[r]
    pending = view.pending_prefill_tokens + (prompt - view.hit_tokens)
    return my.overlap_weight * pending + (view.context_tokens + prompt)


@policy(
    "dynamo-kv",
    params=Params,
    source="NVIDIA Dynamo, as a paper's baseline",
    sees=("pending_prefill_tokens", "hit_tokens", "context_tokens"),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
