"""Least active tokens: the engine whose requests have the smallest contexts in sum.

Balances KV memory and the KV that decodes read; blind to prefill work and to where KV lives. Source:
single-signal form of llm-d's KV utilisation scorer. Sees: context tokens. Ties rotate.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies.base import ROTATE, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    tie: int = ROTATE


@policy(
    "least-tokens",
    params=Params,
    source="KV utilisation scorers, as in llm-d",
    sees=("context_tokens",),
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    active = view.context_tokens
    return pick_least(active, no_second(active), view.seed, view.last_chosen, r, my.tie)
