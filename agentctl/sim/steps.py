"""Time: how long a batch takes, and runs of decode steps that are taken at once.

Batches that can only repeat (decodes, nobody to admit) become one run, whose step times are an arithmetic
series bounded below by the host's. `settle` brings a run to an instant, `cut` ends it at the next step.
"""

from __future__ import annotations

import math

import numpy as np

from agentctl.sim.cache import announce, take
from agentctl.sim.holding import name_blocks
from agentctl.sim.jit import entry, kernel
from agentctl.sim.queue import is_decode


@kernel
def time_batch(s, e, now, n_planned):
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
    engines[e].run_n_host = host_steps(engines[e].run_first, engines[e].run_slope, engines[e].run_host)
    engines[e].run_steps = 0
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
def step_end(engines, e, n):
    """When the first n steps of engine e's run have ended."""
    m = engines[e].run_n_host
    if n <= m:
        return engines[e].run_start + n * engines[e].run_host
    pairs = (n - m) * (m + n - 1) // 2
    work = m * engines[e].run_host + (n - m) * engines[e].run_first + pairs * engines[e].run_slope
    return engines[e].run_start + work


@kernel
def set_end(s, e):
    engines = s.engines
    engines[e].ends_at = step_end(engines, e, max(engines[e].run_steps, 1))
    engines[e].settled_until = step_end(engines, e, np.int64(1))


@kernel
def repeat(s, e, budget):
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


@entry
def settle(s, e, now):
    """Bring a run to `now`: blocks of the steps begun before, tokens of the steps that have ended.

    A step that ends at this very instant has ended, and the next has not begun.
    """
    engines = s.engines
    steps = engines[e].run_steps
    if steps == 0 or now < engines[e].settled_until:
        return 0
    ended = steps_ended(engines, e, now)
    between = ended > 0 and step_end(engines, e, ended) == now
    _begin(s, e, ended)
    newly = ended - engines[e].run_ended
    if newly:
        announce(s, e)
    _begin(s, e, min(ended if between else ended + 1, steps))
    engines[e].run_ended = ended
    engines[e].settled_until = now if between else step_end(engines, e, ended + 1)
    s.engines[e].context_tokens += newly * engines[e].n_running
    return 0


@kernel
def steps_ended(engines, e, now):
    """How many steps of the run have ended by `now`: a guess from the time of one step, then one by one."""
    ended, steps = engines[e].run_ended, engines[e].run_steps
    if now >= engines[e].ends_at:
        return steps
    end = step_end(engines, e, ended)
    next_step = step_end(engines, e, ended + 1) - end
    if next_step > 0:
        ended = min(ended + np.int64((now - end) / next_step), steps)
    while step_end(engines, e, ended) > now:
        ended -= 1
    while ended < steps and step_end(engines, e, ended + 1) <= now:
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
        engines[e].ends_at = step_end(engines, e, engines[e].run_begun)
