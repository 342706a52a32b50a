"""The state of a simulated cluster: a few arrays of records, modified in place by the kernels.

Records rather than one array per field: what is used together stands together in memory. Kernels get the
tuple by its address (agentctl.sim.handle).
Indices: e engine, r request, x run (a slot of engine e), i place in an engine's running list.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.cluster import Cluster, IndexParams
from agentctl.estimators.batch_time import BatchTime
from agentctl.sim.content import Content
from agentctl.sim.energy_state import make_energy
from agentctl.sim.pair_state import has_roles, make_pairs
from agentctl.sim.roles import ROLES
from agentctl.sim.sight import SEES_ACTIVE, SEES_TIERS, Sight
from agentctl.sim.splitting import make_sides
from agentctl.sim.tier_state import make_tiers
from agentctl.workload import Requests

NONE = -1
NO_NEWS = -2
NO_LIMIT = 1 << 60
MAX_HOLDS = 1 << 26
CACHE_LINE = 64  # bytes
FIRST_RATIO = 0.7  # SGLang's new-token ratio, before conservativeness (srt/environ.py)


def _record(**fields: str) -> np.dtype:
    return np.dtype(list(fields.items()), align=True)


# What engines were started with; names as in cluster.toml, and the coefficients of BatchTime.
LIMITS = _record(
    usable_blocks="i8", block_tokens="i8", max_num_batched_tokens="i8", max_num_seqs="i8",
    most_prompt="i8", most_tokens="i8",  # of a request, and with its output, that can ever be served
    long_prefill_token_threshold="i8", reserve_full_prompt="?", watermark_blocks="i8", prefix_caching="?",
    by_priority="?", prefill_schedule_interval="i8",
    role="i8",  # agentctl.sim.roles
    prefill_rate="f8",  # tokens per second in full batches of prompts
    is_sglang="?",
    chunked_prefill_size="i8",  # NO_LIMIT: prompts are never cut
    max_prefill_tokens="i8", mixed_chunk="?", ignore_eos="?",
    first_ratio="f8",  # new-token ratio to start with
    **{name: "f8" for name in BatchTime._fields if name != "model"},
)  # fmt: skip

# A paragraph is one line of the processor's cache.
ENGINE = _record(
    n_running="i8", n_waiting="i8",
    n_executed="i8",  # batches
    run_steps="i8",  # of a run: the same decodes step after step; 0: a single batch is in flight
    settled_until="f8",  # before this instant nothing of the run is new ...
    silent_until="f8",  # ... and before this one, nothing for the router's index
    n_free="i8",  # blocks
    first_news="i8",  # line of which the router's index must hear

    run_begun="i8", run_ended="i8",  # steps
    run_start="f8",
    run_first="f8",  # seconds of its first step on the GPU
    run_slope="f8",  # seconds that each further step takes longer
    run_host="f8", run_n_host="i8",  # seconds of a step that the host decides; how many those are
    emitted_tokens="i8",  # ever; private

    # what an engine publishes: agentctl.sim.view says what each counts
    waiting_requests="i8", running_requests="i8", pending_prefill_tokens="i8", pending_prefill_pairs="f8",
    context_tokens="i8", kv_used_blocks="i8", kv_total_blocks="i8",
    step_ends_at="f8",  # private

    first_waiting="i8", last_waiting="i8",
    oldest="i8", newest="i8",  # the queue of free runs
    first_slot="i8",  # free slot for a run, or a piece
    # SGLang's (agentctl.sim.sglang)
    n_decoding="i8", n_prefilling="i8", unnoticed="i8",  # requests

    chunked="i8",  # request whose prompt is partly computed, NONE
    is_full="?",
    ratio="f8",
    batch_ended="f8",  # when the last batch did
    chunk_left="i8", input_left="i8", reserved="f8", reserved_now="i8",  # of the batch that is being planned

    n_unused="i8",  # pages; n_free counts those that can be evicted too
    n_slots="i8",  # pieces ever in use
    n_leaves="i8",  # in the heap of those that can be evicted
    **{f"unused_{k}": "i8" for k in range(5)},
)  # fmt: skip
SNAPSHOT = _record(
    waiting_requests="i8", running_requests="i8", pending_prefill_tokens="i8", pending_prefill_pairs="f8",
    context_tokens="i8", kv_used_blocks="i8",
)  # fmt: skip

# How the router looks at engines.
ROUTER = _record(
    sees="i8",  # sum of SEES_* (agentctl.sim.sight)
    has_roles="?",
    interval="f8", delay="f8",  # of engine metrics; interval 0: always fresh
    next_publish="i8",  # its number
    index_delay="f8",
    first_late="i8", n_late="i8",  # announcements under way, a ring
    lost_late="i8",  # ... for which there was no room (then the run is void)
    # the gateways' own indexes
    keeps="?",  # whether gateways keep anything by themselves (agentctl.sim.keeping)
    own_block="i8",  # tokens per block; 0: the precise index is asked
    own_capacity="i8",  # blocks per engine
    own_ttl="f8",
    from_head="?",  # of one prompt the first block is forgotten first, else the deepest
    any_engine="?",  # a prompt is matched as far as any engine has its blocks
    n_segments="i8", free_segment="i8",  # slots ever in use; the first that is free again
)  # fmt: skip
# What one gateway knows of one engine by itself.
ROUTE = _record(
    inflight_requests="i8", inflight_prefill_tokens="i8", hit_tokens="i8",
    host_hit_tokens="i8", global_hit_tokens="i8",
    sent_requests="i8", sent_tokens="i8",  # ever
    unpublished_requests="i8", unpublished_tokens="i8",
    active_blocks="i8",  # with the request at hand
    n_active="i8",  # distinct prompt blocks of its requests in flight
    first_active="i8",  # of these requests
    oldest_segment="i8", newest_segment="i8", n_believed="i8",  # the gateway's own index; blocks
)  # fmt: skip
SENT = _record(requests="i8", tokens="i8")
# What is written down of an engine now and then (agentctl.sim.samples).
SAMPLE = _record(
    waiting_requests="i8", running_requests="i8", pending_prefill_tokens="i8", context_tokens="i8",
    kv_used_blocks="i8", emitted_tokens="i8",
)  # fmt: skip
SAMPLING = _record(
    begin="f8", width="f8",  # sample k is of begin + k * width
    n="i8",  # samples so far
    due="f8",  # the next; infinite: none is wanted
)  # fmt: skip
MAX_SAMPLES = 512
# What requests in flight cover of a line.
COVER = _record(length="i4", n_longest="i4")  # blocks; requests that cover so many
LATE = _record(at="f8", engine="i4", line="i4", held="i4")
MAX_LATE = 1 << 20
# What a gateway's own index has of a line: so many of its first blocks without a gap, and its first segment.
PLACE = _record(held="i4", first="i4")
# Consecutive blocks of a line that the same request used last (agentctl.sim.index).
SEGMENT = _record(
    line="i4", low="i4", high="i4",  # blocks low .. high - 1 of the line
    previous="i4", next="i4",  # in the queue; a free slot is chained by `next`
    deeper="i4",  # the next segment of the line
    used="f8",  # when
)  # fmt: skip

# A request and what became of it; counts are tokens unless named. What every batch needs of a request in it
# stands first. A paragraph is one line of the processor's cache: there may be millions of requests.
JOB = _record(
    prompt="i4", output="i4",
    computed="i4",  # with KV
    emitted="i4",  # output tokens so far
    n_blocks="i4", n_named="i4",  # blocks taken; of these, with content
    path_at="i4", path_offset="i4",  # where its next block without content lies: range, and place in it
    path_stop="i4",  # behind its last range in `path`
    owed="i4",  # its part of the engine's pending prefill
    top="i4",  # of its stack of holds; SGLang: the piece where its part of the tree ends
    gateway="i2", engine="i2",  # engine: an outcome, as those below
    last_token="f8", itl_max="f8",  # s, when; the longest gap before one of its tokens but the first

    path_start="i4",
    dispatch_hit="i4",  # by the router's index, when it was sent
    next_waiting="i4", priority="i4",
    # the outcome; NaN, -1 and 0 stand for what a rejected request lacks
    prefilled="i8", arrival="f8", scheduled="f8", first_token="f8", finish="f8", hit="i4",
    preemptions="i4",
)  # fmt: skip
# What only some routers keep of a request.
ASIDE = _record(
    own_start="i4", own_stop="i4",  # its ranges in blocks of the gateways' own indexes
    previous_active="i4", next_active="i4",  # in flight on the same engine
)  # fmt: skip

# Consecutive blocks of a line, cached by one request, with the same users (agentctl.sim.cache).
RUN = _record(
    born="i8",  # when it was cached: orders copies of the same block
    line="i4",  # NONE: blocks without content
    low="i4", high="i4",  # blocks low .. high - 1 of the line
    users="i4",
    previous="i4", next="i4",  # in the queue of free runs; a free slot is chained by `next`
    sibling="i4",  # another run of the line
    part="i4",  # the run that continues this one since it was cut, NONE
)  # fmt: skip

# Consecutive pages of a line in SGLang's radix tree (agentctl.sim.sglang_tree).
PIECE = _record(
    line="i8", low="i8", high="i8",  # pages low .. high - 1 of the line
    parent="i8",  # piece above, NONE; a free slot is chained by it
    below="i8",  # the piece that continues the same node of the radix tree, NONE
    n_children="i8",
    pins="i8",  # requests that end here, and children in use
    used="i8",  # when; that of a piece with children is not up to date
    place="i8",  # in the heap of leaves, NONE
    leaf="i8",  # entry of this number of the heap
)  # fmt: skip

# What a request uses: an entry of its stack.
HOLD = _record(
    run="i8",
    high="i8",  # end of what is used; parts cut off later lie below it
    below="i8",  # a free entry is chained by it too
)  # fmt: skip

# What an engine has of a line; small, because there are as many as lines times engines.
LINE = _record(
    first_run="i4",  # SGLang: its last piece
    held="i4",  # blocks of the line that are there
    news="i4",  # next line with news; NO_NEWS: none
)  # fmt: skip

RANGE = _record(line="i8", length="i8")

# Counts: what was cached so far, holds ever in use, a free hold, requests that have ended, holds for which
# there was no room, and batches that found no KV where SGLang would stop (with either of the two the run is
# void), whether the run is to stop: set from outside, by another thread, and entries of `losses`.
CLOCK, N_HOLDS, FREE_HOLD, ENDED, LOST_HOLDS, OUT_OF_KV, STOP, N_LOSSES = range(8)


EVERYTHING = Sight()


class State(NamedTuple):
    limits: NDArray  # LIMITS [engine]
    engines: NDArray  # ENGINE [engine]
    ends_at: NDArray[np.float64]  # [engine] when the batch or run in flight ends; infinite: idle
    jobs: NDArray  # JOB [request]
    asides: NDArray  # ASIDE [request], or one where nobody asks
    running: NDArray[np.int64]  # [engine, place], in scheduling order
    planned: NDArray[np.int64]  # [engine, place] tokens of the batch in flight; 0: not in it
    runs: NDArray  # RUN [engine, slot]
    nodes: NDArray  # PIECE [engine, slot]
    holds: NDArray  # HOLD, of all engines
    lines: NDArray  # LINE [line, engine]
    known: NDArray[np.int32]  # [line, engine] `held` as announced to the router
    path: NDArray  # RANGE, of all requests; then those in blocks of the gateways' own indexes
    counts: NDArray[np.int64]
    ended: NDArray[np.int64]  # scratch
    sampling: NDArray  # SAMPLING, one record
    samples: NDArray  # SAMPLE [number, engine]
    router: NDArray  # ROUTER, one record
    routes: NDArray  # ROUTE [gateway, engine]
    last_chosen: NDArray[np.int64]  # [gateway] engine of its previous decision, NONE
    last_decode: NDArray[np.int64]  # [gateway] and of the previous one that decodes
    memory: NDArray[np.float64]  # [gateway, place] the policy's own
    published: NDArray  # SNAPSHOT [publish mod their number, engine]
    sent: NDArray  # SENT [publish mod their number, gateway, engine]
    cover: NDArray  # COVER [gateway, line, engine]; a line only, where nobody asks
    late: NDArray  # LATE, a ring
    places: NDArray  # PLACE [gateway, line, engine], in the gateways' own blocks
    segments: NDArray  # SEGMENT; the first one stands for none
    # KV tiers: agentctl.sim.tier_state says what these are
    tiers: NDArray
    stores: NDArray
    stretches: NDArray
    shelves: NDArray
    moves: NDArray
    spans: NDArray
    free_span: NDArray[np.int64]
    loads: NDArray
    tier_hits: NDArray[np.int32]
    benches: NDArray
    depths: NDArray[np.int64]
    noted: NDArray[np.int32]
    losses: NDArray
    found: NDArray
    wanted: NDArray
    started: NDArray[np.int64]
    moving: NDArray[np.float64]
    links: NDArray
    transfers: NDArray
    of_engine: NDArray[np.int64]
    with_count: NDArray[np.int64]
    # power and energy: agentctl.sim.energy_state
    power: NDArray
    sizes: NDArray
    uses: NDArray
    energy: NDArray[np.float64]
    meters: NDArray
    # hand-overs: agentctl.sim.pair_state says what these are
    pairs: NDArray
    docks: NDArray
    network: NDArray
    asks: NDArray[np.int64]
    waiting: NDArray[np.int64]
    over: NDArray[np.int64]
    sides: NDArray


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
    # untouched memory costs nothing: pieces and holds are written when they are used
    arrays: tuple[Any, ...] = (
        limits, _attributes(engines), np.full(k, np.inf), _attributes(jobs), _attributes(asides),
        np.full((k, seqs), NONE), np.zeros((k, seqs), np.int64),
        _attributes(_make_runs(limits, engines, 0 if has_trees else blocks)),
        _attributes(np.zeros((k, blocks if has_trees else 0), PIECE)), _attributes(np.empty(n_holds, HOLD)),
        _attributes(lines), np.zeros(lines.shape, np.int32), _attributes(path), counts,
        np.empty(seqs, np.int64), _attributes(_make_sampling()),
        _attributes(np.empty((MAX_SAMPLES, k), SAMPLE)),
        *_make_router(sight, content.n_lines, k, own, cluster, is_handed_over),
        *(tiers := make_tiers(cluster, content, jobs.size, k, seqs, n if is_handed_over else 0)),
        *make_energy(cluster, k, jobs.size),
        *make_pairs(cluster, n, k, tiers.links.size - 1, is_handed_over, sides),
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
) -> list[NDArray]:
    router, g = np.zeros(1, ROUTER), sight.gateways
    has_tiers = cluster is not None and bool(cluster.kv_tiers)
    router["has_roles"] = is_handed_over
    n_own_lines, n_segments = _set_own(router, own) if own else (0, 0)
    if is_handed_over:  # a prompt is sent to two engines at most
        n_segments *= 2
    asked = SEES_ACTIVE | (SEES_TIERS if has_tiers else 0)
    router["keeps"] = own is not None or sight.sees & asked != 0
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
