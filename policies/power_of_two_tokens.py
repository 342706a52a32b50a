"""Power of two choices on tokens: of two engines drawn at random, the one with fewer tokens on it.

Tokens are those of all requests there, waiting or running, as the engine last reported them. Source:
sglang-router 0.3.2, power_of_two. Sees: context tokens. Parameters: none. Equal counts: the one drawn first.
"""

from __future__ import annotations

from numba import njit

from agentctl.policies._draws import draw_two
from agentctl.policies.base import NoParams, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


@policy("power-of-two-tokens", source="sglang-router 0.3.2", sees=("context_tokens",))
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: NoParams) -> int:
    load = view.context_tokens
    first, second = draw_two(load.size, view.seed, r)
    return second if load[second] < load[first] else first
