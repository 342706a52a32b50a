"""Least in flight: the fewest of this router's own requests sent and not finished, F.

Never stale, as it needs no metric; but several routers side by side each know their own share only.

Source: least-request of AIBrix 0.8.0. Sees: the router's own requests in flight. Ties: random.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies.base import RANDOM, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    tie: int = RANDOM


@policy("least-inflight", params=Params, source="AIBrix 0.8.0", sees=("inflight_requests",))
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    load = view.inflight_requests
    return pick_least(load, no_second(load), view.seed, view.last_chosen, r, my.tie)
