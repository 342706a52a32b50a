"""AIBrix prefix-cache as released: the best match that is not busier than most, inside a gate of load.

r counts this gateway's own requests on each engine. When the largest r exceeds the smallest by more than
`max_gap`, only the engines with the smallest r are candidates. Among candidates that match at all, the
highest match in whole percent wins, then the smallest r, as long as its r is at most the mean over all
engines plus `n_deviations` standard deviations (of the sample). Nobody left: the smallest r of all.

Source: AIBrix 0.8.0, prefix-cache; `aibrix-prefix-cache` is the form of papers, which counts batches.
Sees: hit tokens (of the gateway's own table), the gateway's own requests in flight. Ties: random.

    max_gap       8  requests between the most and the least busy engine
    n_deviations  1  standard deviations above the mean that an engine may be
"""

from __future__ import annotations

import math
from typing import NamedTuple

from numba import njit

from agentctl.policies.base import RANDOM, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    max_gap: float = 8.0
    n_deviations: float = 1.0
    tie: int = RANDOM


@policy(
    "aibrix-gateway-prefix-cache",
    params=Params,
    source="AIBrix 0.8.0",
    sees=("hit_tokens", "inflight_requests"),
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    load, hit = view.inflight_requests, view.hit_tokens
    n, total, squares = load.size, load.sum(), (load * load).sum()
    variance = (squares - total * total / n) / max(n - 1, 1)
    most = total / n + my.n_deviations * math.sqrt(max(variance, 0.0))
    if load.max() - load.min() > my.max_gap:
        most = min(most, load.min())
    score = -(100 * hit // requests.prompt_tokens[r]) * (load <= most)
    if score.min() < 0:  # something matches
        return pick_least(score, load, view.seed, view.last_chosen, r, my.tie)
    return pick_least(load, no_second(load), view.seed, view.last_chosen, r, my.tie)
