"""The most utility, score - lam * cost as believed, whatever the engines have to do.

Source: the baseline of SFS (arXiv 2607.18253). Sees: believed accuracy and cost. Ties: random.

    lam_per_microdollar  the operator's  what a millionth of a dollar counts against a score of 1
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies._utility import utility
from agentctl.policies.base import RANDOM, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    lam_per_microdollar: float = math.nan
    tie: int = RANDOM


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    return -utility(view, my.lam_per_microdollar)


@policy(
    "latency-agnostic",
    params=Params,
    source="SFS, arXiv 2607.18253",
    sees=("accuracy", "cost"),
    cost=cost,
    needs_fleet=True,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
