"""An idle cluster before the first request: the limits of its engines, and every array of its state."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.cluster import Cluster, IndexParams
from agentctl.errors import ConfigError
from agentctl.estimators.batch_time import BatchTime
from agentctl.sim.content import Content
from agentctl.sim.energy_state import make_energy
from agentctl.sim.fleet_state import make_fleet
from agentctl.sim.pair_state import has_roles, make_pairs
from agentctl.sim.roles import ROLES
from agentctl.sim.sight import SEES_ACTIVE, SEES_TIERS, Sight
from agentctl.sim.splitting import make_sides
from agentctl.sim.state import (
    ASIDE,
    COVER,
    ENGINE,
    FREE_HOLD,
    HOLD,
    JOB,
    LATE,
    LIMITS,
    LINE,
    MAX_LATE,
    MAX_SAMPLES,
    NO_LIMIT,
    NO_NEWS,
    NONE,
    PIECE,
    PLACE,
    RANGE,
    ROUTE,
    ROUTER,
    RUN,
    SAMPLE,
    SAMPLING,
    SEGMENT,
    SENT,
    SNAPSHOT,
    State,
)
from agentctl.sim.tier_state import make_tiers
from agentctl.workload import Fleet, Requests

MAX_HOLDS = 1 << 26
CACHE_LINE = 64  # bytes
FIRST_RATIO = 0.7  # SGLang's new-token ratio, before conservativeness (srt/environ.py)
EVERYTHING = Sight()


def make_limits(cluster: Cluster) -> NDArray:
    """One record per engine, pools in order."""
    pools = [pool for pool in cluster.pools for _ in range(pool.engines)]
    limits = np.zeros(len(pools), LIMITS)
    for name in ("block_tokens", "max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold",
                 "reserve_full_prompt", "prefix_caching", "prefill_schedule_interval", "max_prefill_tokens",
                 "mixed_chunk", "ignore_eos", "usable_blocks"):  # fmt: skip
        limits[name] = [getattr(pool, name) for pool in pools]
    limits["watermark_blocks"] = [math.floor(pool.watermark * pool.kv_blocks) for pool in pools]
    limits["by_priority"] = [pool.scheduling_policy == "priority" for pool in pools]
    limits["role"] = [ROLES[pool.role] for pool in pools]
    limits["pool"] = np.repeat(np.arange(len(cluster.pools)), [pool.engines for pool in cluster.pools])
    limits["is_sglang"] = [pool.scheduler == "sglang" for pool in pools]
    limits["chunked_prefill_size"] = [
        pool.chunked_prefill_size if pool.chunked_prefill_size > 0 else NO_LIMIT for pool in pools
    ]
    limits["first_ratio"] = [min(FIRST_RATIO * pool.conservativeness, 1.0) for pool in pools]
    _set_most(limits, np.array([pool.max_model_len or NO_LIMIT for pool in pools]))
    for name in BatchTime._fields[1:]:
        limits[name] = [getattr(pool.profile.batch_time, name) for pool in pools]
    budget = limits["max_num_batched_tokens"]
    seconds = limits["b0"] + limits["b_prefill"] * budget
    limits["prefill_rate"] = budget / np.where(seconds > 0, seconds, np.nan)
    return _attributes(limits)


def _set_most(limits: NDArray, max_model_len: NDArray) -> None:
    """The largest request that can ever be served: vLLM's last token needs no KV; SGLang's admission wants a
    page more than the request, and something left."""
    usable, size = limits["usable_blocks"], limits["block_tokens"]
    sglang = limits["is_sglang"]
    limits["most_tokens"] = np.minimum(max_model_len, usable * size + np.where(sglang, -size - 1, 1))
    limits["most_prompt"] = (usable - limits["watermark_blocks"]) * size


def common_block(cluster: Cluster) -> int:
    """Tokens per block of all pools. Raises ConfigError when they differ."""
    sizes = {pool.block_tokens for pool in cluster.pools}
    if len(sizes) > 1:
        raise ConfigError(
            "pools with different block_tokens are not simulated yet",
            place="[pool] block_tokens",
            expected="one block size in all pools",
        )
    return sizes.pop()


class OwnIndex(NamedTuple):
    """What every gateway keeps of what it has sent, in blocks of so many tokens."""

    params: IndexParams
    block_tokens: int
    content: Content


def make_state(
    limits: NDArray,
    content: Content,
    requests: Requests,
    sight: Sight = EVERYTHING,
    own: OwnIndex | None = None,
    cluster: Cluster | None = None,
    places: bool = False,
    fleet: Fleet | None = None,
) -> State:
    """An idle cluster before the first request. All engines have one scheduler. Without an index of the
    gateways' own the precise one is asked; KV tiers, the network and power are those of `cluster`. `places`:
    the policy answers with a placement (agentctl.sim.roles)."""
    k, seqs = limits.size, int(limits["max_num_seqs"].max())
    sides = make_sides(cluster, has_roles(cluster) and not places)
    engines = _by_cache_line(k, np.zeros(1, ENGINE))
    engines["batch_ended"] = -np.inf
    for name in ("first_waiting", "last_waiting", "first_news", "first_slot", "chunked"):
        engines[name] = NONE
    for name in ("n_free", "n_unused", "kv_total_blocks"):
        engines[name] = limits["usable_blocks"]
    blocks = int(limits["usable_blocks"].max())
    has_trees = bool(limits["is_sglang"].any())
    lines = np.zeros((content.n_lines, k), LINE)
    lines["first_run"], lines["news"] = NONE, NO_NEWS
    n, is_handed_over = requests.arrival.size, places or has_roles(cluster)
    jobs, path = _make_jobs(content, requests, is_handed_over), _ranges(content)
    asides = np.zeros(jobs.size if own or sight.sees & SEES_ACTIVE else 1, ASIDE)
    asides["previous_active"] = asides["next_active"] = NONE
    if own is not None:
        both_halves = 2 if is_handed_over else 1
        asides["own_start"] = np.tile(path.size + own.content.start[:-1], both_halves)
        asides["own_stop"] = np.tile(path.size + own.content.start[1:], both_halves)
        path = np.concatenate([path, _ranges(own.content)])
    most_holds = int((limits["max_num_seqs"] * limits["usable_blocks"]).sum()) + 64
    n_holds = 0 if has_trees else min(most_holds, MAX_HOLDS)
    counts = np.zeros(8, np.int64)
    counts[FREE_HOLD] = NONE
    routers = _make_router(sight, content.n_lines, k, own, cluster, is_handed_over, fleet is not None)
    published, free = State._fields.index("published") - State._fields.index("router"), engines["n_free"]
    # untouched memory costs nothing: pieces and holds are written when they are used
    arrays: tuple[Any, ...] = (
        limits, _attributes(engines), np.full(k, np.inf), _attributes(jobs), _attributes(asides),
        np.full((k, seqs), NONE), np.zeros((k, seqs), np.int64),
        _attributes(_make_runs(limits, engines, 0 if has_trees else blocks)),
        _attributes(np.zeros((k, blocks if has_trees else 0), PIECE)), _attributes(np.empty(n_holds, HOLD)),
        _attributes(lines), np.zeros(lines.shape, np.int32), _attributes(path), counts,
        np.empty(seqs, np.int64), _attributes(_make_sampling()),
        _attributes(np.empty((MAX_SAMPLES, k), SAMPLE)),
        *routers,
        *(tiers := make_tiers(cluster, content, jobs.size, k, seqs, n if is_handed_over else 0)),
        *make_energy(cluster, k, jobs.size),
        *make_pairs(cluster, n, k, tiers.links.size - 1, is_handed_over, sides),
        *make_fleet(fleet, limits["pool"], sight, len(routers[published]), free),
    )  # fmt: skip
    return State(*arrays)


def _make_jobs(content: Content, requests: Requests, is_handed_over: bool) -> NDArray:
    """One per request; then, where requests may be handed over, one more for the first token of each."""
    n = requests.arrival.size
    empty = np.zeros(1, JOB)
    for name in ("top", "next_waiting", "engine"):
        empty[name] = NONE
    for name in ("arrival", "scheduled", "first_token", "finish"):
        empty[name] = np.nan
    jobs = _by_cache_line(2 * n if is_handed_over else n, empty)
    for half in (jobs[:n], jobs[n:]):
        if half.size:
            half["prompt"], half["output"] = requests.prompt_tokens, requests.output_tokens
            half["priority"] = requests.priority
            half["path_start"] = half["path_at"] = content.start[:-1]
            half["path_stop"] = content.start[1:]
    jobs["output"][n:] = 1
    return jobs


def _by_cache_line(n: int, record: NDArray) -> NDArray:
    """Copies of a record, the first of which begins where a line of the processor's cache does."""
    size = record.dtype.itemsize
    memory = np.empty(n * size + CACHE_LINE, np.uint8)
    begin = -memory.ctypes.data % CACHE_LINE
    records = memory[begin : begin + n * size]
    records.reshape(n, size)[:] = record.view(np.uint8)
    return records.view(record.dtype)


def _ranges(content: Content) -> NDArray:
    path = np.zeros(content.line.size, RANGE)
    path["line"], path["length"] = content.line, content.length
    return path


def _make_runs(limits: NDArray, engines: NDArray, blocks: int) -> NDArray:
    """Slots for runs of at most so many blocks (a run has a block at least); slot 0 holds all free blocks,
    none with content. Sets the engines' first slot."""
    if blocks == 0:
        return np.zeros((limits.size, 0), RUN)
    runs = np.zeros((limits.size, blocks + 2), RUN)
    for name in ("line", "previous", "next", "sibling", "part"):
        runs[name] = NONE
    runs["next"][:, 1:-1] = np.arange(2, blocks + 2)
    runs["high"][:, 0] = limits["usable_blocks"]
    engines["oldest"] = engines["newest"] = 0
    engines["first_slot"] = 1
    return runs


def _make_router(
    sight: Sight,
    n_lines: int,
    n_engines: int,
    own: OwnIndex | None,
    cluster: Cluster | None,
    is_handed_over: bool,
    has_models: bool,
) -> list[NDArray]:
    router, g = np.zeros(1, ROUTER), sight.gateways
    has_tiers = cluster is not None and bool(cluster.kv_tiers)
    router["has_roles"] = is_handed_over
    n_own_lines, n_segments = _set_own(router, own) if own else (0, 0)
    if is_handed_over:  # a prompt is sent to two engines at most
        n_segments *= 2
    asked = SEES_ACTIVE | (SEES_TIERS if has_tiers else 0)
    router["keeps"] = own is not None or sight.sees & asked != 0 or has_models
    router["sees"], router["index_delay"] = sight.sees, sight.index_delay_s
    router["interval"], router["delay"] = sight.metrics_interval_s, sight.metrics_delay_s
    n_published = 2
    if sight.metrics_interval_s:
        n_published += math.ceil(sight.metrics_delay_s / sight.metrics_interval_s)
    routes = np.zeros((g, n_engines), ROUTE)
    routes["first_active"] = NONE
    n_covered = n_lines if sight.sees & SEES_ACTIVE else 1
    records = (
        router, routes, np.full(g, NONE), np.full(g, NONE), np.zeros((g, sight.memory)),
        np.zeros((n_published, n_engines), SNAPSHOT), np.zeros((n_published, g, n_engines), SENT),
        np.zeros((g, n_covered, n_engines), COVER), np.empty(MAX_LATE if sight.index_delay_s else 1, LATE),
        np.zeros((g, n_own_lines, n_engines), PLACE), np.empty(n_segments, SEGMENT),
    )  # fmt: skip
    return [_attributes(array) if array.dtype.fields else array for array in records]


def _set_own(router: NDArray, own: OwnIndex) -> tuple[int, int]:
    """Returns how many lines and slots for segments there are; one slot more than can be in use."""
    params, capacity = own.params, own.params.capacity_tokens
    router["own_block"], router["n_segments"] = own.block_tokens, 1
    router["own_capacity"] = NO_LIMIT if capacity is None else capacity // own.block_tokens
    router["own_ttl"] = math.inf if params.ttl_s is None else params.ttl_s
    router["from_head"], router["any_engine"] = params.eviction == "head", params.match == "any_engine"
    return own.content.n_lines, own.content.line.size + 1


def _make_sampling() -> NDArray:
    sampling = np.zeros(1, SAMPLING)
    sampling["due"] = np.inf
    return sampling


def _attributes(records: NDArray) -> NDArray:
    """The same array, whose fields are also attributes (outside numba)."""
    return records.view(np.recarray)
