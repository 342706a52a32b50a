"""Which prompts SGLang computes next: the one partly done first, then waiting ones while budgets last.

A prefill batch runs alone, or with mixed chunks together with a token of every decode. What one may still
take is kept in its engine's record: `chunk_left` and `input_left` new tokens; `reserved`, tokens promised to
decodes and to this batch, outputs included; `reserved_now`, those this batch takes at once.
Source: sglang 0.5.23, srt/managers/schedule_policy.py (PrefillAdder) and scheduler.py.
"""

from __future__ import annotations

import math

import numpy as np

from agentctl.sim.holding import blocks_for
from agentctl.sim.jit import kernel
from agentctl.sim.queue import leave_queue, owe_rest
from agentctl.sim.sglang_holding import extend
from agentctl.sim.sglang_tree import lock, make_room, match, unlock
from agentctl.sim.state import NO_LIMIT, NONE

MOST_CHARGED = 4096  # tokens of output that an admission looks ahead

GO, NO_MEMORY, NO_BUDGET = range(3)  # what an admission says about the next one


@kernel
def plan_prefill(s, e, now):
    """Plan a prefill batch if there is one to run; returns how many prompts are in it."""
    engine, room = s.engines[e], s.limits[e].max_num_seqs
    room -= engine.n_decoding + engine.unnoticed
    if engine.chunked == NONE:
        if room <= 0 and engine.n_waiting:
            engine.is_full = True
        if engine.is_full or engine.n_waiting == 0:
            return np.int64(0)
    _open_budget(s, e)
    if engine.chunked != NONE:
        _continue(s, e)
    while engine.n_waiting:
        if engine.n_prefilling >= room:
            engine.is_full = True
        if engine.is_full:
            break
        verdict = _admit(s, e, now)
        if verdict == NO_MEMORY:
            engine.is_full = True
        if verdict != GO:
            break
    if engine.n_prefilling:
        _take_pages(s, e)
    return engine.n_prefilling


@kernel
def _open_budget(s, e):
    engine, limits = s.engines[e], s.limits[e]
    decodes, charged = np.int64(0), np.int64(0)
    if limits.mixed_chunk:
        decodes = engine.n_decoding + engine.unnoticed
    for i in range(engine.n_decoding):
        job = s.jobs[s.running[e, i]]
        charged += min(job.output - job.emitted, MOST_CHARGED)
    ratio = 1.0 if limits.ignore_eos else engine.ratio
    engine.n_prefilling = 0
    engine.chunk_left = limits.chunked_prefill_size - decodes
    engine.input_left = limits.max_prefill_tokens - decodes
    engine.reserved = decodes + charged * ratio
    engine.reserved_now = decodes


@kernel
def _left(s, e):
    return s.engines[e].n_free * s.limits[e].block_tokens - s.engines[e].reserved


@kernel
def _continue(s, e):
    """The partly computed prompt must go on, even if the reserve says no.

    A batch with mixed chunks has room for it: who joined the decodes since took at least a token of the batch
    in which it last got its own.
    """
    engine, job = s.engines[e], s.jobs[s.engines[e].chunked]
    most = min(engine.chunk_left, np.int64(math.floor(_left(s, e))))
    if most <= 0:
        most = engine.chunk_left
    rest = job.prompt + job.emitted - job.computed
    tokens = min(rest, most)
    s.planned[e, engine.n_decoding] = tokens
    _charge(s, e, engine.chunked, tokens, tokens == rest)
    if tokens == rest:
        engine.chunked = NONE


@kernel
def _admit(s, e, now):
    """Take the first waiting request if it fits; what it hits is locked before its cost is weighed."""
    engine, limits, r = s.engines[e], s.limits[e], s.engines[e].first_waiting
    job, size = s.jobs[r], limits.block_tokens
    length = job.prompt + job.emitted
    node, hit = match(s, e, r, (length - 1) // size if limits.prefix_caching else np.int64(0))
    lock(s, e, node)
    uncached = length - hit * size
    ahead = min(job.output - job.emitted, MOST_CHARGED)
    if uncached + ahead + size >= _left(s, e):
        unlock(s, e, node)
        return NO_MEMORY
    tokens = _fitting(s, e, uncached)
    if tokens <= 0:
        unlock(s, e, node)
        return NO_BUDGET
    leave_queue(s, e, np.int64(NONE), s.engines[e].first_waiting)
    job.top, job.n_blocks, job.n_named, job.computed = node, hit, hit, hit * size
    if math.isnan(job.scheduled):
        job.scheduled, job.hit = now, hit * size
    owe_rest(s, e, r)
    s.running[e, engine.n_running], s.planned[e, engine.n_running] = r, tokens
    engine.n_running += 1
    engine.running_requests += 1
    if tokens < uncached:
        engine.chunked = r
    return _charge(s, e, r, tokens, tokens == uncached)


@kernel
def _fitting(s, e, uncached):
    """Tokens of a prompt that the budgets take now: all, or whole pages of a chunk; 0: not now."""
    engine, limits, size = s.engines[e], s.limits[e], s.limits[e].block_tokens
    paged = blocks_for(uncached, size) * size
    if limits.chunked_prefill_size == NO_LIMIT:  # a prompt too long for the input budget goes first or not
        return uncached if paged < engine.input_left or engine.n_prefilling == 0 else np.int64(0)
    if paged > engine.chunk_left:
        return engine.chunk_left // size * size
    return uncached


@kernel
def _charge(s, e, r, tokens, is_whole):
    """Whole pages and one more; all its output, unless the prompt goes on after this batch."""
    engine, size = s.engines[e], s.limits[e].block_tokens
    paged = blocks_for(tokens, size) * size
    engine.n_prefilling += 1
    engine.chunk_left -= paged
    engine.input_left -= paged
    engine.reserved_now += paged + size
    engine.reserved += paged + size
    if is_whole:
        engine.reserved += min(s.jobs[r].output, MOST_CHARGED)
    to_be_had = engine.n_free * size
    if to_be_had <= engine.reserved or to_be_had <= engine.reserved_now:
        return NO_MEMORY
    return NO_BUDGET if engine.chunk_left <= 0 or engine.input_left <= 0 else GO


@kernel
def _take_pages(s, e):
    """Pages for the whole batch at once: identical prompts all compute, none finds the other."""
    engine, limits, size = s.engines[e], s.limits[e], s.limits[e].block_tokens
    first, stop = engine.n_decoding, engine.n_running
    wanted = np.int64(0)
    for i in range(first, stop):
        wanted += s.planned[e, i]
    if size > 1:
        wanted += size * engine.n_prefilling  # as if each needed one more
    make_room(s, e, blocks_for(wanted, size))
    for i in range(first, stop):
        extend(s, e, s.running[e, i], s.planned[e, i])
    for i in range(first):
        s.planned[e, i] = 0
    if limits.mixed_chunk:
        make_room(s, e, first)
        for i in range(first):
            s.planned[e, i] = 1
            extend(s, e, s.running[e, i], np.int64(1))
        _prompts_first(s, e)
        engine.n_decoding = engine.unnoticed = 0  # until the batch ends they belong to it


@kernel
def _prompts_first(s, e):
    """Put the prompts of a mixed batch before its decodes, each kind in order: three reversals."""
    n, n_decoding = s.engines[e].n_running, s.engines[e].n_decoding
    _reverse(s, e, np.int64(0), n_decoding)
    _reverse(s, e, n_decoding, n)
    _reverse(s, e, np.int64(0), n)


@kernel
def _reverse(s, e, low, high):
    while low < high - 1:
        high -= 1
        s.running[e, low], s.running[e, high] = s.running[e, high], s.running[e, low]
        s.planned[e, low], s.planned[e, high] = s.planned[e, high], s.planned[e, low]
        low += 1
