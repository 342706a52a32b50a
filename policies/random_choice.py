"""Random: any engine, all equally likely.

A baseline that keeps no count at all: several routers side by side need not agree. Worse than round robin
by the luck of the draw. The draw is a hash of the seed and the request's number: the same seed draws the
same. Source: folklore. Sees: nothing. Parameters: none. Cannot tie.
"""

from __future__ import annotations

from numba import njit

from agentctl.policies.base import NoParams, policy, tie_hash
from agentctl.sim.view import View
from agentctl.workload import Requests


@policy("random", source="folklore")
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: NoParams) -> int:
    return tie_hash(view.seed, r) % view.waiting_requests.size
