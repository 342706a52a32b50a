"""The state of a simulated cluster as plain arrays; everything here is modified in place by the kernels.

Indices: e engine, i place in an engine's running list, r request.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.cluster import Cluster
from agentctl.sim.cache import MAX_HOLDS, NONE, Cache, make_cache
from agentctl.sim.content import Content

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

NO_LIMIT = 1 << 60


class Limits(NamedTuple):
    """What the engines were started with; names as in cluster.toml, one value per engine."""

    usable_blocks: I64
    block_tokens: I64
    max_num_batched_tokens: I64
    max_num_seqs: I64
    max_model_len: I64  # NO_LIMIT: none
    long_prefill_token_threshold: I64  # 0: off
    reserve_full_prompt: Bool
    watermark_blocks: I64
    prefix_caching: Bool
    by_priority: Bool
    prefill_schedule_interval: I64
    coefficients: F64  # [engine, b0 b_prefill b_decode b_context b_context_mixed b_attention b_past h0 h_seq]


class Jobs(NamedTuple):
    """Requests on engines; counts are tokens unless named."""

    computed: I64  # with KV
    emitted: I64  # output tokens so far
    n_blocks: I32  # blocks taken
    n_named: I32  # of these, with content
    path_at: I64  # where in Content the next block's range is ...
    path_offset: I32  # ... and its place in that line
    top: I32  # of its stack of Holds
    owed: I64  # its part of the engine's pending prefill
    dispatch_hit: I64  # hit by the router's index when it was sent; NONE once the first token is out
    next_waiting: I32


class Engines(NamedTuple):
    """One value per engine, lists as [engine, place]."""

    ends_at: F64  # when the batch or run in flight ends; infinite: idle
    running: I32  # in scheduling order
    n_running: I64
    planned: I64  # tokens of the batch in flight by place; 0: not in it
    first_waiting: I32
    last_waiting: I32
    n_waiting: I64
    n_executed: I64  # batches
    # a run: the same decodes step after step (0 steps: a single batch is in flight)
    run_steps: I64
    run_begun: I64
    run_ended: I64
    run_start: F64
    run_first: F64  # seconds of its first step on the GPU
    run_slope: F64  # seconds that each further step takes longer
    run_host: F64
    run_n_host: I64  # steps that the host decides
    step_ends_at: F64  # the step in flight


class Counters(NamedTuple):
    """What the router sees, by engine: agentctl.sim.view says what each counts."""

    waiting_requests: I64
    running_requests: I64
    pending_prefill_tokens: I64
    pending_prefill_pairs: F64
    context_tokens: I64
    kv_used_blocks: I64
    kv_total_blocks: I64
    hit_tokens: I64
    inflight_requests: I64
    inflight_prefill_tokens: I64


class Results(NamedTuple):
    """Per request; NaN, -1 and 0 stand for what a rejected request lacks."""

    done: Bool
    engine: I64
    arrival: F64
    scheduled: F64
    first_token: F64
    finish: F64
    hit: I64
    prefilled: I64
    preemptions: I64


class State(NamedTuple):
    limits: Limits
    engines: Engines
    jobs: Jobs
    cache: Cache
    content: Content
    counters: Counters
    results: Results


def make_limits(cluster: Cluster) -> Limits:
    """One entry per engine, pools in order."""
    pools = [pool for pool in cluster.pools for _ in range(pool.engines)]

    def column(values: list, dtype: type = np.int64) -> NDArray:
        return np.array(values, dtype=dtype)

    return Limits(
        usable_blocks=column([p.kv_blocks - 1 for p in pools]),
        block_tokens=column([p.block_tokens for p in pools]),
        max_num_batched_tokens=column([p.max_num_batched_tokens for p in pools]),
        max_num_seqs=column([p.max_num_seqs for p in pools]),
        max_model_len=column([p.max_model_len or NO_LIMIT for p in pools]),
        long_prefill_token_threshold=column([p.long_prefill_token_threshold for p in pools]),
        reserve_full_prompt=column([p.reserve_full_prompt for p in pools], np.bool_),
        watermark_blocks=column([math.floor(p.watermark * p.kv_blocks) for p in pools]),
        prefix_caching=column([p.prefix_caching for p in pools], np.bool_),
        by_priority=column([p.scheduling_policy == "priority" for p in pools], np.bool_),
        prefill_schedule_interval=column([p.prefill_schedule_interval for p in pools]),
        coefficients=column([list(p.profile.batch_time[1:]) for p in pools], np.float64),
    )


def make_state(limits: Limits, content: Content, n_requests: int) -> State:
    """An idle cluster before the first request."""
    n, k, seqs = n_requests, limits.usable_blocks.size, int(limits.max_num_seqs.max())

    def ints(size: int | tuple[int, int], value: int = 0, dtype: type = np.int64) -> NDArray:
        return np.full(size, value, dtype=dtype)

    def floats(size: int, value: float = math.nan) -> F64:
        return np.full(size, value)

    most_holds = int((limits.max_num_seqs * limits.usable_blocks).sum()) + 64
    cache = make_cache(content.n_lines, limits.usable_blocks, min(most_holds, MAX_HOLDS))
    engines = Engines(
        floats(k, math.inf), ints((k, seqs), NONE, np.int32), ints(k), ints((k, seqs)), ints(k, NONE, np.int32),
        ints(k, NONE, np.int32), ints(k), ints(k), ints(k), ints(k), ints(k), floats(k), floats(k), floats(k),
        floats(k), ints(k), floats(k),
    )  # fmt: skip
    jobs = Jobs(
        ints(n), ints(n), ints(n, 0, np.int32), ints(n, 0, np.int32), ints(n), ints(n, 0, np.int32),
        ints(n, NONE, np.int32), ints(n), ints(n, NONE), ints(n, NONE, np.int32),
    )  # fmt: skip
    counters = Counters(
        ints(k), ints(k), ints(k), floats(k, 0.0), ints(k), ints(k), limits.usable_blocks.copy(), ints(k), ints(k),
        ints(k),
    )  # fmt: skip
    results = Results(
        np.zeros(n, np.bool_), ints(n, NONE), floats(n), floats(n), floats(n), floats(n), ints(n), ints(n), ints(n)
    )
    return State(limits, engines, jobs, cache, content, counters, results)
