"""Round robin: every engine in turn.

The baseline of every comparison: knows nothing, balances counts of requests, ignores their size and
their KV. Source: folklore. Sees: nothing but its own last choice. Parameters: none. Cannot tie.
"""

from __future__ import annotations

from numba import njit

from agentctl.policies.base import NoParams, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


@policy("round-robin", source="folklore")
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: NoParams) -> int:
    return (view.last_chosen + 1) % view.waiting_requests.size
