"""The most utility less a price of waiting: argmax of score - lam * cost - delta * time to the first token.

Source: the Lagrangian router of SFS (arXiv 2607.18253). Sees: believed accuracy, cost and time to the first
token (SFS). Ties: random.

    lam_per_microdollar  the operator's  what a millionth of a dollar counts against a score of 1
    delta_per_ms         0.001           what a millisecond does; 0: `latency-agnostic`
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies._utility import utility
from agentctl.policies.base import RANDOM, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    lam_per_microdollar: float = math.nan
    delta_per_ms: float = 0.001
    tie: int = RANDOM


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    worth, costs = utility(view, my.lam_per_microdollar), np.full(view.ttft_s.size, np.inf)
    for e in range(costs.size):
        if view.ttft_s[e] < np.inf:
            costs[e] = my.delta_per_ms * 1e3 * view.ttft_s[e] - worth[e]
    return costs


@policy(
    "soft",
    params=Params,
    source="SFS, arXiv 2607.18253",
    sees=("accuracy", "cost", "ttft_s"),
    cost=cost,
    needs_fleet=True,
    estimator="sfs",
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
