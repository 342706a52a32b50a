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
from numba import njit

from agentctl.sim.cache import NONE, announce, cache_blocks, count_idle, release, take, use

# Columns of Limits.coefficients
B0, B_PREFILL, B_DECODE, B_CONTEXT, B_CONTEXT_MIXED, B_ATTENTION, B_PAST, H0, H_SEQ = range(9)


@njit(cache=True, nogil=True)
def is_decode(jobs, requests, r):
    """Only the token sampled last is left to compute."""
    return jobs.emitted[r] > 0 and jobs.computed[r] == requests.prompt_tokens[r] + jobs.emitted[r] - 1


@njit(cache=True, nogil=True)
def blocks_for(tokens, block_tokens):
    return (tokens + block_tokens - 1) // block_tokens


@njit(cache=True, nogil=True)
def fits(limits, e, prompt, output):
    """Whether engine e can ever serve a request of this size."""
    size, usable = limits.block_tokens[e], limits.usable_blocks[e]
    if prompt + output > limits.max_model_len[e]:
        return False
    if blocks_for(prompt, size) + limits.watermark_blocks[e] > usable:
        return False
    return blocks_for(prompt + output - 1, size) <= usable


# The queue


@njit(cache=True, nogil=True)
def enqueue(s, requests, e, r, hit):
    """Queue request r, of which the router knows `hit` tokens here; a run has been settled and cut."""
    _wait(s, requests, e, r, False)
    s.counters.context_tokens[e] += requests.prompt_tokens[r]
    s.jobs.path_at[r] = s.content.start[r]
    owe(s, requests, e, r, requests.prompt_tokens[r] - hit)


@njit(cache=True, nogil=True)
def _wait(s, requests, e, r, in_front):
    engines, after = s.engines, s.jobs.next_waiting
    before, then = np.int32(NONE), engines.first_waiting[e]
    if s.limits.by_priority[e]:
        while then != NONE and not _goes_before(s, requests, r, then):
            before, then = then, after[then]
    elif not in_front:
        before, then = engines.last_waiting[e], np.int32(NONE)
    after[r] = then
    if before == NONE:
        engines.first_waiting[e] = r
    else:
        after[before] = r
    if then == NONE:
        engines.last_waiting[e] = r
    engines.n_waiting[e] += 1
    s.counters.waiting_requests[e] += 1


@njit(cache=True, nogil=True)
def _goes_before(s, requests, a, b):
    """(priority, arrival, number) of a is less than that of b."""
    if requests.priority[a] != requests.priority[b]:
        return requests.priority[a] < requests.priority[b]
    if s.results.arrival[a] != s.results.arrival[b]:
        return s.results.arrival[a] < s.results.arrival[b]
    return a < b


@njit(cache=True, nogil=True)
def owe(s, requests, e, r, tokens):
    """What the router may know of the prefill that r still needs."""
    length = requests.prompt_tokens[r] + s.jobs.emitted[r]  # the same since it was last owed anything
    old = s.jobs.owed[r]
    s.counters.pending_prefill_tokens[e] += tokens - old
    pairs = tokens * (2 * length - tokens) - old * (2 * length - old)
    s.counters.pending_prefill_pairs[e] += pairs * 0.5  # whole and half numbers: exact
    s.jobs.owed[r] = tokens


# Planning


@njit(cache=True, nogil=True)
def start(s, requests, e, now):
    """Plan the next batch or run and set `ends_at`; a plan that only preempted is made again at once."""
    engines, limits = s.engines, s.limits
    while True:
        off_beat = engines.n_executed[e] % limits.prefill_schedule_interval[e] != 0
        throttled = off_beat and _any_decode(s, requests, e)
        budget, n_planned, preempted = _plan_running(s, requests, e, throttled)
        if not preempted and not throttled:
            budget, n_planned = _admit(s, requests, e, budget, n_planned, now)
        if n_planned or not preempted:
            break
    if n_planned == 0:
        return
    only_decodes = _time_batch(s, requests, e, now, n_planned)
    if only_decodes and not preempted and n_planned == engines.n_running[e]:
        _repeat(s, requests, e, budget)
    _set_end(s, e)


@njit(cache=True, nogil=True)
def _any_decode(s, requests, e):
    for i in range(s.engines.n_running[e]):
        if is_decode(s.jobs, requests, s.engines.running[e, i]):
            return True
    return False


@njit(cache=True, nogil=True)
def _plan_running(s, requests, e, throttled):
    """Give running requests their tokens in order; returns (budget left, requests planned, any preempted)."""
    engines, jobs = s.engines, s.jobs
    budget, n_planned, preempted, i = s.limits.max_num_batched_tokens[e], 0, False, 0
    engines.planned[e, : engines.n_running[e]] = 0
    while i < engines.n_running[e] and budget > 0:
        r = engines.running[e, i]
        decode = is_decode(jobs, requests, r)
        if throttled and not decode:
            i += 1
            continue
        tokens = np.int64(1)
        if not decode:
            left = requests.prompt_tokens[r] + jobs.emitted[r] - jobs.computed[r]
            tokens = min(_threshold(s, e, left), budget)
        while not _allocate(s, requests, e, r, tokens):
            preempted = True
            place = _victim(s, requests, e)
            victim = engines.running[e, place]
            if place < i:  # under priority it may already be part of this batch
                i -= 1
                budget += engines.planned[e, place]
                n_planned -= engines.planned[e, place] > 0
            _preempt(s, requests, e, place)
            if victim == r:
                return budget, n_planned, preempted
        engines.planned[e, i] = tokens
        budget -= tokens
        n_planned += 1
        i += 1
    return budget, n_planned, preempted


@njit(cache=True, nogil=True)
def _threshold(s, e, tokens):
    limit = s.limits.long_prefill_token_threshold[e]
    alone = s.engines.n_running[e] + s.engines.n_waiting[e] == 1
    return tokens if limit == 0 or alone else min(tokens, limit)


@njit(cache=True, nogil=True)
def _victim(s, requests, e):
    """Place of the request to preempt: the newest, or the worst (priority, arrival)."""
    engines, arrival = s.engines, s.results.arrival
    worst = engines.n_running[e] - 1
    if not s.limits.by_priority[e]:
        return worst
    worst = np.int64(0)
    for i in range(1, engines.n_running[e]):
        a, b = engines.running[e, i], engines.running[e, worst]
        if requests.priority[a] > requests.priority[b] or (
            requests.priority[a] == requests.priority[b] and arrival[a] > arrival[b]
        ):
            worst = np.int64(i)
    return worst


@njit(cache=True, nogil=True)
def _preempt(s, requests, e, place):
    """Free all that the request at `place` holds and put it in front of the queue."""
    engines, jobs = s.engines, s.jobs
    r = engines.running[e, place]
    _leave(s, e, place)
    _give_back(s, e, r)
    jobs.computed[r] = 0
    jobs.path_at[r], jobs.path_offset[r] = s.content.start[r], 0
    s.results.preemptions[r] += 1
    _wait(s, requests, e, r, True)
    owe(s, requests, e, r, requests.prompt_tokens[r] + jobs.emitted[r])


@njit(cache=True, nogil=True)
def _leave(s, e, place):
    """Take a request out of the running list, and its tokens out of the plan."""
    engines = s.engines
    last = engines.n_running[e] - 1
    for i in range(place, last):
        engines.running[e, i] = engines.running[e, i + 1]
        engines.planned[e, i] = engines.planned[e, i + 1]
    engines.planned[e, last] = 0
    engines.n_running[e] = last
    s.counters.running_requests[e] -= 1


@njit(cache=True, nogil=True)
def _give_back(s, e, r):
    jobs = s.jobs
    release(s.cache, e, jobs.top[r], jobs.n_blocks[r] - jobs.n_named[r])
    jobs.top[r], jobs.n_blocks[r], jobs.n_named[r] = NONE, 0, 0


@njit(cache=True, nogil=True)
def _admit(s, requests, e, budget, n_planned, now):
    """Admit waiting requests in order until one does not fit; returns (budget left, requests planned)."""
    engines, jobs, limits = s.engines, s.jobs, s.limits
    size = limits.block_tokens[e]
    while engines.n_waiting[e] and budget > 0 and engines.n_running[e] < limits.max_num_seqs[e]:
        r = engines.first_waiting[e]
        length = requests.prompt_tokens[r] + jobs.emitted[r]
        # the last token is always computed
        hit, idle = _look_up(s, e, r, (length - 1) // size) if limits.prefix_caching[e] else (0, 0)
        tokens = min(_threshold(s, e, length - hit * size), budget)
        whole = length if limits.reserve_full_prompt[e] else hit * size + tokens
        spare = limits.watermark_blocks[e] if engines.n_running[e] else 0
        if blocks_for(whole, size) - hit + idle + spare > s.cache.n_free[e]:
            break
        _use_path(s, e, r, hit)
        jobs.computed[r] = hit * size
        _allocate(s, requests, e, r, tokens)
        if math.isnan(s.results.scheduled[r]):
            s.results.scheduled[r], s.results.hit[r] = now, hit * size
        owe_rest(s, requests, e, r)
        engines.first_waiting[e] = jobs.next_waiting[r]
        if engines.first_waiting[e] == NONE:
            engines.last_waiting[e] = NONE
        engines.n_waiting[e] -= 1
        s.counters.waiting_requests[e] -= 1
        i = engines.n_running[e]
        engines.running[e, i], engines.planned[e, i] = r, tokens
        engines.n_running[e] += 1
        s.counters.running_requests[e] += 1
        budget -= tokens
        n_planned += 1
    return budget, n_planned


@njit(cache=True, nogil=True)
def _look_up(s, e, r, most):
    """(blocks of r's path that engine e holds, at most `most`; how many of these nobody uses)."""
    content, held = s.content, s.cache.held
    hit, idle = np.int64(0), np.int64(0)
    for at in range(content.start[r], content.start[r + 1]):
        line = content.line[at]
        length = min(np.int64(content.length[at]), most - hit)
        here = min(np.int64(held[line, e]), length)
        if here > 0:
            idle += count_idle(s.cache, e, line, here)
        hit += here
        if here < length or hit == most:
            break
    return hit, idle


@njit(cache=True, nogil=True)
def _use_path(s, e, r, hit):
    """Use the first `hit` blocks of r's path and remember where the next one lies."""
    content, jobs = s.content, s.jobs
    left, at = hit, content.start[r]
    while left > 0:
        part = min(left, np.int64(content.length[at]))
        jobs.top[r] = use(s.cache, e, content.line[at], part, jobs.top[r])
        left -= part
        jobs.path_offset[r] = part
        if part == content.length[at]:
            at += 1
            jobs.path_offset[r] = 0
    jobs.path_at[r] = at
    jobs.n_blocks[r] = jobs.n_named[r] = hit


@njit(cache=True, nogil=True)
def _allocate(s, requests, e, r, tokens):
    """Take the blocks that `tokens` more need; blocks that they fill can be found from now on."""
    jobs, size = s.jobs, s.limits.block_tokens[e]
    after = jobs.computed[r] + tokens
    new = blocks_for(after, size) - jobs.n_blocks[r]
    if new > s.cache.n_free[e]:
        return False
    if new > 0:
        take(s.cache, e, new)
        jobs.n_blocks[r] += new
    if s.limits.prefix_caching[e]:
        name_blocks(s, e, r, after // size)
    return True


@njit(cache=True, nogil=True)
def name_blocks(s, e, r, full):
    """The first `full` blocks of r are full: those without content get theirs."""
    content, jobs = s.content, s.jobs
    new = full - jobs.n_named[r]
    at, offset = jobs.path_at[r], np.int64(jobs.path_offset[r])
    if new <= 0:
        return
    jobs.n_named[r] = full
    while new > 0:
        part = min(new, content.length[at] - offset)
        jobs.top[r] = cache_blocks(s.cache, e, content.line[at], offset, offset + part, jobs.top[r])
        new -= part
        offset += part
        if offset == content.length[at]:
            at += 1
            offset = np.int64(0)
    jobs.path_at[r], jobs.path_offset[r] = at, offset


@njit(cache=True, nogil=True)
def owe_rest(s, requests, e, r):
    left = requests.prompt_tokens[r] + s.jobs.emitted[r] - s.jobs.computed[r]
    owe(s, requests, e, r, 0 if is_decode(s.jobs, requests, r) else left)


# Time


@njit(cache=True, nogil=True)
def _time_batch(s, requests, e, now, n_planned):
    """Duration of the planned batch, as a run of one step; returns whether it is all decodes."""
    engines, jobs, c = s.engines, s.jobs, s.limits.coefficients[e]
    prefill = past = n_prefill = context = 0
    pairs = 0.0
    for i in range(engines.n_running[e]):
        tokens = engines.planned[e, i]
        if tokens == 0:
            continue
        r = engines.running[e, i]
        before = jobs.computed[r]
        if is_decode(jobs, requests, r):
            context += before
            continue
        n_prefill += 1
        prefill += tokens
        pairs += tokens * before + tokens * (tokens + 1) / 2
        past += before
    n_decode = n_planned - n_prefill
    b_context = c[B_CONTEXT_MIXED] if n_prefill else c[B_CONTEXT]
    engines.run_start[e] = now
    engines.run_first[e] = (
        c[B0] + c[B_PREFILL] * prefill + c[B_DECODE] * n_decode + b_context * context
        + c[B_ATTENTION] * pairs + c[B_PAST] * past
    )  # fmt: skip
    engines.run_slope[e] = 0.0 if n_prefill else c[B_CONTEXT] * n_decode
    engines.run_host[e] = c[H0] + c[H_SEQ] * n_planned
    engines.run_n_host[e] = _host_steps(engines.run_first[e], engines.run_slope[e], engines.run_host[e])
    engines.run_steps[e] = 0
    return n_prefill == 0


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _step_end(engines, e, n):
    """When the first n steps of engine e's run have ended."""
    m = engines.run_n_host[e]
    if n <= m:
        return engines.run_start[e] + n * engines.run_host[e]
    pairs = (n - m) * (m + n - 1) // 2
    work = m * engines.run_host[e] + (n - m) * engines.run_first[e] + pairs * engines.run_slope[e]
    return engines.run_start[e] + work


@njit(cache=True, nogil=True)
def _set_end(s, e):
    engines = s.engines
    engines.ends_at[e] = _step_end(engines, e, max(engines.run_steps[e], 1))
    engines.step_ends_at[e] = _step_end(engines, e, np.int64(1))


# Runs of decode steps


@njit(cache=True, nogil=True)
def _repeat(s, requests, e, budget):
    """Repeat the planned decodes for as long as nothing can change who runs.

    A waiting request that did not fit is tried again at the first step that takes or fills a block: between
    those the pool stands still.
    """
    engines, jobs, limits = s.engines, s.jobs, s.limits
    waits = engines.n_waiting[e] > 0
    if waits and limits.prefill_schedule_interval[e] > 1:
        return
    steps = np.int64(1) << 60
    for i in range(engines.n_running[e]):
        r = engines.running[e, i]
        steps = min(steps, requests.output_tokens[r] - jobs.emitted[r])
    steps = _steps_that_fit(s, e, steps)
    if waits and budget > 0 and engines.n_running[e] < limits.max_num_seqs[e]:
        size = limits.block_tokens[e]
        for i in range(engines.n_running[e]):
            context = jobs.computed[engines.running[e, i]]
            steps = min(steps, 1 + min((-context - 1) % size, (-context - 2) % size))
    if steps > 1:
        engines.run_steps[e], engines.run_begun[e], engines.run_ended[e] = steps, 1, 0


@njit(cache=True, nogil=True)
def _steps_that_fit(s, e, steps):
    """How many of the steps find their blocks (the first has them already)."""
    engines, size = s.engines, s.limits.block_tokens[e]
    if engines.n_running[e] * ((steps - 2) // size + 1) <= s.cache.n_free[e]:
        return steps
    if _blocks_after(s, e, steps - 1) <= s.cache.n_free[e]:
        return steps
    low, high = np.int64(0), steps - 1  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        if _blocks_after(s, e, middle) <= s.cache.n_free[e]:
            low = middle
        else:
            high = middle
    return low + 1


@njit(cache=True, nogil=True)
def _blocks_after(s, e, step):
    """Blocks taken in steps 1 .. step of a run that starts now."""
    engines, size = s.engines, s.limits.block_tokens[e]
    total = 0
    for i in range(engines.n_running[e]):
        context = s.jobs.computed[engines.running[e, i]]
        total += (context + step) // size - context // size
    return total


@njit(cache=True, nogil=True)
def settle(s, requests, e, now):
    """Bring a run to `now`: blocks of the steps begun before, tokens of the steps that have ended.

    A step that ends at this very instant has ended, and the next has not begun.
    """
    engines = s.engines
    steps = engines.run_steps[e]
    if steps == 0 or now < engines.step_ends_at[e]:
        return
    ended = _steps_ended(engines, e, now)
    between = ended > 0 and _step_end(engines, e, ended) == now
    _begin(s, requests, e, ended)
    newly = ended - engines.run_ended[e]
    if newly:
        announce(s.cache, e)
    _begin(s, requests, e, min(ended if between else ended + 1, steps))
    engines.run_ended[e] = ended
    engines.step_ends_at[e] = now if between else _step_end(engines, e, ended + 1)
    s.counters.context_tokens[e] += newly * engines.n_running[e]


@njit(cache=True, nogil=True)
def _steps_ended(engines, e, now):
    """How many steps of the run have ended by `now`, by bisection over their ends."""
    low, high = engines.run_ended[e], engines.run_steps[e]
    while low < high:
        middle = (low + high + 1) // 2
        if _step_end(engines, e, middle) <= now:
            low = middle
        else:
            high = middle - 1
    return low


@njit(cache=True, nogil=True)
def _begin(s, requests, e, stop):
    """Begin all steps of the run before `stop`: a step on a context of c tokens takes a block when c is whole
    blocks, and fills one when c + 1 is.

    All blocks that are taken come from the front of one queue, whoever takes them, and no two requests of a
    batch of decodes fill blocks of equal content: the order between them does not matter.
    """
    engines, jobs, size = s.engines, s.jobs, s.limits.block_tokens[e]
    begun = engines.run_begun[e]
    if stop <= begun:
        return
    engines.run_begun[e] = stop
    taken = 0
    for i in range(engines.n_running[e]):
        r = engines.running[e, i]
        new = blocks_for(jobs.computed[r] + stop, size) - jobs.n_blocks[r]
        if new > 0:
            jobs.n_blocks[r] += new
            taken += new
    if taken:
        take(s.cache, e, taken)
    if s.limits.prefix_caching[e]:
        for i in range(engines.n_running[e]):
            r = engines.running[e, i]
            name_blocks(s, e, r, (jobs.computed[r] + stop) // size)


@njit(cache=True, nogil=True)
def cut(s, e):
    """End a settled run with the step in flight, or at once when a step ends at this very instant."""
    engines = s.engines
    if engines.run_steps[e]:
        engines.run_steps[e] = engines.run_begun[e]
        engines.ends_at[e] = _step_end(engines, e, engines.run_begun[e])


# The end of a batch


@njit(cache=True, nogil=True)
def finish(s, requests, e, now, ended):
    """Apply the batch or run that ends now. Fills `ended` with the requests that ended, in batch order, and
    returns their number."""
    engines, jobs, counters = s.engines, s.jobs, s.counters
    settle(s, requests, e, now)
    announce(s.cache, e)
    steps = engines.run_steps[e]
    n_ended = 0
    kept = 0
    for i in range(engines.n_running[e]):
        r = engines.running[e, i]
        if steps:
            jobs.computed[r] += steps
            jobs.emitted[r] += steps
        elif engines.planned[e, i]:
            _apply(s, requests, e, r, engines.planned[e, i], now)
        if jobs.emitted[r] == requests.output_tokens[r]:
            ended[n_ended] = r
            n_ended += 1
        else:
            engines.running[e, kept] = r
            kept += 1
    engines.n_running[e] = counters.running_requests[e] = kept
    for k in range(n_ended):
        r = ended[k]
        _give_back(s, e, r)
        counters.context_tokens[e] -= requests.prompt_tokens[r] + jobs.emitted[r]
    engines.n_executed[e] += max(steps, 1)
    engines.run_steps[e] = 0
    engines.ends_at[e] = math.inf
    return n_ended


@njit(cache=True, nogil=True)
def _apply(s, requests, e, r, tokens, now):
    """The batch has run: `tokens` of r computed, and one emitted when nothing is left."""
    jobs = s.jobs
    was_decode = is_decode(jobs, requests, r)
    if not was_decode:
        s.results.prefilled[r] += tokens
    jobs.computed[r] += tokens
    length = requests.prompt_tokens[r] + jobs.emitted[r]
    if not was_decode:
        owe_rest(s, requests, e, r)
    if jobs.computed[r] < length:
        return
    jobs.emitted[r] += 1
    s.counters.context_tokens[e] += 1
    if jobs.emitted[r] == 1:
        s.results.first_token[r] = now
        s.counters.inflight_prefill_tokens[e] -= requests.prompt_tokens[r] - jobs.dispatch_hit[r]
