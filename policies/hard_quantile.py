"""`hard` with an upper bound of the time to the first token instead of its estimate.

The bound is the estimate of SFS times a factor per engine, learned while it routes so that a share
`miss_share` of requests comes later (quantile tracking; agentctl.sim.fleet).

Source: ours; the tracking is that of Angelopoulos, Candes and Tibshirani, arXiv 2307.16895. Sees: believed
accuracy, cost and bound, the request's limit. Ties: random.

    lam_per_microdollar  the operator's  what a millionth of a dollar counts against a score of 1
    tau_s                the request's   s
    miss_share           0.1             of requests, that may come later than the bound
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies._utility import gated
from agentctl.policies.base import RANDOM, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    lam_per_microdollar: float = math.nan
    tau_s: float = math.nan
    miss_share: float = 0.1
    tie: int = RANDOM


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    return gated(view, view.ttft_high_s, my.lam_per_microdollar, my.tau_s)


@policy(
    "hard@quantile",
    params=Params,
    source="ours",
    sees=("accuracy", "cost", "ttft_high_s", "tau_s"),
    cost=cost,
    needs_fleet=True,
    estimator="sfs",
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
