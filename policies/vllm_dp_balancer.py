"""vLLM's data-parallel balancer: waiting requests count four times.

score = 4 w + r, least wins: w waiting and r running requests. A queue says that the engine is full, a
running request only that it is busy. Blind to lengths and to where KV lives. Source: vLLM V1, internal
load balancing of data-parallel engines. Sees: waiting and running requests. Ties rotate (ours).

    waiting_weight  4  running requests that one waiting request stands for
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies.base import ROTATE, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    waiting_weight: float = 4.0
    tie: int = ROTATE


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    return my.waiting_weight * view.waiting_requests + view.running_requests


@policy(
    "vllm-dp-balancer",
    params=Params,
    source="vLLM V1, data-parallel balancer",
    sees=("waiting_requests", "running_requests"),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
