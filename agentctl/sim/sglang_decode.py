"""Decodes of SGLang: retraction when pages run out, and runs of equal decodes taken at once.

Every decode first evicts until each request could have a new page, whether it needs one or not. In a run
nothing else touches the tree, so its steps can be made up for together: the last one wants the most room.
"""

from __future__ import annotations

import numpy as np

from agentctl.sim.holding import blocks_for
from agentctl.sim.jit import kernel, rule
from agentctl.sim.queue import owe, wait_in
from agentctl.sim.sglang_holding import extend, release, take_pages
from agentctl.sim.sglang_tree import make_room
from agentctl.sim.state import OUT_OF_KV
from agentctl.sim.steps import announce_step, have_ended, steps_due, steps_that_fit

LAST_SHARE, DECAY_STEPS = 0.14, 600  # of the new-token ratio's first value; decodes in which it falls so far
RETRACT_STEPS = 20  # decodes that a retraction wants to leave room for


@kernel
def plan_decode(s, e):
    """Plan one token for every running request; returns how many. (A prompt partly done would go on.)"""
    engine = s.engines[e]
    if engine.n_decoding == 0:
        return np.int64(0)
    has_left = engine.unnoticed > 0
    engine.unnoticed = 0
    if _can_decode(s, e, engine.n_decoding):
        lower_ratio(s, e, np.int64(1))
    else:
        has_left = _retract(s, e) or has_left
    if has_left:
        engine.is_full = False
    make_room(s, e, engine.n_decoding)  # as if each needed a page
    for i in range(engine.n_decoding):
        s.planned[e, i] = 1
        extend(s, e, s.running[e, i], np.int64(1))
    return engine.n_decoding


@kernel
def lower_ratio(s, e, n_decodes):
    """The share of outputs that is kept back falls with every decode."""
    if n_decodes > 0:
        first = s.limits[e].first_ratio
        fall = (1 - LAST_SHARE) * first / DECAY_STEPS
        s.engines[e].ratio = max(s.engines[e].ratio - n_decodes * fall, LAST_SHARE * first)


@kernel
def _can_decode(s, e, n):
    """Whether the first n find the pages that their next tokens need."""
    size, wanted = s.limits[e].block_tokens, np.int64(0)
    for i in range(n):
        wanted += s.jobs[s.running[e, i]].computed % size == 0
    return make_room(s, e, wanted)


# Retraction


@kernel
def _retract(s, e):
    """Drop those with the fewest outputs, then the longest prompt, until the others can decode: whether any.

    One always stays.
    """
    engine, size = s.engines[e], s.limits[e].block_tokens
    _order(s, e)
    n = engine.n_decoding
    has_room = False
    while n > 1 and not has_room:
        n -= 1
        _drop(s, e, s.running[e, n])
        make_room(s, e, blocks_for(RETRACT_STEPS * n, size))
        has_room = _can_decode(s, e, n)
    if not has_room:
        s.counts[OUT_OF_KV] += 1
    retracted = n < engine.n_decoding
    engine.n_decoding = engine.n_running = engine.running_requests = n
    emitted, output = np.int64(0), np.int64(0)
    for i in range(n):
        emitted += s.jobs[s.running[e, i]].emitted
        output += s.jobs[s.running[e, i]].output
    engine.ratio = min(1.0, (emitted + RETRACT_STEPS * n) / (output + 1))
    return retracted


@kernel
def _order(s, e):
    """Most outputs first, then the shortest prompt; equal ones as they are. Mostly they are in order."""
    for i in range(1, s.engines[e].n_decoding):
        r = s.running[e, i]
        job = s.jobs[r]
        place = i
        while place > 0:
            other = s.jobs[s.running[e, place - 1]]
            if other.emitted > job.emitted or (other.emitted == job.emitted and other.prompt <= job.prompt):
                break
            s.running[e, place] = s.running[e, place - 1]
            place -= 1
        s.running[e, place] = r


@kernel
def _drop(s, e, r):
    """Request r goes back to the end of the queue and starts again."""
    release(s, e, r)
    s.jobs[r].computed = 0
    s.jobs[r].preemptions += 1
    wait_in(s, e, r)
    owe(s, e, r, s.jobs[r].prompt + s.jobs[r].emitted)


# Runs


@kernel
def repeat(s, e):
    """Repeat the planned decodes for as long as nothing can change who runs."""
    engine = s.engines[e]
    if engine.n_waiting and not engine.is_full:
        return
    steps = np.int64(1) << 60
    for i in range(engine.n_decoding):
        job = s.jobs[s.running[e, i]]
        steps = min(steps, job.output - job.emitted)
    steps = steps_that_fit(s, e, steps, s.engines[e].n_free)
    if steps > 1:
        engine.run_steps, engine.run_begun, engine.run_ended = steps, 1, 0


@rule
def settle(s, e, now):
    """Bring a run to `now`."""
    first, stop, ended = steps_due(s, e, now)
    for n in range(first, stop):
        _begin(s, e, n)
        announce_step(s, e, n, ended)
    if stop > first:
        have_ended(s, e, now, ended, stop)
    return 0


@kernel
def _begin(s, e, stop):
    """Begin all steps of the run before `stop`: a step on a context of c tokens takes a page when c is whole
    pages."""
    engine, size = s.engines[e], s.limits[e].block_tokens
    if stop <= engine.run_begun:
        return
    engine.run_begun = stop
    taken, in_last = np.int64(0), np.int64(0)
    for i in range(engine.n_running):
        job = s.jobs[s.running[e, i]]
        before = job.n_blocks
        job.n_blocks = blocks_for(job.computed + stop, size)
        taken += job.n_blocks - before
        in_last += (job.computed + stop - 1) % size == 0
    make_room(s, e, taken - in_last + engine.n_running)
    take_pages(s, e, taken)
