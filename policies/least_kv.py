"""Least KV: the smallest share of the engine's KV blocks in use.

Cached blocks that no running request needs are not in use, and neither is what waits. Source: least-kv-cache
of AIBrix 0.8.0 (which adds the use of a CPU tier). Sees: KV blocks in use and in total. Ties: random.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies.base import RANDOM, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    tie: int = RANDOM


@policy("least-kv", params=Params, source="AIBrix 0.8.0", sees=("kv_used_blocks", "kv_total_blocks"))
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    used = view.kv_used_blocks / view.kv_total_blocks
    return pick_least(used, no_second(used), view.seed, view.last_chosen, r, my.tie)
