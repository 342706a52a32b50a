"""Power of two choices on own counts: of two engines drawn at random, the one with fewer requests.

Needs no metric of the engines. Source: vllm-router 0.1.17, power_of_two; the same in sglang-router as long
as an engine has not reported its tokens. Sees: the router's own requests in flight. Parameters: none.
Equal counts: the one drawn first.
"""

from __future__ import annotations

from numba import njit

from agentctl.policies._draws import draw_two
from agentctl.policies.base import NoParams, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


@policy("power-of-two-inflight", source="vllm-router 0.1.17", sees=("inflight_requests",))
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: NoParams) -> int:
    load = view.inflight_requests
    first, second = draw_two(load.size, view.seed, r)
    return second if load[second] < load[first] else first
