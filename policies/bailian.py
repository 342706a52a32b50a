"""BAILIAN's production router: a weighted sum of hit, batch and KV in use.

score = hit_weight minmax(h) + batch_weight (1 - minmax(b)) + kv_weight (1 - minmax(a)), most wins: hit h,
batch with its queue b, context tokens a, each scaled to 0..1 over the engines (0 when all are equal). The
weights are tuned for a chat workload and have to be tuned again for another. `bailian-sampled` draws an
engine in proportion to the same score, as in production.

Source: a baseline of LMetric (arXiv 2603.15202). Sees: hit tokens, waiting and running requests, context
tokens. Ties rotate (ours).

    hit_weight    0.7   of the hit
    batch_weight  0.15  of a small batch
    kv_weight     0.15  of little KV in use
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies.base import ROTATE, minmax, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    hit_weight: float = 0.7
    batch_weight: float = 0.15
    kv_weight: float = 0.15
    tie: int = ROTATE


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    batch = view.waiting_requests + view.running_requests
    score = my.hit_weight * minmax(view.hit_tokens) + my.batch_weight * (1 - minmax(batch))
    return -(score + my.kv_weight * (1 - minmax(view.context_tokens)))


@policy(
    "bailian-linear",
    params=Params,
    source="BAILIAN, as LMetric's baseline",
    sees=("hit_tokens", "waiting_requests", "running_requests", "context_tokens"),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
