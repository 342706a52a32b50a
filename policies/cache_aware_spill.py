"""Cache-aware routing of the Shepherd Model Gateway: the engines with the prefix, request by request.

The engines that got the longest part of the prompt, when it is more than `cache_threshold` of it, are
taken as one group, the first `MOST_HOLDERS` of them. An engine spills when its requests in flight F exceed
`balance_rel_threshold` times the mean and exceed the mean by more than the least of
`balance_abs_threshold` and max(ceil(2 sqrt(mean)), 4). Of the group's engines that do not spill, the one
with the shortest expected wait wins. When all spill, the shortest wait among all engines that do not;
without a match, among all engines.

In the form with KV events (`overlap_decay`, `temperature`) each engine with a hit scores h / (1 +
overlap_decay x): x is what its tokens to prefill exceed the least such engine's by, in prompts of this
length. The group is then the engines with the highest score, or with that of an engine drawn by softmax
over the scores.

Source: smg, cache_aware (source of about 1.9, 1.13.0 run). Sees: hit tokens, the router's own
requests in flight, and for the wait what least-load sees. Ties of the wait: random.

    cache_threshold        0.3   share of the prompt; set 0 with KV events
    balance_rel_threshold  1.5   of the mean of requests in flight
    balance_abs_threshold  64    requests above the mean
    overlap_decay          0     off; 1 halves a score at one prompt of excess tokens to prefill
    temperature            0     the highest score
    throughput             2000  tokens/s of an engine
    mean_prefill_tokens    1024  tokens that a request running or just sent stands for
    kv_pressure_weight     0.15  s at half of the KV in use
    queue_tokens           0     1: engines report the tokens that wait (SGLang), 0: the requests (vLLM)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies._candidates import least_among
from agentctl.policies._draws import draw, softmax
from agentctl.policies._waits import expected_wait, pick_least_wait
from agentctl.policies.base import RANDOM, Positive, policy
from agentctl.sim.view import View
from agentctl.workload import Requests

MOST_HOLDERS = 8


class Params(NamedTuple):
    cache_threshold: float = 0.3
    balance_rel_threshold: float = 1.5
    balance_abs_threshold: float = 64.0
    overlap_decay: float = 0.0
    temperature: float = 0.0
    throughput: Positive = 2_000.0
    mean_prefill_tokens: float = 1_024.0
    kv_pressure_weight: float = 0.15
    queue_tokens: float = 0.0
    tie: int = RANDOM


@njit(cache=True)
def spill_limit(load: NDArray[np.int64], my: Params) -> float:
    """Requests in flight above which an engine does not take one more for its cache."""
    mean = load.sum() / load.size
    margin = min(my.balance_abs_threshold, max(math.ceil(2 * math.sqrt(mean)), 4))
    return max(my.balance_rel_threshold * mean, mean + margin)


@njit(cache=True)
def match_costs(view: View, requests: Requests, r: int, my: Params) -> NDArray[np.float64]:
    """The negative score of every engine with a match, infinite for the others."""
    prompt, n = requests.prompt_tokens[r], view.hit_tokens.size
    held = view.hit_tokens > my.cache_threshold * prompt
    floor = least_among(view.pending_prefill_tokens, held)
    costs = np.full(n, np.inf)
    for engine in range(n):
        if held[engine]:
            behind = (view.pending_prefill_tokens[engine] - floor) / prompt
            costs[engine] = -view.hit_tokens[engine] / (1 + my.overlap_decay * behind)
    return costs


@policy(
    "cache-aware-spill",
    params=Params,
    source="smg, about 1.9",
    sees=(
        "hit_tokens",
        "inflight_requests",
        "pending_prefill_tokens",
        "waiting_requests",
        "running_requests",
        "kv_used_blocks",
        "kv_total_blocks",
        "unpublished_requests",
    ),
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs, load = match_costs(view, requests, r, my), view.inflight_requests
    best = costs.min()
    if my.temperature > 0 and best < np.inf:
        best = costs[draw(softmax(costs, my.temperature), view.seed, r)]
    limit = spill_limit(load, my)
    n_holders, n_calm = 0, 0
    calm_holders, calm = np.zeros(load.size, np.bool_), np.zeros(load.size, np.bool_)
    for engine in range(load.size):
        calm[engine] = load[engine] <= limit
        if costs[engine] == best and best < np.inf and n_holders < MOST_HOLDERS:
            n_holders += 1
            calm_holders[engine] = calm[engine]
            n_calm += calm[engine]
    among = np.ones(load.size, np.bool_)
    if n_calm > 0:
        among = calm_holders
    elif n_holders > 0 and load.min() <= limit:
        among = calm  # the request leaves the group
    return pick_least_wait(expected_wait(view, my), among, view, r, my.tie)
