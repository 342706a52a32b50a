"""The state of a simulated cluster: a few arrays of records, modified in place by the kernels.

Records rather than one array per field: what is used together stands together in memory. Kernels get the
tuple by its address (agentctl.sim.handle).
Indices: e engine, r request, x run (a slot of engine e), i place in an engine's running list.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.estimators.batch_time import BatchTime

NONE = -1
NO_NEWS = -2
NO_LIMIT = 1 << 60


def _record(**fields: str) -> np.dtype:
    return np.dtype(list(fields.items()), align=True)


# What engines were started with; names as in cluster.toml, and the coefficients of BatchTime.
LIMITS = _record(
    usable_blocks="i8", block_tokens="i8", max_num_batched_tokens="i8", max_num_seqs="i8",
    most_prompt="i8", most_tokens="i8",  # of a request, and with its output, that can ever be served
    long_prefill_token_threshold="i8", reserve_full_prompt="?", watermark_blocks="i8", prefix_caching="?",
    by_priority="?", prefill_schedule_interval="i8",
    role="i8",  # agentctl.sim.roles
    pool="i8",
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
    # pools with different models: agentctl.sim.fleet_state says what these are
    fleet: NDArray
    offers: NDArray
    forecasts: NDArray
    beliefs: NDArray
    means: NDArray
    waits: NDArray[np.float64]
    pulses: NDArray
    audits: NDArray[np.float64]
    left_predicted: NDArray[np.float64]
    left_emitted: NDArray[np.float64]
    left_tokens: NDArray[np.float64]
    heads: NDArray
    seen: NDArray
    numbers: NDArray[np.int64]
    late_seen: NDArray
    shot_heads: NDArray
    shots: NDArray
    shot_sent: NDArray[np.int64]
    sent_ends: NDArray[np.int64]
