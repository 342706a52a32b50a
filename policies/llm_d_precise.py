"""llm-d's precise prefix scorer with a load scorer, as papers compare it.

score = hit_weight minmax(h) + load_weight load + kv_weight (1 - minmax(a)), most wins. minmax scales hits h
and context tokens a to 0..1 over the engines (0 when all are equal); load is 0.5 without a queue and falls
to 0 at `full_queue` waiting requests. At the default weights load decides between equal hits only.

Source: llm-d's precise-prefix and load-aware scorers, as a baseline of LMetric (arXiv 2603.15202). Sees: hit
tokens, waiting requests, context tokens (for the third term only). Ties: random, as llm-d's picker.

    hit_weight   10   of the hit
    load_weight  1    of the queue
    kv_weight    0    of the KV in use; 1 where the third term is on
    full_queue   128  waiting requests from which an engine counts as full
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies.base import RANDOM, minmax, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    hit_weight: float = 10.0
    load_weight: float = 1.0
    kv_weight: float = 0.0
    full_queue: float = 128.0
    tie: int = RANDOM


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    load = 0.5 * (1 - np.minimum(view.waiting_requests / my.full_queue, 1.0))
    score = my.hit_weight * minmax(view.hit_tokens) + my.load_weight * load
    return -(score + my.kv_weight * (1 - minmax(view.context_tokens)))


@policy(
    "llm-d-precise",
    params=Params,
    source="llm-d, as a paper's baseline",
    sees=("hit_tokens", "waiting_requests", "context_tokens"),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
