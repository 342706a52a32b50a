"""One engine's scheduler with KV tiers behind it: vLLM's rules, and who loads and stores what, when.

Looking: at each admission, after the local hit, unit by unit the first tier that has the next one, never the
entire sequence. Loading from an `async` tier, a request keeps its place in the queue and the blocks that are
loaded, and others pass it; otherwise it goes into the batch, which lasts longer. Storing is at the end of a
prefill (through, selective) or when the engine loses a unit's last block (back); what is stored is a
snapshot. The judge's docstring (tests/oracles/reference_tiers.py) has the whole set of rules.
"""

from __future__ import annotations

import math

import numpy as np

from agentctl.sim import keeping, scheduler, steps
from agentctl.sim.cache import take
from agentctl.sim.holding import allocate, blocks_for, give_back, look_up, name_blocks, use_path
from agentctl.sim.jit import kernel, rule
from agentctl.sim.news import announce_loaded
from agentctl.sim.queue import is_decode, leave_queue, owe_rest
from agentctl.sim.scheduler import join_running, plan_running, threshold
from agentctl.sim.sight import SEES_TIERS
from agentctl.sim.state import NONE
from agentctl.sim.steps import cut, repeat, set_end, time_batch
from agentctl.sim.tier_moves import load, next_ended, search, see, store_of
from agentctl.sim.tier_state import ASYNC, AWAITED, LOADING, NO_STANDING, READY, SELECTIVE, UNKNOWN
from agentctl.sim.tier_store import path_units
from agentctl.sim.tier_storing import note_prompt, store_through, who_may_be_stored, write_back

PASSED = -1


@rule
def start(s, e, now):
    """Plan the next batch or run and set `ends_at`, unless a batch waits for its loads."""
    engine, bench = s.engines[e], s.benches[e]
    if bench.awaits:
        return 0
    bench.start_after, bench.layered_until, bench.first_layer = now, now, 0.0
    budget, n_planned, preempted = _plan(s, e, now)
    while n_planned == 0 and is_stuck(s, e):
        start_over(s, e)
        budget, n_planned, preempted = _plan(s, e, now)
    write_back(s, e, now)
    transfers_end(s, now)
    if n_planned == 0:
        return 0
    only_decodes = time_batch(s, e, now, n_planned)
    if bench.batch_loads > 0:
        bench.awaits = True
        return 0
    if only_decodes and not preempted and n_planned == engine.n_running:
        repeat_decodes(s, e, budget, s.benches[e].n_loading)
    set_end(s, e)
    return 0


@kernel
def _plan(s, e, now):
    """As without tiers, but for who is admitted; returns (budget left, requests planned, any preempted)."""
    while True:
        throttled = scheduler.is_throttled(s, e)
        budget, n_planned, preempted = plan_running(s, e, throttled)
        if not preempted and not throttled:
            budget, n_planned = _admit(s, e, budget, n_planned, now)
        if n_planned or not preempted:
            break
    note_planned(s, e)
    return budget, n_planned, preempted


@kernel
def note_planned(s, e):
    if s.losses.size:
        for i in range(s.engines[e].n_running):
            if s.planned[e, i] and not is_decode(s.jobs[s.running[e, i]]):
                note_prompt(s, e, s.running[e, i])


@kernel
def repeat_decodes(s, e, budget, n_passed):
    """Of those that wait, `n_passed` are not tried; what one that is tried finds in tiers may change at any
    time."""
    engine, limit = s.engines[e], s.limits[e]
    n_tried = engine.n_waiting - n_passed
    if n_tried > 0 and not limit.reserve_full_prompt:
        return
    n_free = np.int64(engine.n_free)
    if s.losses.size:  # a step that loses a block with content stores it
        x, n_free = engine.oldest, np.int64(0)
        while x != NONE and s.runs[e, x].line == NONE:
            n_free += s.runs[e, x].high - s.runs[e, x].low
            x = np.int64(s.runs[e, x].next)
    repeat(s, e, budget, n_tried > 0, n_free)


# Admission


@kernel
def _admit(s, e, budget, n_planned, now):
    """Those that load are passed, and those that have loaded need no lookup."""
    engine, limit = s.engines[e], s.limits[e]
    before, r = np.int64(NONE), np.int64(engine.first_waiting)
    while r != NONE and budget > 0 and engine.n_running < limit.max_num_seqs:
        after = np.int64(s.jobs[r].next_waiting)
        tokens = admit(s, e, before, r, budget, now)
        if tokens == 0:
            break
        if tokens == PASSED:
            before = r
        else:
            budget -= tokens
            n_planned += 1
        r = after
    return budget, n_planned


@kernel
def admit(s, e, before, r, budget, now):
    """Request r, which waits behind `before`, joins the batch if it fits; returns its tokens, 0 if it does
    not fit, PASSED if it loads."""
    engine, limit, job, one = s.engines[e], s.limits[e], s.jobs[r], s.loads[r]
    size = limit.block_tokens
    if one.standing == NO_STANDING and not _begin(s, e, r, budget, now):
        return np.int64(0)
    if one.standing == LOADING:
        return np.int64(PASSED)
    tokens = min(threshold(s, e, job.prompt + job.emitted - job.computed), budget)
    whole = job.prompt + job.emitted if limit.reserve_full_prompt else job.computed + tokens
    spare = limit.watermark_blocks if engine.n_running else 0
    if blocks_for(whole, size) - job.n_blocks + spare > engine.n_free:
        return np.int64(0)  # only a loaded one can fail here
    allocate(s, e, r, tokens)
    if s.losses.size:
        note_prompt(s, e, r)
    if one.standing == READY:
        one.standing = NO_STANDING
        s.benches[e].n_ready -= 1
    if math.isnan(job.scheduled):
        job.scheduled = now
    owe_rest(s, e, r)
    leave_queue(s, e, before, r)
    join_running(s, e, r, tokens)
    return tokens


@kernel
def _begin(s, e, r, budget, now):
    """Look up, and start to load; False if it does not fit."""
    engine, limit, job, one = s.engines[e], s.limits[e], s.jobs[r], s.loads[r]
    size, length = limit.block_tokens, np.int64(job.prompt) + job.emitted
    hit, idle, n, reach = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    if limit.prefix_caching:
        hit, idle = look_up(s, e, r, (length - 1) // size)
        n, reach = search(s, e, r, hit * size, length - 1)
    waits = False
    for i in range(n):
        waits = waits or s.tiers[s.found[i].tier].overlap == ASYNC
    tokens = np.int64(0) if waits else min(threshold(s, e, length - reach), budget)
    whole = length if limit.reserve_full_prompt else reach + tokens
    spare = limit.watermark_blocks if engine.n_running else 0
    if blocks_for(whole, size) - hit + idle + spare > engine.n_free:
        return False
    use_path(s, e, r, hit)
    job.computed = reach
    _count_hits(s, e, r, hit, n)
    if waits:
        one.standing = LOADING
        s.benches[e].n_loading += 1
        new = blocks_for(reach, size) - hit
        take(s, e, new)
        job.n_blocks += new
    for t in range(s.tiers.size):
        for i in range(n):
            if s.found[i].tier == t:
                load(s, e, r, t, n, now)
                s.benches[e].batch_loads += 0 if waits else 1
                break
    if n:
        transfers_end(s, now)
    return True


@kernel
def _count_hits(s, e, r, hit, n):
    """What the request found here and in tiers, at its first admission; and whose units hit here."""
    job, size = s.jobs[r], s.limits[e].block_tokens
    if s.tier_hits[r, 0] == UNKNOWN:
        job.hit = hit * size
        s.tier_hits[r, :] = 0
        for i in range(n):
            s.tier_hits[r, s.found[i].tier] += s.found[i].tokens
    for t in range(s.tiers.size):
        if s.tiers[t].write == SELECTIVE:
            k, blocks = store_of(s, t, e), s.tiers[t].unit_blocks
            for i in range(path_units(s, r, blocks, 0, hit // blocks, 0)):
                shelf, high = s.shelves[k, s.wanted[i].line], s.wanted[i].high
                shelf.twice = max(shelf.twice, min(high, shelf.once))
                shelf.once = max(shelf.once, high)


@kernel
def is_stuck(s, e):
    """Whether nothing runs or loads, and what has loaded holds blocks."""
    bench = s.benches[e]
    return bench.n_ready > 0 and s.engines[e].n_running == 0 and bench.n_loading == 0


@kernel
def start_over(s, e):
    """The loaded one that is last in the queue gives its blocks back."""
    last, r = np.int64(NONE), s.engines[e].first_waiting
    while r != NONE:
        if s.loads[r].standing == READY:
            last = np.int64(r)
        r = np.int64(s.jobs[r].next_waiting)
    job = s.jobs[last]
    give_back(s, e, last)
    job.computed = 0
    job.path_at, job.path_offset = job.path_start, 0
    s.loads[last].standing = NO_STANDING
    s.benches[e].n_ready -= 1


# What ends


@kernel
def transfers_end(s, now):
    """Apply the transfers that end now."""
    while True:
        k, x = next_ended(s, now)
        if x == 0:
            return
        if s.moves[k, x].is_load:
            _load_ended(s, k, x, now)


@rule
def ask(s, r, now):
    """As agentctl.sim.keeping's, and what the gateway of request r knows of tiers."""
    keeping.ask(s, r, now)
    if s.router[0].own_block > 0 or not s.router[0].sees & SEES_TIERS:
        return 0
    g, most = np.int64(s.jobs[r].gateway), np.int64(s.jobs[r].prompt) - 1
    for e in range(s.engines.size):
        if s.limits[e].prefix_caching:
            route = s.routes[g, e]
            route.host_hit_tokens, route.global_hit_tokens = see(s, e, r, route.hit_tokens, most)
    return 0


@rule
def move(s, k, now):
    transfers_end(s, now)
    return 0


@kernel
def _load_ended(s, k, x, now):
    e, r, took = np.int64(s.moves[k, x].engine), np.int64(s.moves[k, x].r), now - s.moves[k, x].began
    bench, one, tier = s.benches[e], s.loads[r], s.tiers[s.stores[k].tier]
    one.n_loads -= 1
    if one.n_loads == 0:
        one.load_s += took
    if one.standing == LOADING:
        if one.n_loads == 0:
            _make_ready(s, e, r, now)
        return
    bench.batch_loads -= 1
    if tier.overlap == AWAITED:
        bench.start_after = max(bench.start_after, now)
    else:
        bench.layered_until = max(bench.layered_until, now)
        bench.first_layer = max(bench.first_layer, took / tier.layers if tier.layers else 0.0)
    if bench.awaits and bench.batch_loads == 0:
        bench.awaits = False
        engine = s.engines[e]
        computed = bench.start_after + (steps.step_end(engine, np.int64(1)) - engine.run_start)
        s.ends_at[e] = max(computed, bench.layered_until) + bench.first_layer


@kernel
def _make_ready(s, e, r, now):
    """What was loaded can be found from now on, and the router's index hears of it."""
    steps.settle(s, e, now)
    named = np.int64(s.jobs[r].n_named)
    name_blocks(s, e, r, np.int64(s.jobs[r].n_blocks))
    announce_loaded(s, e, r, named, now)
    if s.losses.size:
        note_prompt(s, e, r)
    s.loads[r].standing = READY
    s.benches[e].n_loading -= 1
    s.benches[e].n_ready += 1
    cut(s, e)


@rule
def finish(s, e, now):
    """As without tiers; then what was computed goes to the tiers that are written through."""
    n = who_may_be_stored(s, e) if s.limits[e].prefix_caching else np.int64(0)
    n_ended = scheduler.finish(s, e, now)
    store_through(s, e, n, now)
    transfers_end(s, now)
    return n_ended
