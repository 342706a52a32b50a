"""`hard` with all prefill and decodes that an engine still owes, over mean rates.

Source: `score_proxy` of SFS (arXiv 2607.18253).
Sees: believed accuracy, cost and time to the first token, the request's limit. Ties: random.

    lam_per_microdollar  the operator's  what a millionth of a dollar counts against a score of 1
    tau_s                the request's   s
"""

from __future__ import annotations

from numba import njit

from agentctl.policies._utility import Gate
from agentctl.policies.base import no_second, pick_least, policy
from agentctl.policies.hard import SEES, cost
from agentctl.sim.view import View
from agentctl.workload import Requests


@policy(
    "hard@score-proxy",
    params=Gate,
    source="SFS, arXiv 2607.18253",
    sees=SEES,
    cost=cost,
    needs_fleet=True,
    estimator="score-proxy",
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Gate) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
