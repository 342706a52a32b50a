"""Token load: queued prefill tokens plus active tokens, q + a, least wins.

One sum stands for both phases: what is still to be computed, and what decodes read. A waiting prompt
counts in both. Source: single-signal form of llm-d's token load scorer. Sees: pending prefill tokens,
context tokens. Ties rotate.
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
    return (view.pending_prefill_tokens + view.context_tokens) * 1.0


@policy(
    "token-load",
    params=Params,
    source="token load scorers, as in llm-d",
    sees=("pending_prefill_tokens", "context_tokens"),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
