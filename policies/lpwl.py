"""LPWL: least pending prefill, this request's own included.

score = q + n, least wins: the prefill tokens queued on the engine plus those of this prompt that it does
not hold. Weighs load against KV reuse in one unit and has nothing to tune; blind to decodes. Source:
least pending work in prefill tokens ("least wait token"). Sees: pending prefill tokens, hit tokens,
waiting and running requests. Ties: the fewest requests, then they rotate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies.base import ROTATE, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    tie: int = ROTATE


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    return (view.pending_prefill_tokens + (requests.prompt_tokens[r] - view.hit_tokens)) * 1.0


@policy(
    "lpwl",
    params=Params,
    source="least pending prefill, folklore",
    sees=("pending_prefill_tokens", "hit_tokens", "waiting_requests", "running_requests"),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    batch = view.waiting_requests + view.running_requests
    costs = cost(view, requests, r, my)
    return pick_least(costs, batch, view.seed, view.last_chosen, r, my.tie)
