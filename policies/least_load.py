"""Least load of the Shepherd Model Gateway: the shortest expected wait, with a barrier before full KV.

wait = (q + mean_prefill_tokens (r + d)) / throughput + kv_pressure_weight u / (1 - u), in seconds, least
wins: q tokens to prefill, r requests running and u the share of KV in use as the engine last reported; d
requests that this router has sent there since. vLLM reports how many requests wait and not their tokens:
q is then mean_prefill_tokens for each. Between two reports the router so spreads what it sends itself, and
nothing ends. It reads no prompt: a long one counts like a short one (HTTP; over gRPC it would know).

Source: smg 1.13.0, least_load, run with engines of both kinds (docs/conformance.md). Sees: pending prefill
tokens, waiting and running requests, KV blocks in use and in total, the router's own requests since the
last report. Waits within a microsecond are ties: random.

    throughput           2000  tokens/s of an engine
    mean_prefill_tokens  1024  tokens that a request running or just sent stands for
    kv_pressure_weight   0.15  s at half of the KV in use
    queue_tokens         0     1: engines report the tokens that wait (SGLang), 0: the requests (vLLM)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies._waits import expected_wait, pick_least_wait
from agentctl.policies.base import RANDOM, Positive, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    throughput: Positive = 2_000.0
    mean_prefill_tokens: float = 1_024.0
    kv_pressure_weight: float = 0.15
    queue_tokens: float = 0.0
    tie: int = RANDOM


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[np.float64]:
    return expected_wait(view, my)


@policy(
    "least-load",
    params=Params,
    source="smg 1.13.0",
    sees=(
        "pending_prefill_tokens",
        "waiting_requests",
        "running_requests",
        "kv_used_blocks",
        "kv_total_blocks",
        "unpublished_requests",
    ),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    wait = cost(view, requests, r, my)
    return pick_least_wait(wait, np.ones(wait.size, np.bool_), view, r, my.tie)
