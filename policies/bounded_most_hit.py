"""Bounded most hit: the longest prefix among engines whose prefill queue is short.

Engines with fewer than `max_pending_tokens` to prefill compete for the longest hit; when every queue is
longer, the least q + n wins, queued prefill plus what the engine would compute of this prompt. Source:
prefix-affine with a bound on load, as routers of papers have it. Sees: pending prefill tokens, hit tokens.
A prompt that nobody holds ties all engines below the bound; ties rotate (ours).

    max_pending_tokens  2048  prefill tokens; twice the chunk of a batch
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies._only import among
from agentctl.policies.base import ROTATE, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    max_pending_tokens: float = 2048.0
    tie: int = ROTATE


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    pending = view.pending_prefill_tokens
    if pending.min() < my.max_pending_tokens:
        return among(pending < my.max_pending_tokens, -view.hit_tokens)
    return (pending + (requests.prompt_tokens[r] - view.hit_tokens)) * 1.0


@policy(
    "bounded-most-hit",
    params=Params,
    source="most hit under a load bound",
    sees=("pending_prefill_tokens", "hit_tokens"),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
