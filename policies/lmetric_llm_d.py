"""LMetric as proposed for llm-d: new tokens times requests in flight, without the prefill queue.

score = n (F + 1), least wins: n prompt tokens that the engine does not hold, F requests in flight. The
queue of the paper's P is missing, so that a long prefill backlog does not push requests away. A port for
SGLang counts characters instead of tokens and chooses the same.

Source: llm-d-router, pull request 2351 (open), which counts in blocks; tokens here. Sees: hit tokens,
the router's own requests in flight. Ties: random, as llm-d's picker.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies.base import RANDOM, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    tie: int = RANDOM


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    return (requests.prompt_tokens[r] - view.hit_tokens) * (view.inflight_requests + 1.0)


@policy(
    "lmetric@llm-d",
    params=Params,
    source="llm-d-router, PR 2351",
    sees=("hit_tokens", "inflight_requests"),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
