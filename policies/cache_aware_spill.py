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

Source: smg, cache_aware (source of about 1.9, flags of 1.13.0). Sees: hit tokens, the router's own
requests in flight, and for the wait what least-load sees. Ties of the wait: random.

    cache_threshold        0.3   share of the prompt; set 0 with KV events
    balance_rel_threshold  1.5   of the mean of requests in flight
    balance_abs_threshold  64    requests above the mean
    overlap_decay          0     off; 1 halves a score at one prompt of excess tokens to prefill
    temperature            0     the highest score
    throughput             2000  tokens/s of an engine
    mean_prefill_tokens    1024  tokens that a request running or just sent stands for
    kv_pressure_weight     0.15  s at half of the KV in use
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies._candidates import Candidates, least_among
from agentctl.policies._draws import draw, softmax
from agentctl.policies._waits import expected_wait, pick_least_wait
from agentctl.policies.base import RANDOM, policy
from agentctl.sim.view import View
from agentctl.workload import Requests

MOST_HOLDERS = 8


class Params(NamedTuple):
    cache_threshold: float = 0.3
    balance_rel_threshold: float = 1.5
    balance_abs_threshold: float = 64.0
    overlap_decay: float = 0.0
    temperature: float = 0.0
    throughput: float = 2_000.0
    mean_prefill_tokens: float = 1_024.0
    kv_pressure_weight: float = 0.15
    tie: int = RANDOM


@njit(cache=True)
def spills(load: NDArray[np.int64], my: Params) -> Candidates:
    """Whether each engine has too many of the router's requests to take one more for its cache."""
    mean = load.mean()
    margin = min(my.balance_abs_threshold, max(math.ceil(2 * math.sqrt(mean)), 4))
    return load > max(my.balance_rel_threshold * mean, mean + margin)


@njit(cache=True)
def holders(view: View, prompt: int, r: int, my: Params) -> Candidates:
    """The group of engines that is preferred for its cache; empty without a match."""
    held = view.hit_tokens > my.cache_threshold * prompt
    floor = least_among(view.pending_prefill_tokens, held)
    score = np.zeros(held.size)
    for engine in range(held.size):
        if held[engine]:
            behind = (view.pending_prefill_tokens[engine] - floor) / prompt
            score[engine] = view.hit_tokens[engine] / (1 + my.overlap_decay * behind)
    best = score.max()
    if my.temperature > 0 and best > 0:
        cost = np.where(held, -score, -least_among(score, held))
        best = score[draw(softmax(cost, my.temperature) * held, view.seed, r)]
    n_holders = 0
    for engine in range(held.size):
        held[engine] = held[engine] and score[engine] == best and n_holders < MOST_HOLDERS
        n_holders += held[engine]
    return held


@policy(
    "cache-aware-spill",
    params=Params,
    source="smg, about 1.9",
    sees=(
        "hit_tokens",
        "inflight_requests",
        "pending_prefill_tokens",
        "running_requests",
        "kv_used_blocks",
        "kv_total_blocks",
        "unpublished_requests",
        "unpublished_tokens",
    ),
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    group = holders(view, requests.prompt_tokens[r], r, my)
    full = spills(view.inflight_requests, my)
    wait = expected_wait(view, my)
    among = group & ~full
    if group.any() and not among.any():
        among = ~full  # the request leaves the group
    if not among.any():
        among = np.ones(wait.size, np.bool_)
    return pick_least_wait(wait, among, view, r, my.tie)
