"""Session-sticky: the first request goes to the smallest batch, the session stays there whatever happens.

Keeps every turn where the session's KV lives and asks nothing of the engines afterwards. How much work a
session will bring is unknown when it is placed: SMetric (arXiv 2607.08565) reports that the busiest engine
has 2.17 times the mean load on average. Source: session affinity, folklore. Sees: the session, waiting and
running requests. Ties rotate. Several routers side by side each place the session for themselves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies._only import only
from agentctl.policies.base import ROTATE, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    tie: int = ROTATE


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    batch = (view.waiting_requests + view.running_requests) * 1.0
    home = int(view.memory[requests.session[r]]) - 1  # zeros at first: no home
    return only(home, batch) if home >= 0 else batch


@policy(
    "session-sticky",
    params=Params,
    source="folklore",
    sees=("waiting_requests", "running_requests"),
    memory=lambda n_requests, n_sessions, n_engines: n_sessions,
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    engine = pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
    view.memory[requests.session[r]] = engine + 1
    return engine
