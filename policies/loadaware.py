"""Load-aware routing of vLLM's production-stack: share of the prompt that hits, less the load above the mean.

score = h / L - beta (b - mean) / max(1, mean), most wins: b counts running and waiting requests, the mean is
over all engines. At beta 1 an engine with twice the mean load needs a full hit to equal an average one.

Source: vLLM production-stack, loadaware, merged 2026-08-09. Sees: hit tokens, waiting and running requests.
Ties: the first engine.

    beta  1  share of the prompt that a load of the mean stands for
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies.base import FIRST, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    beta: float = 1.0
    tie: int = FIRST


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[np.float64]:
    load = view.waiting_requests + view.running_requests
    above = (load - load.mean()) / max(1.0, load.mean())
    return my.beta * above - view.hit_tokens / requests.prompt_tokens[r]


@policy(
    "loadaware",
    params=Params,
    source="vLLM production-stack, 2026-08-09",
    sees=("hit_tokens", "waiting_requests", "running_requests"),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
