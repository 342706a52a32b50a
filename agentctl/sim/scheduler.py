"""One engine's scheduler: vLLM V1's rules, a batch at a time, runs of equal decode steps at once.

Rules: budget of tokens per batch, running requests first and in order, then the waiting ones in order until
one does not fit; chunked prefill; preemption by recompute to the front of the queue. A batch is planned with
`start`, runs until `ends_at`, and takes effect with `finish`. Batches that can only repeat (decodes, nobody
to admit) become one run: `settle` brings it to an instant, `cut` ends it at the next step.
Source: vllm 0.33.0, v1/core/sched/scheduler.py.
"""

from __future__ import annotations

import math

import numpy as np

from agentctl.sim.cache import announce, cache_blocks, count_idle, release, take, use
from agentctl.sim.jit import kernel
from agentctl.sim.state import NONE


@kernel
def is_decode(jobs, r):
    """Only the token sampled last is left to compute."""
    job = jobs[r]
    return job.emitted > 0 and job.computed == job.prompt + job.emitted - 1


@kernel
def blocks_for(tokens, block_tokens):
    return (tokens + block_tokens - 1) // block_tokens


@kernel
def fits(limits, prompt, output):
    """Whether an engine with these limits can ever serve a request of this size."""
    size, usable = limits.block_tokens, limits.usable_blocks
    if prompt + output > limits.max_model_len:
        return False
    if blocks_for(prompt, size) + limits.watermark_blocks > usable:
        return False
    return blocks_for(prompt + output - 1, size) <= usable


# The queue


@kernel
def enqueue(s, e, r, hit):
    """Queue request r, of which the router knows `hit` tokens here; a run has been settled and cut."""
    _wait(s, e, r, False)
    s.engines[e].context_tokens += s.jobs[r].prompt
    s.jobs[r].path_at = s.jobs[r].path_start
    owe(s, e, r, s.jobs[r].prompt - hit)


@kernel
def _wait(s, e, r, in_front):
    engines, jobs = s.engines, s.jobs
    before, then = NONE, engines[e].first_waiting
    if s.limits[e].by_priority:
        while then != NONE and not _goes_before(s, r, then):
            before, then = then, jobs[then].next_waiting
    elif not in_front:
        before, then = engines[e].last_waiting, NONE
    jobs[r].next_waiting = then
    if before == NONE:
        engines[e].first_waiting = r
    else:
        jobs[before].next_waiting = r
    if then == NONE:
        engines[e].last_waiting = r
    engines[e].n_waiting += 1
    s.engines[e].waiting_requests += 1


@kernel
def _goes_before(s, a, b):
    """(priority, arrival, number) of a is less than that of b."""
    if s.jobs[a].priority != s.jobs[b].priority:
        return s.jobs[a].priority < s.jobs[b].priority
    if s.jobs[a].arrival != s.jobs[b].arrival:
        return s.jobs[a].arrival < s.jobs[b].arrival
    return a < b


@kernel
def owe(s, e, r, tokens):
    """What the router may know of the prefill that r still needs."""
    length = s.jobs[r].prompt + s.jobs[r].emitted  # the same since it was last owed anything
    old = s.jobs[r].owed
    s.engines[e].pending_prefill_tokens += tokens - old
    pairs = tokens * (2 * length - tokens) - old * (2 * length - old)
    s.engines[e].pending_prefill_pairs += pairs * 0.5  # whole and half numbers: exact
    s.jobs[r].owed = tokens


# Planning


@kernel
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
        return
    only_decodes = _time_batch(s, e, now, n_planned)
    if only_decodes and not preempted and n_planned == engines[e].n_running:
        _repeat(s, e, budget)
    _set_end(s, e)


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
        while not _allocate(s, e, r, tokens):
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
    _give_back(s, e, r)
    jobs[r].computed = 0
    jobs[r].path_at, jobs[r].path_offset = s.jobs[r].path_start, 0
    s.jobs[r].preemptions += 1
    _wait(s, e, r, True)
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
def _give_back(s, e, r):
    jobs = s.jobs
    release(s, e, jobs[r].top, jobs[r].n_blocks - jobs[r].n_named)
    jobs[r].top, jobs[r].n_blocks, jobs[r].n_named = NONE, 0, 0


@kernel
def _admit(s, e, budget, n_planned, now):
    """Admit waiting requests in order until one does not fit; returns (budget left, requests planned)."""
    engines, jobs, limits = s.engines, s.jobs, s.limits
    size = limits[e].block_tokens
    while engines[e].n_waiting and budget > 0 and engines[e].n_running < limits[e].max_num_seqs:
        r = engines[e].first_waiting
        length = s.jobs[r].prompt + jobs[r].emitted
        # the last token is always computed
        hit, idle = _look_up(s, e, r, (length - 1) // size) if limits[e].prefix_caching else (0, 0)
        tokens = min(_threshold(s, e, length - hit * size), budget)
        whole = length if limits[e].reserve_full_prompt else hit * size + tokens
        spare = limits[e].watermark_blocks if engines[e].n_running else 0
        if blocks_for(whole, size) - hit + idle + spare > s.engines[e].n_free:
            break
        _use_path(s, e, r, hit)
        jobs[r].computed = hit * size
        _allocate(s, e, r, tokens)
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


@kernel
def _look_up(s, e, r, most):
    """(blocks of r's path that engine e holds, at most `most`; how many of these nobody uses)."""
    hit, idle = np.int64(0), np.int64(0)
    for at in range(s.jobs[r].path_start, s.jobs[r].path_stop):
        line = s.path[at].line
        length = min(np.int64(s.path[at].length), most - hit)
        here = min(np.int64(s.lines[line, e].held), length)
        if here > 0:
            idle += count_idle(s, e, line, here)
        hit += here
        if here < length or hit == most:
            break
    return hit, idle


@kernel
def _use_path(s, e, r, hit):
    """Use the first `hit` blocks of r's path and remember where the next one lies."""
    jobs = s.jobs
    left, at = hit, s.jobs[r].path_start
    while left > 0:
        part = min(left, np.int64(s.path[at].length))
        jobs[r].top = use(s, e, s.path[at].line, part, jobs[r].top)
        left -= part
        jobs[r].path_offset = part
        if part == s.path[at].length:
            at += 1
            jobs[r].path_offset = 0
    jobs[r].path_at = at
    jobs[r].n_blocks = jobs[r].n_named = hit


@kernel
def _allocate(s, e, r, tokens):
    """Take the blocks that `tokens` more need; blocks that they fill can be found from now on."""
    jobs, size = s.jobs, s.limits[e].block_tokens
    after = jobs[r].computed + tokens
    if after <= jobs[r].n_blocks * size and after < (jobs[r].n_named + 1) * size:
        return True  # most steps of a decode neither take nor fill a block
    new = blocks_for(after, size) - jobs[r].n_blocks
    if new > s.engines[e].n_free:
        return False
    if new > 0:
        take(s, e, new)
        jobs[r].n_blocks += new
    if s.limits[e].prefix_caching:
        name_blocks(s, e, r, after // size)
    return True


@kernel
def name_blocks(s, e, r, full):
    """The first `full` blocks of r are full: those without content get theirs."""
    jobs = s.jobs
    new = full - jobs[r].n_named
    at, offset = jobs[r].path_at, np.int64(jobs[r].path_offset)
    if new <= 0:
        return
    jobs[r].n_named = full
    while new > 0:
        part = min(new, s.path[at].length - offset)
        jobs[r].top = cache_blocks(s, e, s.path[at].line, offset, offset + part, jobs[r].top)
        new -= part
        offset += part
        if offset == s.path[at].length:
            at += 1
            offset = np.int64(0)
    jobs[r].path_at, jobs[r].path_offset = at, offset


@kernel
def owe_rest(s, e, r):
    left = s.jobs[r].prompt + s.jobs[r].emitted - s.jobs[r].computed
    owe(s, e, r, 0 if is_decode(s.jobs, r) else left)


# Time


@kernel
def _time_batch(s, e, now, n_planned):
    """Duration of the planned batch, as a run of one step; returns whether it is all decodes."""
    engines, jobs, c = s.engines, s.jobs, s.limits[e]
    prefill = past = n_prefill = context = 0
    pairs = 0.0
    for i in range(engines[e].n_running):
        tokens = s.planned[e, i]
        if tokens == 0:
            continue
        r = s.running[e, i]
        before = jobs[r].computed
        if is_decode(s.jobs, r):
            context += before
            continue
        n_prefill += 1
        prefill += tokens
        pairs += tokens * before + tokens * (tokens + 1) / 2
        past += before
    n_decode = n_planned - n_prefill
    b_context = c.b_context_mixed if n_prefill else c.b_context
    engines[e].run_start = now
    engines[e].run_first = (
        c.b0 + c.b_prefill * prefill + c.b_decode * n_decode + b_context * context
        + c.b_attention * pairs + c.b_past * past
    )  # fmt: skip
    engines[e].run_slope = 0.0 if n_prefill else c.b_context * n_decode
    engines[e].run_host = c.h0 + c.h_seq * n_planned
    engines[e].run_n_host = _host_steps(engines[e].run_first, engines[e].run_slope, engines[e].run_host)
    engines[e].run_steps = 0
    return n_prefill == 0


@kernel
def _host_steps(first, slope, host):
    """How many first steps the host decides: step i takes max(first + i * slope, host)."""
    if first >= host:
        return np.int64(0)
    if slope <= 0:
        return np.int64(1) << 60
    n = np.int64(math.ceil((host - first) / slope))
    while first + n * slope < host:  # the division may round either way
        n += 1
    while n > 0 and first + (n - 1) * slope >= host:
        n -= 1
    return n


@kernel
def _step_end(engines, e, n):
    """When the first n steps of engine e's run have ended."""
    m = engines[e].run_n_host
    if n <= m:
        return engines[e].run_start + n * engines[e].run_host
    pairs = (n - m) * (m + n - 1) // 2
    work = m * engines[e].run_host + (n - m) * engines[e].run_first + pairs * engines[e].run_slope
    return engines[e].run_start + work


@kernel
def _set_end(s, e):
    engines = s.engines
    engines[e].ends_at = _step_end(engines, e, max(engines[e].run_steps, 1))
    engines[e].settled_until = _step_end(engines, e, np.int64(1))


# Runs of decode steps


@kernel
def _repeat(s, e, budget):
    """Repeat the planned decodes for as long as nothing can change who runs.

    A waiting request that did not fit is tried again at the first step that takes or fills a block: between
    those the pool stands still.
    """
    engines, jobs, limits = s.engines, s.jobs, s.limits
    waits = engines[e].n_waiting > 0
    if waits and limits[e].prefill_schedule_interval > 1:
        return
    steps = np.int64(1) << 60
    for i in range(engines[e].n_running):
        r = s.running[e, i]
        steps = min(steps, s.jobs[r].output - jobs[r].emitted)
    steps = _steps_that_fit(s, e, steps)
    if waits and budget > 0 and engines[e].n_running < limits[e].max_num_seqs:
        size = limits[e].block_tokens
        for i in range(engines[e].n_running):
            context = jobs[s.running[e, i]].computed
            steps = min(steps, 1 + min((-context - 1) % size, (-context - 2) % size))
    if steps > 1:
        engines[e].run_steps, engines[e].run_begun, engines[e].run_ended = steps, 1, 0


@kernel
def _steps_that_fit(s, e, steps):
    """How many of the steps find their blocks (the first has them already)."""
    engines, size = s.engines, s.limits[e].block_tokens
    if engines[e].n_running * ((steps - 2) // size + 1) <= s.engines[e].n_free:
        return steps
    if _blocks_after(s, e, steps - 1) <= s.engines[e].n_free:
        return steps
    low, high = np.int64(0), steps - 1  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        if _blocks_after(s, e, middle) <= s.engines[e].n_free:
            low = middle
        else:
            high = middle
    return low + 1


@kernel
def _blocks_after(s, e, step):
    """Blocks taken in steps 1 .. step of a run that starts now."""
    engines, size = s.engines, s.limits[e].block_tokens
    total = 0
    for i in range(engines[e].n_running):
        context = s.jobs[s.running[e, i]].computed
        total += (context + step) // size - context // size
    return total


@kernel
def settle(s, e, now):
    """Bring a run to `now`: blocks of the steps begun before, tokens of the steps that have ended.

    A step that ends at this very instant has ended, and the next has not begun.
    """
    engines = s.engines
    steps = engines[e].run_steps
    if steps == 0 or now < engines[e].settled_until:
        return
    ended = _steps_ended(engines, e, now)
    between = ended > 0 and _step_end(engines, e, ended) == now
    _begin(s, e, ended)
    newly = ended - engines[e].run_ended
    if newly:
        announce(s, e)
    _begin(s, e, min(ended if between else ended + 1, steps))
    engines[e].run_ended = ended
    engines[e].settled_until = now if between else _step_end(engines, e, ended + 1)
    s.engines[e].context_tokens += newly * engines[e].n_running


@kernel
def _steps_ended(engines, e, now):
    """How many steps of the run have ended by `now`: a guess from the time of one step, then one by one."""
    ended, steps = engines[e].run_ended, engines[e].run_steps
    if now >= engines[e].ends_at:
        return steps
    end = _step_end(engines, e, ended)
    next_step = _step_end(engines, e, ended + 1) - end
    if next_step > 0:
        ended = min(ended + np.int64((now - end) / next_step), steps)
    while _step_end(engines, e, ended) > now:
        ended -= 1
    while ended < steps and _step_end(engines, e, ended + 1) <= now:
        ended += 1
    return ended


@kernel
def _begin(s, e, stop):
    """Begin all steps of the run before `stop`: a step on a context of c tokens takes a block when c is whole
    blocks, and fills one when c + 1 is.

    All blocks that are taken come from the front of one queue, whoever takes them, and no two requests of a
    batch of decodes fill blocks of equal content: the order between them does not matter.
    """
    engines, jobs, size = s.engines, s.jobs, s.limits[e].block_tokens
    begun = engines[e].run_begun
    if stop <= begun:
        return
    engines[e].run_begun = stop
    taken = np.int64(0)
    filled = False
    for i in range(engines[e].n_running):
        job = jobs[s.running[e, i]]
        after = job.computed + stop
        while after > job.n_blocks * size:
            job.n_blocks += 1
            taken += 1
        filled = filled or after >= (job.n_named + 1) * size
    if taken:
        take(s, e, taken)
    if filled and s.limits[e].prefix_caching:
        for i in range(engines[e].n_running):
            r = s.running[e, i]
            if jobs[r].computed + stop >= (jobs[r].n_named + 1) * size:
                name_blocks(s, e, r, (jobs[r].computed + stop) // size)


@kernel
def cut(s, e):
    """End a settled run with the step in flight, or at once when a step ends at this very instant."""
    engines = s.engines
    if engines[e].run_steps:
        engines[e].run_steps = engines[e].run_begun
        engines[e].ends_at = _step_end(engines, e, engines[e].run_begun)


# The end of a batch


@kernel
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
        _give_back(s, e, r)
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
