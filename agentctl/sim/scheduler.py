"""One engine's scheduler: vLLM V1's rules, a batch at a time.

Rules: budget of tokens per batch, running requests first and in order, then the waiting ones in order until
one does not fit; chunked prefill; preemption by recompute to the front of the queue. A batch is planned with
`start`, runs until `ends_at`, and takes effect with `finish`; equal steps are one run (agentctl.sim.steps).
Source: vllm 0.33.0, v1/core/sched/scheduler.py.
"""

from __future__ import annotations

import math

import numpy as np

from agentctl.sim.cache import announce
from agentctl.sim.holding import allocate, blocks_for, give_back, look_up, use_path
from agentctl.sim.jit import entry, kernel
from agentctl.sim.queue import is_decode, owe, owe_rest, wait_in
from agentctl.sim.state import NONE
from agentctl.sim.steps import repeat, set_end, settle, time_batch


@entry
def start(s, e, now):
    """Plan the next batch or run and set `ends_at`; a plan that only preempted is made again at once."""
    engines, limits = s.engines, s.limits
    while True:
        off_beat = engines[e].n_executed % limits[e].prefill_schedule_interval != 0
        throttled = off_beat and _any_decode(s, e)
        budget, n_planned, preempted = _plan_running(s, e, throttled)
        if not preempted and not throttled:
            budget, n_planned = _admit(s, e, budget, n_planned, now)
        if n_planned or not preempted:
            break
    if n_planned == 0:
        return 0
    only_decodes = time_batch(s, e, now, n_planned)
    if only_decodes and not preempted and n_planned == engines[e].n_running:
        repeat(s, e, budget)
    set_end(s, e)
    return 0


@kernel
def _any_decode(s, e):
    for i in range(s.engines[e].n_running):  # noqa: SIM110  (numba has no generators here)
        if is_decode(s.jobs, s.running[e, i]):
            return True
    return False


@kernel
def _plan_running(s, e, throttled):
    """Give running requests their tokens in order; returns (budget left, requests planned, any preempted)."""
    engines, jobs = s.engines, s.jobs
    budget, n_planned, preempted, i = s.limits[e].max_num_batched_tokens, 0, False, 0
    for place in range(engines[e].n_running):
        s.planned[e, place] = 0
    while i < engines[e].n_running and budget > 0:
        r = s.running[e, i]
        decode = is_decode(s.jobs, r)
        if throttled and not decode:
            i += 1
            continue
        tokens = np.int64(1)
        if not decode:
            left = s.jobs[r].prompt + jobs[r].emitted - jobs[r].computed
            tokens = min(_threshold(s, e, left), budget)
        while not allocate(s, e, r, tokens):
            preempted = True
            place = _victim(s, e)
            victim = s.running[e, place]
            if place < i:  # under priority it may already be part of this batch
                i -= 1
                budget += s.planned[e, place]
                n_planned -= s.planned[e, place] > 0
            _preempt(s, e, place)
            if victim == r:
                return budget, n_planned, preempted
        s.planned[e, i] = tokens
        budget -= tokens
        n_planned += 1
        i += 1
    return budget, n_planned, preempted


@kernel
def _threshold(s, e, tokens):
    limit = s.limits[e].long_prefill_token_threshold
    alone = s.engines[e].n_running + s.engines[e].n_waiting == 1
    return tokens if limit == 0 or alone else min(tokens, limit)


@kernel
def _victim(s, e):
    """Place of the request to preempt: the newest, or the worst (priority, arrival)."""
    engines, jobs = s.engines, s.jobs
    worst = engines[e].n_running - 1
    if not s.limits[e].by_priority:
        return worst
    worst = np.int64(0)
    for i in range(1, engines[e].n_running):
        a, b = s.running[e, i], s.running[e, worst]
        if s.jobs[a].priority > s.jobs[b].priority or (
            s.jobs[a].priority == s.jobs[b].priority and jobs[a].arrival > jobs[b].arrival
        ):
            worst = np.int64(i)
    return worst


@kernel
def _preempt(s, e, place):
    """Free all that the request at `place` holds and put it in front of the queue."""
    jobs = s.jobs
    r = s.running[e, place]
    _leave(s, e, place)
    give_back(s, e, r)
    jobs[r].computed = 0
    jobs[r].path_at, jobs[r].path_offset = s.jobs[r].path_start, 0
    s.jobs[r].preemptions += 1
    wait_in(s, e, r)
    owe(s, e, r, s.jobs[r].prompt + jobs[r].emitted)


@kernel
def _leave(s, e, place):
    """Take a request out of the running list, and its tokens out of the plan."""
    engines = s.engines
    last = engines[e].n_running - 1
    for i in range(place, last):
        s.running[e, i] = s.running[e, i + 1]
        s.planned[e, i] = s.planned[e, i + 1]
    s.planned[e, last] = 0
    engines[e].n_running = last
    s.engines[e].running_requests -= 1


@kernel
def _admit(s, e, budget, n_planned, now):
    """Admit waiting requests in order until one does not fit; returns (budget left, requests planned)."""
    engines, jobs, limits = s.engines, s.jobs, s.limits
    size = limits[e].block_tokens
    while engines[e].n_waiting and budget > 0 and engines[e].n_running < limits[e].max_num_seqs:
        r = engines[e].first_waiting
        length = s.jobs[r].prompt + jobs[r].emitted
        # the last token is always computed
        hit, idle = look_up(s, e, r, (length - 1) // size) if limits[e].prefix_caching else (0, 0)
        tokens = min(_threshold(s, e, length - hit * size), budget)
        whole = length if limits[e].reserve_full_prompt else hit * size + tokens
        spare = limits[e].watermark_blocks if engines[e].n_running else 0
        if blocks_for(whole, size) - hit + idle + spare > s.engines[e].n_free:
            break
        use_path(s, e, r, hit)
        jobs[r].computed = hit * size
        allocate(s, e, r, tokens)
        if math.isnan(s.jobs[r].scheduled):
            s.jobs[r].scheduled, s.jobs[r].hit = now, hit * size
        owe_rest(s, e, r)
        engines[e].first_waiting = jobs[r].next_waiting
        if engines[e].first_waiting == NONE:
            engines[e].last_waiting = NONE
        engines[e].n_waiting -= 1
        s.engines[e].waiting_requests -= 1
        i = engines[e].n_running
        s.running[e, i], s.planned[e, i] = r, tokens
        engines[e].n_running += 1
        s.engines[e].running_requests += 1
        budget -= tokens
        n_planned += 1
    return budget, n_planned


@entry
def finish(s, e, now):
    """Apply the batch or run that ends now. Fills `s.ended` with the requests that ended, in batch order, and
    returns their number."""
    engines, jobs, ended = s.engines, s.jobs, s.ended
    settle(s, e, now)
    announce(s, e)
    steps = engines[e].run_steps
    n_ended = 0
    kept = 0
    for i in range(engines[e].n_running):
        r = s.running[e, i]
        if steps:
            jobs[r].computed += steps
            jobs[r].emitted += steps
        elif s.planned[e, i]:
            _apply(s, e, r, s.planned[e, i], now)
        if jobs[r].emitted == s.jobs[r].output:
            ended[n_ended] = r
            n_ended += 1
        else:
            s.running[e, kept] = r
            kept += 1
    engines[e].n_running = engines[e].running_requests = kept
    for k in range(n_ended):
        r = ended[k]
        give_back(s, e, r)
        engines[e].context_tokens -= s.jobs[r].prompt + jobs[r].emitted
    engines[e].n_executed += max(steps, 1)
    engines[e].run_steps = 0
    engines[e].ends_at = math.inf
    return n_ended


@kernel
def _apply(s, e, r, tokens, now):
    """The batch has run: `tokens` of r computed, and one emitted when nothing is left."""
    jobs = s.jobs
    was_decode = is_decode(s.jobs, r)
    if not was_decode:
        s.jobs[r].prefilled += tokens
    jobs[r].computed += tokens
    length = s.jobs[r].prompt + jobs[r].emitted
    if not was_decode:
        owe_rest(s, e, r)
    if jobs[r].computed < length:
        return
    jobs[r].emitted += 1
    s.engines[e].context_tokens += 1
    if jobs[r].emitted == 1:
        s.jobs[r].first_token = now
        s.engines[e].inflight_prefill_tokens -= s.jobs[r].prompt - jobs[r].dispatch_hit
