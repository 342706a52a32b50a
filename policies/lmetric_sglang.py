"""LMetric as proposed for SGLang's router: new characters times requests in flight, without the queue.

cost = characters (F + 1), least wins: characters of the prompt that the engine does not hold by the router's
tree of texts, F requests that the router has in flight. Logs hold tokens, so characters are tokens times
`characters_per_token`: the factor scales all costs and decides nothing, and the choice differs from
`lmetric@llm-d` in ties alone. The queue of the paper's P is missing here as well.

Source: SGLang, pull request 29574 (open). Sees: hit tokens, the router's own requests in flight. Ties: the
lowest engine number (ours).

    characters_per_token  4  characters
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies.base import FIRST, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    characters_per_token: float = 4.0
    tie: int = FIRST


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    new = my.characters_per_token * (requests.prompt_tokens[r] - view.hit_tokens)
    return new * (view.inflight_requests + 1)


@policy(
    "lmetric@sglang",
    params=Params,
    source="SGLang, PR 29574",
    sees=("hit_tokens", "inflight_requests"),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
