"""The KV blocks of one request: found, taken, given content, given back."""

from __future__ import annotations

import numpy as np

from agentctl.sim.cache import cache_blocks, count_idle, release, take, use
from agentctl.sim.jit import kernel
from agentctl.sim.state import NONE


@kernel
def blocks_for(tokens, block_tokens):
    return (tokens + block_tokens - 1) // block_tokens


@kernel
def look_up(s, e, r, most):
    """(blocks of r's path that engine e holds, at most `most`; how many of these nobody uses)."""
    job = s.jobs[r]
    hit, idle = np.int64(0), np.int64(0)
    for at in range(job.path_start, job.path_stop):
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
def use_path(s, e, r, hit):
    """Use the first `hit` blocks of r's path and remember where the next one lies."""
    job = s.jobs[r]
    left, at = hit, np.int64(job.path_start)
    while left > 0:
        part = min(left, np.int64(s.path[at].length))
        job.top = use(s, e, s.path[at].line, part, np.int64(job.top))
        left -= part
        job.path_offset = part
        if part == s.path[at].length:
            at += 1
            job.path_offset = 0
    job.path_at = at
    job.n_blocks = job.n_named = hit


@kernel
def has_room(job, tokens, size):
    """Whether `tokens` more neither take nor fill a block, as in most steps of a decode."""
    after = job.computed + tokens
    return after <= job.n_blocks * size and after < (job.n_named + 1) * size


@kernel
def allocate(s, e, r, tokens):
    """Take the blocks that `tokens` more need; blocks that they fill can be found from now on."""
    engine, limit, job = s.engines[e], s.limits[e], s.jobs[r]
    size = limit.block_tokens
    after = job.computed + tokens
    new = blocks_for(after, size) - job.n_blocks
    if new > engine.n_free:
        return False
    if new > 0:
        take(s, e, new)
        job.n_blocks += new
    if limit.prefix_caching:
        name_blocks(s, e, r, after // size)
    return True


@kernel
def name_blocks(s, e, r, full):
    """The first `full` blocks of r are full: those without content get theirs."""
    job = s.jobs[r]
    new = full - job.n_named
    at, offset = np.int64(job.path_at), np.int64(job.path_offset)
    if new <= 0:
        return
    job.n_named = full
    while new > 0:
        part = min(new, s.path[at].length - offset)
        job.top = cache_blocks(s, e, s.path[at].line, offset, offset + part, np.int64(job.top))
        new -= part
        offset += part
        if offset == s.path[at].length:
            at += 1
            offset = np.int64(0)
    job.path_at, job.path_offset = at, offset


@kernel
def give_back(s, e, r):
    job = s.jobs[r]
    release(s, e, np.int64(job.top), job.n_blocks - job.n_named)
    job.top, job.n_blocks, job.n_named = NONE, 0, 0
