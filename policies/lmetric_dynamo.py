"""LMetric as proposed for Dynamo: pending prefill blocks times KV blocks in use.

score = P/B (a/B + 1), least wins: P prefill tokens on the engine with this request, a context tokens of
its requests, B tokens per block. KV stands in for the paper's batch size, so that an empty engine beats
any holder of the prefix: its factor is 1, theirs are thousands.

Source: NVIDIA Dynamo, pull request 11028 (open). Sees: pending prefill tokens, hit tokens, context
tokens. Fractions of blocks count (ours). Ties: random, as in Dynamo.

    block_tokens  16  tokens per KV block; weighs the 1 against the KV in use
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies.base import RANDOM, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    block_tokens: float = 16.0
    tie: int = RANDOM


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    pending = view.pending_prefill_tokens + (requests.prompt_tokens[r] - view.hit_tokens)
    return pending / my.block_tokens * (view.context_tokens / my.block_tokens + 1)


@policy(
    "lmetric@dynamo",
    params=Params,
    source="NVIDIA Dynamo, PR 11028",
    sees=("pending_prefill_tokens", "hit_tokens", "context_tokens"),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
