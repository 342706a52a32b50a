"""BAILIAN's production router as it runs: an engine drawn in proportion to its score.

The score is that of `bailian-linear`. Drawing spreads a popular prefix over several engines and sends some
requests where little speaks for it. The draw is a hash of the seed and the request's number: the same seed
draws the same. When no engine scores above 0, all are equally likely.

Source: a baseline of LMetric (arXiv 2603.15202). Sees: hit tokens, waiting and running requests, context
tokens. Cannot tie. Weights below 0 make no sense here.

    hit_weight    0.7   of the hit
    batch_weight  0.15  of a small batch
    kv_weight     0.15  of little KV in use
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from agentctl.policies.base import minmax, policy, tie_hash
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    hit_weight: float = 0.7
    batch_weight: float = 0.15
    kv_weight: float = 0.15


@policy(
    "bailian-sampled",
    params=Params,
    source="BAILIAN, as LMetric's baseline",
    sees=("hit_tokens", "waiting_requests", "running_requests", "context_tokens"),
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    batch = view.waiting_requests + view.running_requests
    score = my.hit_weight * minmax(view.hit_tokens) + my.batch_weight * (1 - minmax(batch))
    score += my.kv_weight * (1 - minmax(view.context_tokens))
    draw = tie_hash(view.seed, r)
    up_to = np.cumsum(np.maximum(score, 0.0))
    if up_to[-1] == 0:
        return draw % batch.size
    return int(np.searchsorted(up_to, draw / 2**32 * up_to[-1], side="right"))
