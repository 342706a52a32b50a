"""Power of two choices: the smaller batch of two engines drawn at random.

Nearly as even as least loaded, and stale counts do less harm: nobody herds to the same engine. The draw is
a hash of the seed and the request's number: the same seed draws the same two. Source: Mitzenmacher,
The Power of Two Choices in Randomized Load Balancing (2001). Sees: waiting and running requests.
Parameters: none. Equal batches: the one drawn first.
"""

from __future__ import annotations

from numba import njit

from agentctl.policies.base import NoParams, policy, tie_hash
from agentctl.sim.view import View
from agentctl.workload import Requests


@policy("power-of-two", source="Mitzenmacher 2001", sees=("waiting_requests", "running_requests"))
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: NoParams) -> int:
    batch = view.waiting_requests + view.running_requests
    n, draw = batch.size, tie_hash(view.seed, r)
    first = draw % n
    if n == 1:
        return first
    second = (first + 1 + draw // n % (n - 1)) % n
    return second if batch[second] < batch[first] else first
