"""Prefix-affine: the engine that holds the longest prefix of the prompt.

Keeps KV reuse at its most and looks at no load at all, so that a popular prefix overloads its holder.
Source: the pure form of every prefix-aware router. Sees: hit tokens. A prompt that nobody holds is a tie
of all engines: ties rotate, which spreads new sessions like round robin.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies.base import ROTATE, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    tie: int = ROTATE


@policy("prefix-affine", params=Params, source="folklore", sees=("hit_tokens",))
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    return pick_least(-view.hit_tokens, no_second(view.hit_tokens), view.seed, view.last_chosen, r, my.tie)
