"""One engine's scheduler where prompts are computed on one engine and decoded on another: vLLM's rules, and
what a hand-over adds. The judge's docstring (tests/oracles/reference_pools.py) has the whole set of rules.

A request r that is handed over is two jobs. Job n + r, of one token, computes the prompt; its blocks stay
in use until its KV has moved. Job r is in its decoder's queue from then on. It is admitted when the blocks of
its prompt and its first token fit, takes them all and is passed while its KV moves; once that is here it runs
before whoever waits. With KV tiers the rules of agentctl.sim.tiered hold for all but the decode half, which
asks no tier for what it is given.
"""

from __future__ import annotations

import math

import numpy as np

from agentctl.sim import energy, scheduler, tiered, transfer
from agentctl.sim.active import drop_active
from agentctl.sim.cache import release, take
from agentctl.sim.holding import allocate, blocks_for, look_up, name_blocks, use_path
from agentctl.sim.jit import kernel, rule
from agentctl.sim.news import announce_loaded
from agentctl.sim.pair_state import AWAY, HERE, MOVING, QUEUED
from agentctl.sim.queue import enqueue, leave_queue, owe_rest
from agentctl.sim.scheduler import join_running, threshold
from agentctl.sim.sight import SEES_ACTIVE
from agentctl.sim.state import NONE
from agentctl.sim.steps import cut, repeat, set_end, settle, time_batch
from agentctl.sim.tier_moves import set_moving
from agentctl.sim.tier_storing import note_prompt, store_through, who_may_be_stored, write_back


@rule
def start(s, e, now):
    """Plan the next batch or run and set `ends_at`."""
    if s.tiers.size and s.benches[e].awaits:
        return 0
    _start(s, e, now)
    return energy.slow_down(s, e) if _has_power(s) else 0


@kernel
def _has_power(s):
    return s.energy.size > 1


@kernel
def _start(s, e, now):
    """As agentctl.sim.tiered does."""
    engine, bench, has_tiers = s.engines[e], s.benches[e], s.tiers.size > 0
    if has_tiers:
        bench.start_after, bench.layered_until, bench.first_layer = now, now, 0.0
    budget, n_planned, preempted = _plan(s, e, now)
    while n_planned == 0 and has_tiers and tiered.is_stuck(s, e) and s.docks[e].n_moving == 0:
        tiered.start_over(s, e)
        budget, n_planned, preempted = _plan(s, e, now)
    if has_tiers:
        write_back(s, e, now)
        tiered.transfers_end(s, now)
    if n_planned == 0:
        return
    only_decodes = time_batch(s, e, now, n_planned)
    if has_tiers and bench.batch_loads > 0:
        bench.awaits = True
        return
    if only_decodes and not preempted and n_planned == engine.n_running:
        if has_tiers:
            tiered.repeat_decodes(s, e, budget, bench.n_loading + s.docks[e].n_moving)
        else:
            repeat(s, e, budget, engine.n_waiting > s.docks[e].n_moving, engine.n_free)
    set_end(s, e)


@kernel
def _plan(s, e, now):
    """As without pools, but for who is admitted; returns (budget left, requests planned, any preempted)."""
    while True:
        throttled = scheduler.is_throttled(s, e)
        budget, n_planned, preempted = scheduler.plan_running(s, e, throttled)
        if not preempted and not throttled:
            if s.docks[e].n_here:
                budget, n_planned = _resume(s, e, budget, n_planned, now)
            budget, n_planned = _admit(s, e, budget, n_planned, now)
        if n_planned or not preempted:
            break
    tiered.note_planned(s, e)
    return budget, n_planned, preempted


# Admission


@kernel
def _standing(s, j):
    return np.int64(s.pairs[j].standing) if j < s.pairs.size else np.int64(AWAY)


@kernel
def _resume(s, e, budget, n_planned, now):
    """Those whose KV is here, in order."""
    engine, limit = s.engines[e], s.limits[e]
    before, r = np.int64(NONE), np.int64(engine.first_waiting)
    while r != NONE and budget > 0 and engine.n_running < limit.max_num_seqs:
        after = np.int64(s.jobs[r].next_waiting)
        if _standing(s, r) == HERE:
            budget -= _run_here(s, e, before, r, budget)
            n_planned += 1
        else:
            before = r
        r = after
    return budget, n_planned


@kernel
def _admit(s, e, budget, n_planned, now):
    """The others, in order until one does not fit; whose KV is on the way is passed."""
    engine, limit = s.engines[e], s.limits[e]
    before, r = np.int64(NONE), np.int64(engine.first_waiting)
    while r != NONE and budget > 0 and engine.n_running < limit.max_num_seqs:
        after, standing = np.int64(s.jobs[r].next_waiting), _standing(s, r)
        if standing == QUEUED:
            if not _begin(s, e, r, now):
                break
            standing = _standing(s, r)  # it may have come in no time
        if standing == AWAY:
            if s.tiers.size:
                tokens = tiered.admit(s, e, before, r, budget, now)
            else:
                tokens = scheduler.admit(s, e, before, r, budget, now)
            if tokens == 0:
                break
        elif standing == HERE:
            tokens = _run_here(s, e, before, r, budget)
        else:
            tokens = np.int64(tiered.PASSED)
        if tokens == tiered.PASSED:
            before = r
        else:
            budget -= tokens
            n_planned += 1
        r = after
    return budget, n_planned


@kernel
def _run_here(s, e, before, r, budget):
    """Request r, whose KV is here, joins the batch; returns its tokens."""
    job = s.jobs[r]
    s.pairs[r].standing = AWAY
    s.docks[e].n_here -= 1
    tokens = min(threshold(s, e, job.prompt + job.emitted - job.computed), budget)
    allocate(s, e, r, tokens)
    owe_rest(s, e, r)
    leave_queue(s, e, before, r)
    join_running(s, e, r, tokens)
    return tokens


@kernel
def _begin(s, e, r, now):
    """Take all blocks of the prompt and the first token, and start the transfer; False if they do not fit."""
    engine, limit, job, pair = s.engines[e], s.limits[e], s.jobs[r], s.pairs[r]
    size, length = limit.block_tokens, np.int64(job.prompt) + job.emitted
    hit, idle = np.int64(0), np.int64(0)
    if limit.prefix_caching:
        hit, idle = look_up(s, e, r, (length - 1) // size)
    spare = limit.watermark_blocks if engine.n_running else 0
    new = blocks_for(length, size) - hit
    if new + idle + spare > engine.n_free:
        return False
    use_path(s, e, r, hit)
    if new > 0:
        take(s, e, new)
        job.n_blocks += new
    job.scheduled, job.hit, job.computed = now, hit * size, job.prompt
    if s.tiers.size:
        s.tier_hits[r, :] = 0  # what it finds there after a preemption is not of its first admission
    pair.standing, pair.moved, pair.began = MOVING, job.prompt - hit * size, now
    s.docks[e].n_moving += 1
    network = s.network[0]
    transfer.start(s, network.link, r, e, pair.moved * network.s_per_token, network.latency, now)
    hand_overs_end(s, now, e)
    return True


# What ends


@rule
def move(s, k, now):
    """Transfers that end now, those of KV tiers first."""
    if s.tiers.size:
        tiered.transfers_end(s, now)
    hand_overs_end(s, now, np.int64(-1))
    return 0


@kernel
def hand_overs_end(s, now, planning):
    """Apply the hand-overs whose KV is there now. `planning`: the engine that plans its next batch, those
    before which have done so at this instant; -1 where none has."""
    link = s.network[0].link
    if s.links[link].due <= now:
        while True:
            r = np.int64(transfer.advance(s, link, now))
            if r == NONE:
                break
            s.pairs[r].ended = now
            let_go(s, r, now, planning)
            _has_come(s, r, now)
    set_moving(s)


@kernel
def let_go(s, r, now, planning):
    """The prefill engine has its blocks back, and may admit someone."""
    pair = s.pairs[r]
    e = np.int64(pair.prefill)
    if planning == -1:
        settle(s, e, now)
    else:
        s.network[0].again = True
        settle(s, e, np.nextafter(now, math.inf) if e < planning else now)
    release(s, e, np.int64(pair.top), pair.n_unnamed)
    pair.top, pair.n_unnamed = NONE, 0
    cut(s, e)
    if planning != -1 and s.ends_at[e] == now:
        finish_step(s, e, now)


@kernel
def finish_step(s, e, now):
    """A step of a run ends now, and nothing with it."""
    if _has_power(s):
        energy.account(s, e)
    scheduler.finish(s, e, now)


@kernel
def _has_come(s, r, now):
    """On its decoder the moved blocks can be found from now on, and request r can run."""
    e = np.int64(s.pairs[r].decode)
    settle(s, e, now)
    if s.limits[e].prefix_caching:
        named = np.int64(s.jobs[r].n_named)
        name_blocks(s, e, r, s.jobs[r].prompt // s.limits[e].block_tokens)
        announce_loaded(s, e, r, named, now)
        if s.losses.size:
            note_prompt(s, e, r)
    s.pairs[r].standing = HERE
    s.docks[e].n_moving -= 1
    s.docks[e].n_here += 1
    cut(s, e)


@rule
def finish(s, e, now):
    """Apply the batch or run that ends now. A job that ends with its first token is handed over; `s.ended`
    has the requests that ended."""
    n_stored = np.int64(0)
    if _has_power(s):
        energy.account(s, e)
    if s.tiers.size and s.limits[e].prefix_caching:
        n_stored = who_may_be_stored(s, e)
    _hold_what_moves(s, e)
    n_ended, kept = scheduler.finish(s, e, now), np.int64(0)
    if s.tiers.size:
        store_through(s, e, n_stored, now)
        tiered.transfers_end(s, now)
    for k in range(n_ended):
        j = s.ended[k]
        if j < s.pairs.size:
            s.ended[kept] = j
            kept += 1
        else:
            _first_token_is_out(s, j - s.pairs.size, e, now)
    return kept


@kernel
def _hold_what_moves(s, e):
    """The blocks of jobs that end with this batch and are handed over are not given back with it."""
    n = s.pairs.size
    for i in range(s.engines[e].n_running):
        j = s.running[e, i]
        if j >= n:
            job, pair = s.jobs[j], s.pairs[j - n]
            if s.planned[e, i] and job.computed + s.planned[e, i] == job.prompt:
                pair.top, pair.n_unnamed = job.top, job.n_blocks - job.n_named
                job.top, job.n_blocks = NONE, job.n_named


@kernel
def _first_token_is_out(s, r, e, now):
    first, job, pair = s.jobs[s.pairs.size + r], s.jobs[r], s.pairs[r]
    first.finish, pair.is_over = now, True
    s.routes[job.gateway, e].inflight_requests -= 1
    if s.router[0].sees & SEES_ACTIVE:
        drop_active(s, s.pairs.size + r, e)
    job.emitted, job.arrival, job.first_token, job.last_token = 1, now, now, now
    if pair.decode == NONE:
        s.asks[s.network[0].n_asks] = r
        s.network[0].n_asks += 1
    else:
        take_over(s, r, now, e)


@kernel
def take_over(s, r, now, n_finished):
    """Request r, whose first token is out, is in its decoder's queue from now on. At this instant the first
    `n_finished` engines have had their turn to finish."""
    e, job = np.int64(s.pairs[r].decode), s.jobs[r]
    settle(s, e, now)
    s.pairs[r].standing = QUEUED
    enqueue(s, e, r, np.int64(job.prompt))
    s.engines[e].context_tokens += job.emitted
    cut(s, e)
    if s.ends_at[e] == now and e < n_finished:
        finish_step(s, e, now)
