"""Least loaded: the engine with the smallest batch, queue included.

Balances the number of requests b = waiting + running; blind to how long they are and to where KV lives.
Source: llm-d's queue and running-request scorers are single-signal relatives. Sees: waiting and running
requests. Ties rotate: a fixed order costs 12-21 % of p99 TTFT at low load (BLIS study).
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
    return (view.waiting_requests + view.running_requests) * 1.0


@policy(
    "least-loaded", params=Params, source="folklore", sees=("waiting_requests", "running_requests"), cost=cost
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
