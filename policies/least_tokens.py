"""Least active tokens: the engine whose requests have the smallest contexts in sum.

Balances KV memory and the KV that decodes read; blind to prefill work and to where KV lives. Source:
single-signal form of llm-d's KV utilisation scorer. Sees: context tokens. Ties rotate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies.base import ROTATE, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    tie: int = ROTATE


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    return view.context_tokens * 1.0


@policy(
    "least-tokens",
    params=Params,
    source="KV utilisation scorers, as in llm-d",
    sees=("context_tokens",),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
