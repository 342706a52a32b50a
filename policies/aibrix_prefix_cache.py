"""AIBrix's prefix cache routing as papers compare it: affinity inside a band of load.

When the batches b (queue included) differ by more than `max_gap`, the smallest wins. Otherwise, among
engines with b up to the mean plus `n_deviations` standard deviations of the sample, the longest hit wins.

Source: AIBrix, prefix-cache, in the form of papers; the product counts running requests only. Sees: hit
tokens, waiting and running requests. Ties: the smallest batch, then random.

    max_gap       8  requests between the largest and the smallest batch
    n_deviations  1  standard deviations above the mean that a batch may be
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies._only import among
from agentctl.policies.base import RANDOM, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    max_gap: float = 8.0
    n_deviations: float = 1.0
    tie: int = RANDOM


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    batch = view.waiting_requests + view.running_requests
    if batch.max() - batch.min() > my.max_gap:
        return batch * 1.0
    n, total, squares = batch.size, batch.sum(), (batch * batch).sum()
    variance = (squares - total * total / n) / max(n - 1, 1)
    limit = total / n + my.n_deviations * math.sqrt(max(variance, 0.0))
    return among(batch <= limit, -view.hit_tokens)


@policy(
    "aibrix-prefix-cache",
    params=Params,
    source="AIBrix prefix-cache, as a paper's baseline",
    sees=("hit_tokens", "waiting_requests", "running_requests"),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    batch = view.waiting_requests + view.running_requests
    costs = cost(view, requests, r, my)
    return pick_least(costs, batch, view.seed, view.last_chosen, r, my.tie)
