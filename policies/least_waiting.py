"""Least waiting: the engine with the shortest queue.

Counts only requests that the engine has not admitted, so that every engine with room in its batch looks
the same, however full it is. Source: single-signal form of llm-d's queue scorer. Sees: waiting requests.
Ties rotate, and are frequent: below saturation every queue is empty, and this is round robin.
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
    return view.waiting_requests * 1.0


@policy(
    "least-waiting",
    params=Params,
    source="queue scorers, as in llm-d",
    sees=("waiting_requests",),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
