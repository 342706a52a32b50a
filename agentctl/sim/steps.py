"""Time: how long a batch takes, and runs of decode steps that are taken at once.

Batches that can only repeat (decodes, nobody to admit) become one run, whose step times are an arithmetic
series bounded below by the host's. `settle` brings a run to an instant, `cut` ends it at the next step.
"""

from __future__ import annotations

import math

import numpy as np

from agentctl.sim.cache import take
from agentctl.sim.holding import name_blocks
from agentctl.sim.jit import kernel, rule
from agentctl.sim.news import announce
from agentctl.sim.queue import is_decode
from agentctl.sim.sight import SEES_HITS, SEES_PROGRESS, SEES_STEPS
from agentctl.sim.state import NONE


@kernel
def time_batch(s, e, now, n_planned):
    """Duration of the planned batch, as a run of one step; returns whether it is all decodes."""
    engine, c = s.engines[e], s.limits[e]
    prefill = past = n_prefill = context = 0
    pairs = 0.0
    for i in range(engine.n_running):
        tokens = s.planned[e, i]
        if tokens == 0:
            continue
        job = s.jobs[s.running[e, i]]
        before = job.computed
        if is_decode(job):
            context += before
            continue
        n_prefill += 1
        prefill += tokens
        pairs += tokens * before + tokens * (tokens + 1) / 2
        past += before
    n_decode = n_planned - n_prefill
    b_context = c.b_context_mixed if n_prefill else c.b_context
    engine.run_start = now
    engine.run_first = (
        c.b0 + c.b_prefill * prefill + c.b_decode * n_decode + b_context * context
        + c.b_attention * pairs + c.b_past * past
    )  # fmt: skip
    engine.run_slope = 0.0 if n_prefill else c.b_context * n_decode
    engine.run_host = c.h0 + c.h_seq * n_planned
    engine.run_n_host = host_steps(engine.run_first, engine.run_slope, engine.run_host)
    engine.run_steps = 0
    return n_prefill == 0


@kernel
def host_steps(first, slope, host):
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
def step_end(engine, n):
    """When the first n steps of engine e's run have ended."""
    m = engine.run_n_host
    if n <= m:
        return engine.run_start + n * engine.run_host
    pairs = (n - m) * (m + n - 1) // 2
    work = m * engine.run_host + (n - m) * engine.run_first + pairs * engine.run_slope
    return engine.run_start + work


@kernel
def last_step(engine):
    """Seconds of the last step of a run."""
    return max(engine.run_first + (engine.run_steps - 1) * engine.run_slope, engine.run_host)


@kernel
def set_end(s, e):
    engine = s.engines[e]
    s.ends_at[e] = step_end(engine, max(engine.run_steps, 1))
    engine.settled_until = step_end(engine, np.int64(1))
    _set_silence(s, e)


@kernel
def _set_silence(s, e):
    """Until when the index will hear nothing of a settled run: where nothing is to be told already, blocks
    are first taken or filled some steps later, and told of at the end of that step."""
    engine, size = s.engines[e], s.limits[e].block_tokens
    engine.silent_until = engine.settled_until
    if engine.run_steps == 0 or engine.first_news != NONE or s.limits[e].is_sglang:
        return
    if s.router[0].sees & (SEES_HITS | SEES_PROGRESS | SEES_STEPS) != SEES_HITS:
        return  # nobody asks
    step = engine.run_steps
    for i in range(engine.n_running):
        job = s.jobs[s.running[e, i]]
        step = min(step, min(job.n_blocks * size + 1, (job.n_named + 1) * size) - job.computed)
    engine.silent_until = max(engine.silent_until, step_end(engine, step))


@kernel
def repeat(s, e, budget, is_tried, n_free):
    """Repeat the planned decodes for as long as nothing can change who runs, and they take no more than
    `n_free` blocks.

    A waiting request that did not fit (`is_tried`) is tried again at the first step that takes or fills a
    block: between those the pool stands still.
    """
    engine, limit, jobs = s.engines[e], s.limits[e], s.jobs
    if is_tried and limit.prefill_schedule_interval > 1:
        return
    steps = np.int64(1) << 60
    for i in range(engine.n_running):
        job = jobs[s.running[e, i]]
        steps = min(steps, job.output - job.emitted)
    if is_tried and budget > 0 and engine.n_running < limit.max_num_seqs:
        size = limit.block_tokens
        for i in range(engine.n_running):
            context = jobs[s.running[e, i]].computed
            steps = min(steps, 1 + min((-context - 1) % size, (-context - 2) % size))
            if steps == 1:
                return
    steps = steps_that_fit(s, e, steps, n_free)
    if steps > 1:
        engine.run_steps, engine.run_begun, engine.run_ended = steps, 1, 0


@kernel
def steps_that_fit(s, e, steps, n_free):
    """How many of the steps find their blocks among `n_free` (the first has them already)."""
    engine, size = s.engines[e], s.limits[e].block_tokens
    if engine.n_running * ((steps - 2) // size + 1) <= n_free:
        return steps
    if _blocks_after(s, e, steps - 1) <= n_free:
        return steps
    low, high = np.int64(0), steps - 1  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        if _blocks_after(s, e, middle) <= n_free:
            low = middle
        else:
            high = middle
    return low + 1


@kernel
def _blocks_after(s, e, step):
    """Blocks taken in steps 1 .. step of a run that starts now."""
    engine, jobs, size = s.engines[e], s.jobs, s.limits[e].block_tokens
    total = 0
    for i in range(engine.n_running):
        context = jobs[s.running[e, i]].computed
        total += (context + step) // size - context // size
    return total


@rule
def settle(s, e, now):
    """Bring a run to `now`: blocks of the steps begun before, tokens of the steps that have ended."""
    first, stop, ended = steps_due(s, e, now)
    for n in range(first, stop):
        _begin(s, e, n)
        announce_step(s, e, n, ended)
    if stop > first:
        have_ended(s, e, now, ended, stop)
    return 0


@kernel
def steps_due(s, e, now):
    """What a run must make up for at `now`: (first, stop, ended). For each n from first to stop - 1 all steps
    before step n are to begin; `ended` steps have ended. Nothing is due where first = stop.

    A step that ends at this very instant has ended, and the next has not begun.
    """
    engine = s.engines[e]
    if engine.run_steps == 0 or now < engine.settled_until:
        return np.int64(0), np.int64(0), np.int64(0)
    ended = steps_ended(engine, now)
    between = ended > 0 and step_end(engine, ended) == now
    # with a delayed index it matters which step an announcement is of; otherwise all are made up for at once
    first = engine.run_ended + 1 if s.router[0].index_delay > 0 else ended
    return first, min(ended if between else ended + 1, engine.run_steps) + 1, ended


@kernel
def announce_step(s, e, n, ended):
    """The first n steps have begun: what they did is announced at their end, once they have ended."""
    if s.engines[e].run_ended < n <= ended:
        announce(s, e, step_end(s.engines[e], n))


@kernel
def have_ended(s, e, now, ended, stop):
    engine = s.engines[e]
    tokens = (ended - engine.run_ended) * engine.n_running
    engine.context_tokens += tokens
    engine.emitted_tokens += tokens
    engine.run_ended = ended
    engine.settled_until = now if stop == ended + 1 else step_end(engine, ended + 1)
    _set_silence(s, e)


@kernel
def steps_ended(engine, now):
    """How many steps of the run have ended by `now`: a guess from the time of one step, then one by one."""
    ended, steps = engine.run_ended, engine.run_steps
    if now >= step_end(engine, steps):
        return steps
    end = step_end(engine, ended)
    next_step = step_end(engine, ended + 1) - end
    if next_step > 0:
        ended = min(ended + np.int64((now - end) / next_step), steps)
    while step_end(engine, ended) > now:
        ended -= 1
    while ended < steps and step_end(engine, ended + 1) <= now:
        ended += 1
    return ended


@kernel
def _begin(s, e, stop):
    """Begin all steps of the run before `stop`: a step on a context of c tokens takes a block when c is whole
    blocks, and fills one when c + 1 is.

    All blocks that are taken come from the front of one queue, whoever takes them, and no two requests of a
    batch of decodes fill blocks of equal content: the order between them does not matter.
    """
    engine, limit, jobs = s.engines[e], s.limits[e], s.jobs
    size = limit.block_tokens
    begun = engine.run_begun
    if stop <= begun:
        return
    engine.run_begun = stop
    taken = np.int64(0)
    filled = False
    for i in range(engine.n_running):
        job = jobs[s.running[e, i]]
        after = job.computed + stop
        while after > job.n_blocks * size:
            job.n_blocks += 1
            taken += 1
        filled = filled or after >= (job.n_named + 1) * size
    if taken:
        take(s, e, taken)
    if filled and limit.prefix_caching:
        for i in range(engine.n_running):
            r = s.running[e, i]
            after = jobs[r].computed + stop
            if after >= (jobs[r].n_named + 1) * size:
                name_blocks(s, e, r, after // size)


@kernel
def cut(s, e):
    """End a settled run with the step in flight, or at once when a step ends at this very instant."""
    engine = s.engines[e]
    if engine.run_steps:
        engine.run_steps = engine.run_begun
        s.ends_at[e] = step_end(engine, engine.run_begun)
