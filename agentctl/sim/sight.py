"""How far the router's sight is set: by [router] of cluster.toml, and by what its policy asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import NamedTuple

from agentctl.cluster import Router
from agentctl.workload import Workload

# Fields of the view that cost time: filled in only for a policy that names one of them in its `sees`.
SEES_HITS, SEES_PROGRESS, SEES_ACTIVE, SEES_UNPUBLISHED, SEES_STEPS, SEES_TIERS = 1, 2, 4, 8, 16, 32
SEES_TTFT = 64  # of pools with different models
SEES_ALL = 127
COSTLY = {
    "hit_tokens": SEES_HITS,
    "context_tokens": SEES_PROGRESS,
    "kv_used_blocks": SEES_PROGRESS,
    "active_blocks": SEES_ACTIVE,
    "unpublished_requests": SEES_UNPUBLISHED,
    "unpublished_tokens": SEES_UNPUBLISHED,
    "step_ends_at": SEES_STEPS,
    "host_hit_tokens": SEES_TIERS,
    "global_hit_tokens": SEES_TIERS,
    "ttft_s": SEES_TTFT,
    "ttft_high_s": SEES_TTFT,
}

MemorySize = Callable[[int, int, int], int]  # of (requests, sessions, engines)


class Sight(NamedTuple):
    """`sees` is a sum of SEES_*, `memory` the numbers that the policy keeps in each gateway.

    estimator   of the time to the first token, one of agentctl.sim.fleet_state; None: the policy asks none
    audits      all of them are asked about the engine that a request is sent to
    miss_share  of requests that may come later than `ttft_high_s`; NaN: the policy does not ask
    """

    sees: int = SEES_ALL
    memory: int = 0
    gateways: int = 1
    metrics_interval_s: float = 0.0
    metrics_delay_s: float = 0.0
    index_delay_s: float = 0.0
    estimator: str | None = None
    audits: bool = False
    miss_share: float = math.nan


def sight_of(
    router: Router,
    sees: Collection[str] | None,
    memory: MemorySize | None,
    workload: Workload,
    n_engines: int,
) -> Sight:
    """`sees`: fields of the view that the policy reads; None: perhaps all."""
    size = memory(workload.n_requests, workload.n_sessions, n_engines) if memory else 0
    return Sight(
        SEES_ALL if sees is None else _sum_of(sees),
        size,
        router.gateways,
        router.metrics_interval_s or 0.0,
        router.metrics_delay_s or 0.0,
        router.index_delay_s or 0.0,
    )


def _sum_of(sees: Collection[str]) -> int:
    found = sum({COSTLY.get(field, 0) for field in sees})
    return found | SEES_HITS if found & SEES_TIERS else found  # what tiers add comes behind the local hit
