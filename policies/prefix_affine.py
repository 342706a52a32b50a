"""Prefix-affine, or most hit: the engine that holds the longest prefix of the prompt.

Keeps KV reuse at its most and looks at no load at all, so that a popular prefix overloads its holder.
Source: the pure form of every prefix-aware router. Sees: hit tokens. A prompt that nobody holds is a tie
of all engines: ties rotate, which spreads new sessions like round robin.
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
    return -view.hit_tokens * 1.0


@policy("most-hit", params=Params, source="folklore", sees=("hit_tokens",), cost=cost)
@policy("prefix-affine", params=Params, source="folklore", sees=("hit_tokens",), cost=cost)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
