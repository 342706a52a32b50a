"""Least waiting: the engine with the shortest queue.

Counts only requests that the engine has not admitted, so that every engine with room in its batch looks
the same, however full it is. Source: single-signal form of llm-d's queue scorer. Sees: waiting requests.
Ties rotate, and are frequent: below saturation every queue is empty, and this is round robin.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies.base import ROTATE, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    tie: int = ROTATE


@policy(
    "least-waiting",
    params=Params,
    source="queue scorers, as in llm-d",
    sees=("waiting_requests",),
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    waiting = view.waiting_requests
    return pick_least(waiting, no_second(waiting), view.seed, view.last_chosen, r, my.tie)
