"""One engine's scheduler: vLLM V1's rules, a batch at a time.

Rules: budget of tokens per batch, running requests first and in order, then the waiting ones in order until
one does not fit; chunked prefill; preemption by recompute to the front of the queue. A batch is planned with
`start`, runs until `ends_at`, and takes effect with `finish`; equal steps are one run (agentctl.sim.steps).
Source: vllm 0.33.0, v1/core/sched/scheduler.py.
"""

from __future__ import annotations

import math

import numpy as np

from agentctl.sim.holding import allocate, blocks_for, give_back, has_room, look_up, use_path
from agentctl.sim.jit import kernel, rule
from agentctl.sim.news import announce
from agentctl.sim.queue import apply, apply_run, is_decode, leave_queue, owe, owe_rest, wait_in
from agentctl.sim.state import NONE
from agentctl.sim.steps import last_step, repeat, set_end, settle, step_end, time_batch
from agentctl.sim.tier_storing import note_prompt


@rule
def start(s, e, now):
    """Plan the next batch or run and set `ends_at`; a plan that only preempted is made again at once."""
    engine = s.engines[e]
    while True:
        throttled = is_throttled(s, e)
        budget, n_planned, preempted = plan_running(s, e, throttled)
        if not preempted and not throttled:
            budget, n_planned = _admit(s, e, budget, n_planned, now)
        if n_planned or not preempted:
            break
    if n_planned == 0:
        return 0
    only_decodes = time_batch(s, e, now, n_planned)
    if only_decodes and not preempted and n_planned == engine.n_running:
        repeat(s, e, budget, engine.n_waiting > 0, engine.n_free)
    set_end(s, e)
    return 0


@kernel
def is_throttled(s, e):
    """Whether prefills wait: they run in every n-th executed batch, or where nothing else can run."""
    engine = s.engines[e]
    if engine.n_executed % s.limits[e].prefill_schedule_interval == 0:
        return False
    for i in range(engine.n_running):  # noqa: SIM110  (numba has no generators here)
        if is_decode(s.jobs[s.running[e, i]]):
            return True
    return False


@kernel
def plan_running(s, e, throttled):
    """Give running requests their tokens in order; returns (budget left, requests planned, any preempted)."""
    engine, limit = s.engines[e], s.limits[e]
    jobs, running, planned, size = s.jobs, s.running[e], s.planned[e], limit.block_tokens
    budget, n_planned, preempted, i = limit.max_num_batched_tokens, 0, False, 0
    for place in range(engine.n_running):
        planned[place] = 0
    while i < engine.n_running and budget > 0:
        r = running[i]
        job = jobs[r]
        decode = is_decode(job)
        if throttled and not decode:
            i += 1
            continue
        tokens = np.int64(1)
        if not decode:
            left = job.prompt + job.emitted - job.computed
            tokens = min(threshold(s, e, left), budget)
        while not (has_room(job, tokens, size) or allocate(s, e, r, tokens)):
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
        planned[i] = tokens
        budget -= tokens
        n_planned += 1
        i += 1
    return budget, n_planned, preempted


@kernel
def threshold(s, e, tokens):
    engine, limit = s.engines[e], s.limits[e].long_prefill_token_threshold
    alone = engine.n_running + engine.n_waiting == 1
    return tokens if limit == 0 or alone else min(tokens, limit)


@kernel
def _victim(s, e):
    """Place of the request to preempt: the newest, or the worst (priority, arrival)."""
    engine, limit, jobs = s.engines[e], s.limits[e], s.jobs
    worst = engine.n_running - 1
    if not limit.by_priority:
        return worst
    worst = np.int64(0)
    for i in range(1, engine.n_running):
        a, b = s.running[e, i], s.running[e, worst]
        if jobs[a].priority > jobs[b].priority or (
            jobs[a].priority == jobs[b].priority and jobs[a].arrival > jobs[b].arrival
        ):
            worst = np.int64(i)
    return worst


@kernel
def _preempt(s, e, place):
    """Free all that the request at `place` holds and put it in front of the queue."""
    r = s.running[e, place]
    job = s.jobs[r]
    _leave(s, e, place)
    if s.losses.size:  # blocks have names from their planning on, under priority also in this one
        note_prompt(s, e, r)
    give_back(s, e, r)
    job.computed = 0
    job.path_at, job.path_offset = job.path_start, 0
    job.preemptions += 1
    wait_in(s, e, r)
    owe(s, e, r, job.prompt + job.emitted)


@kernel
def _leave(s, e, place):
    """Take a request out of the running list, and its tokens out of the plan."""
    engine = s.engines[e]
    last = engine.n_running - 1
    for i in range(place, last):
        s.running[e, i] = s.running[e, i + 1]
        s.planned[e, i] = s.planned[e, i + 1]
    s.planned[e, last] = 0
    engine.n_running = last
    engine.running_requests -= 1


@kernel
def _admit(s, e, budget, n_planned, now):
    """Admit waiting requests in order until one does not fit; returns (budget left, requests planned)."""
    engine, limit = s.engines[e], s.limits[e]
    while engine.n_waiting and budget > 0 and engine.n_running < limit.max_num_seqs:
        tokens = admit(s, e, np.int64(NONE), np.int64(engine.first_waiting), budget, now)
        if tokens == 0:
            break
        budget -= tokens
        n_planned += 1
    return budget, n_planned


@kernel
def admit(s, e, before, r, budget, now):
    """Request r, which waits behind `before` (NONE: it is the first), joins the batch if it fits; returns its
    tokens, 0 if not."""
    engine, limit, job = s.engines[e], s.limits[e], s.jobs[r]
    size, length = limit.block_tokens, job.prompt + job.emitted
    # the last token is always computed
    hit, idle = look_up(s, e, r, (length - 1) // size) if limit.prefix_caching else (0, 0)
    tokens = min(threshold(s, e, length - hit * size), budget)
    whole = length if limit.reserve_full_prompt else hit * size + tokens
    spare = limit.watermark_blocks if engine.n_running else 0
    if blocks_for(whole, size) - hit + idle + spare > engine.n_free:
        return np.int64(0)
    use_path(s, e, r, hit)
    job.computed = hit * size
    allocate(s, e, r, tokens)
    if math.isnan(job.scheduled):
        job.scheduled, job.hit = now, hit * size
    owe_rest(s, e, r)
    leave_queue(s, e, before, r)
    join_running(s, e, r, tokens)
    return tokens


@kernel
def join_running(s, e, r, tokens):
    """Request r runs from now on, with so many tokens of the batch that is being planned."""
    engine = s.engines[e]
    s.running[e, engine.n_running], s.planned[e, engine.n_running] = r, tokens
    engine.n_running += 1
    engine.running_requests += 1


@rule
def finish(s, e, now):
    """Apply the batch or run that ends now. Fills `s.ended` with the requests that ended, in batch order, and
    returns their number."""
    engine, jobs, ended = s.engines[e], s.jobs, s.ended
    settle(s, e, now)
    announce(s, e, now)
    steps = engine.run_steps
    first_end, last = step_end(engine, np.int64(1)), last_step(engine)
    n_ended = 0
    kept = 0
    for i in range(engine.n_running):
        r = s.running[e, i]
        job = jobs[r]
        if steps:
            apply_run(job, steps, first_end, last, now)
        elif s.planned[e, i]:
            apply(s, e, r, s.planned[e, i], now)
        if job.emitted == job.output:
            ended[n_ended] = r
            n_ended += 1
        else:
            s.running[e, kept] = r
            kept += 1
    engine.n_running = engine.running_requests = kept
    for k in range(n_ended):
        r = ended[k]
        give_back(s, e, r)
        engine.context_tokens -= jobs[r].prompt + jobs[r].emitted
    engine.n_executed += max(steps, 1)
    engine.run_steps = 0
    s.ends_at[e] = math.inf
    return n_ended
