"""The Shepherd Model Gateway's estimate of how long a request would wait on each engine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies._candidates import Candidates, least_among
from agentctl.policies.base import no_second, pick_least
from agentctl.sim.view import View

TIE_S = 1e-6  # waits this close are equal


@njit(cache=True)
def expected_wait(view: View, my: Any) -> NDArray[np.float64]:
    """Seconds: tokens queued, and `mean_prefill_tokens` for each request running or sent since the last poll,
    over the throughput; plus a penalty that grows without bound as KV fills. Engines that report no tokens
    queued (`queue_tokens` 0) count `mean_prefill_tokens` for each request that waits."""
    wait = np.empty(view.running_requests.size)
    for engine in range(wait.size):
        n_requests = view.running_requests[engine] + view.unpublished_requests[engine]
        tokens = 0
        if my.queue_tokens > 0:
            tokens = view.pending_prefill_tokens[engine]
        else:
            n_requests += view.waiting_requests[engine]
        used = min(view.kv_used_blocks[engine] / view.kv_total_blocks[engine], 0.999)
        work = tokens + my.mean_prefill_tokens * n_requests
        wait[engine] = work / my.throughput + my.kv_pressure_weight * used / (1 - used)
    return wait


@njit(cache=True)
def pick_least_wait(wait: NDArray[np.float64], among: Candidates, view: View, r: int, tie: int) -> int:
    """The engine of `among` that waits least; all within TIE_S of the least count as tied."""
    limit = least_among(wait, among) + TIE_S
    score = np.ones(wait.size, np.int64)
    for engine in range(wait.size):
        if among[engine] and wait[engine] <= limit:
            score[engine] = 0
    return pick_least(score, no_second(score), view.seed, view.last_chosen, r, tie)
