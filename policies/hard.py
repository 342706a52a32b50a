"""The best answer for its price that is on time: the most utility where the first token comes within tau.

Utility is score - lam * cost, as believed. Where no engine is believed to be on time: the soonest. The time
to the first token is estimated by playing each engine's scheduler (SFS).

Source: "Beyond Accuracy and Cost" (SFS), arXiv 2607.18253, its router `hard`. Sees: believed accuracy, cost
and time to the first token, the request's limit. Ties: random.

    lam_per_microdollar  the operator's  what a millionth of a dollar counts against a score of 1 (paper 5e-4)
    tau_s                the request's   s
"""

from __future__ import annotations

from typing import Any

from numba import njit
from numpy.typing import NDArray

from agentctl.policies._utility import Gate, gated
from agentctl.policies.base import no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests

SEES = ("accuracy", "cost", "ttft_s", "tau_s")


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Gate) -> NDArray[Any]:
    return gated(view, view.ttft_s, my.lam_per_microdollar, my.tau_s)


@policy(
    "hard",
    params=Gate,
    source="SFS, arXiv 2607.18253",
    sees=SEES,
    cost=cost,
    needs_fleet=True,
    estimator="sfs",
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Gate) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
