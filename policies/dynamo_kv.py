"""Dynamo's KV router as papers compare it: prefill work plus KV in use.

cost = overlap_weight P + a + L, least wins: P prefill tokens on the engine with this request, a context
tokens of its requests, L the prompt. Dynamo counts in blocks; one block size for all engines changes no
choice. An empty engine wins unless the prefix saves more tokens than the holder has active.

Source: NVIDIA Dynamo, as a baseline of SMetric (arXiv 2607.08565), at temperature 0; the product has more
terms since. Sees: pending prefill tokens, hit tokens, context tokens. Ties: random, as in Dynamo.

    overlap_weight  1  active tokens that one prefill token stands for
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies.base import RANDOM, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    overlap_weight: float = 1.0
    tie: int = RANDOM


@policy(
    "dynamo-kv",
    params=Params,
    source="NVIDIA Dynamo, as a paper's baseline",
    sees=("pending_prefill_tokens", "hit_tokens", "context_tokens"),
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    prompt = requests.prompt_tokens[r]
    pending = view.pending_prefill_tokens + (prompt - view.hit_tokens)
    cost = my.overlap_weight * pending + (view.context_tokens + prompt)
    return pick_least(cost, no_second(cost), view.seed, view.last_chosen, r, my.tie)
