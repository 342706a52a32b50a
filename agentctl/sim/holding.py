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
def use_path(s, e, r, hit):
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
def allocate(s, e, r, tokens):
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
def give_back(s, e, r):
    jobs = s.jobs
    release(s, e, jobs[r].top, jobs[r].n_blocks - jobs[r].n_named)
    jobs[r].top, jobs[r].n_blocks, jobs[r].n_named = NONE, 0, 0
