"""Autellix: short calls go to the least used engine, long ones to the engine of their program.

A call of up to `threshold_tokens` costs little to prefill anew and is balanced freely. A longer one goes to
the engine of its session, which the session's first long call chose by load. Source: Autellix (arXiv
2502.13965), load balancer. Sees: the session, waiting and running requests. Ties rotate (ours). Several
routers side by side each place the session for themselves.

    threshold_tokens  2048  prompt tokens; longer calls stay with their program
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
    threshold_tokens: float = 2_048.0
    tie: int = ROTATE


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    batch = (view.waiting_requests + view.running_requests) * 1.0
    home = int(view.memory[requests.session[r]]) - 1  # zeros at first: no home
    is_long = requests.prompt_tokens[r] > my.threshold_tokens
    return only(home, batch) if is_long and home >= 0 else batch


@policy(
    "autellix",
    params=Params,
    source="Autellix, arXiv 2502.13965",
    sees=("waiting_requests", "running_requests"),
    memory=lambda n_requests, n_sessions, n_engines: n_sessions,
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    engine = pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
    if requests.prompt_tokens[r] > my.threshold_tokens:
        view.memory[requests.session[r]] = engine + 1
    return engine
