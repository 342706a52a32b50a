"""LMetric: pending prefill times batch size, no weights to tune.

score = P (b + 1), least wins, where P is what the engine would have to prefill with this request (queued
prefill tokens plus the prompt tokens that it does not hold) and b its batch size, queue included. P
stands for TTFT, b for TPOT. The queue belongs into P: several ports drop it and choose differently.

Source: LMetric (arXiv 2603.15202, OSDI'26), section 3. Sees: pending prefill tokens, hit tokens, waiting
and running requests. Ties: a full hit on an idle engine scores 0 whatever else, possibly on several
engines; the smaller batch wins, then they rotate (the paper does not say).
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
    batch = view.waiting_requests + view.running_requests
    pending = view.pending_prefill_tokens + (requests.prompt_tokens[r] - view.hit_tokens)
    return pending * (batch + 1.0)


@policy(
    "lmetric",
    params=Params,
    source="LMetric, arXiv 2603.15202",
    sees=("pending_prefill_tokens", "hit_tokens", "waiting_requests", "running_requests"),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    batch = view.waiting_requests + view.running_requests
    costs = cost(view, requests, r, my)
    return pick_least(costs, batch, view.seed, view.last_chosen, r, my.tie)
