"""SMetric, version 1: a new session by load, later turns by hit, behind two guards.

A first turn goes to the least load, queued prefill plus active tokens, q + a. A later turn goes to the engine
with the longest hit ("home") unless home is overloaded (its load is above `overload_factor` times the mean)
or its KV is gone (the hit is below `hit_ratio` of what the session left): then it is placed like a first
turn. Load is counted in tokens, which misprices long contexts; version 2 (`smetric`) counts seconds.

Source: SMetric (arXiv 2607.08565), version 1, by its port in MindIE-Motor (session_affinity), whose defaults
these are; its `overlap_credit` is left out. Sees: pending prefill tokens, context tokens, hit tokens, and of
the request its turn and the KV that its session should find. Equal hits: the lighter load; ties rotate.

    overload_factor  2.0  times the mean load; above it home is overloaded
    hit_ratio        0.7  of the expected hit; below it the KV counts as evicted
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
    overload_factor: float = 2.0
    hit_ratio: float = 0.7
    tie: int = ROTATE


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    load = (view.pending_prefill_tokens + view.context_tokens) * 1.0
    if requests.turn[r] == 0:
        return load
    home = pick_least(-view.hit_tokens, load, view.seed, view.last_chosen, r, my.tie)
    is_overloaded = load[home] > my.overload_factor * load.mean()
    is_evicted = view.hit_tokens[home] < my.hit_ratio * view.expected_hit
    return load if is_overloaded or is_evicted else only(home, load)


@policy(
    "smetric-v1",
    params=Params,
    source="SMetric v1, arXiv 2607.08565, by MindIE-Motor",
    sees=("pending_prefill_tokens", "context_tokens", "hit_tokens", "expected_hit"),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
