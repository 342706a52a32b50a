"""vLLM's data-parallel balancer as LMetric's artifact compares it: 4 w + b.

b = w + r is the batch with its queue, so that a waiting request counts five times, not four as in vLLM
itself: a baseline under the same name that decides differently. Source: artifact of LMetric (arXiv
2603.15202). Sees: waiting and running requests. Ties rotate (ours). Parameters: none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies.base import ROTATE, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    tie: int = ROTATE


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    batch = view.waiting_requests + view.running_requests
    return 4.0 * view.waiting_requests + batch


@policy(
    "vllm-dp-balancer@lmetric-artifact",
    params=Params,
    source="artifact of LMetric, arXiv 2603.15202",
    sees=("waiting_requests", "running_requests"),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
