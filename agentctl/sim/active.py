"""The distinct prompt blocks of a gateway's requests in flight, on each engine.

On a line every request in flight covers a beginning, so what they cover together is as long as the longest.
Kept only for policies that ask for `active_blocks` (Dynamo's router counts so).
"""

from __future__ import annotations

import numpy as np

from agentctl.sim.jit import kernel
from agentctl.sim.state import NONE


@kernel
def count_active(s, r, g):
    """Fill in the distinct whole prompt blocks on every engine if request r were added."""
    job, size = s.jobs[r], s.limits[0].block_tokens
    for e in range(s.engines.size):
        s.routes[g, e].active_blocks = s.routes[g, e].n_active
    left = job.prompt // size
    for at in range(job.path_start, job.path_stop):
        line, length = s.path[at].line, min(np.int64(s.path[at].length), left)
        if length == 0:
            break
        left -= length
        for e in range(s.engines.size):
            s.routes[g, e].active_blocks += max(length - s.cover[g, line, e].length, 0)


@kernel
def add_active(s, r, e):
    """Request r is in flight on engine e from now on."""
    job, aside, size = s.jobs[r], s.asides[r], s.limits[0].block_tokens
    route = s.routes[job.gateway, e]
    aside.previous_active, aside.next_active = NONE, route.first_active
    if route.first_active != NONE:
        s.asides[route.first_active].previous_active = r
    route.first_active = r
    left = job.prompt // size
    for at in range(job.path_start, job.path_stop):
        length = min(np.int64(s.path[at].length), left)
        if length == 0:
            break
        left -= length
        cover = s.cover[job.gateway, s.path[at].line, e]
        route.n_active += _extend(cover, length)


@kernel
def _extend(cover, length):
    """One more request covers the first `length` blocks of a line; returns how many nobody covered before."""
    new = max(length - cover.length, 0)
    if new:
        cover.length, cover.n_longest = length, 1
    elif length == cover.length:
        cover.n_longest += 1
    return new


@kernel
def drop_active(s, r, e):
    """Request r has ended."""
    job, aside, size = s.jobs[r], s.asides[r], s.limits[0].block_tokens
    route = s.routes[job.gateway, e]
    if aside.previous_active == NONE:
        route.first_active = aside.next_active
    else:
        s.asides[aside.previous_active].next_active = aside.next_active
    if aside.next_active != NONE:
        s.asides[aside.next_active].previous_active = aside.previous_active
    left = job.prompt // size
    for at in range(job.path_start, job.path_stop):
        length = min(np.int64(s.path[at].length), left)
        if length == 0:
            break
        left -= length
        cover = s.cover[job.gateway, s.path[at].line, e]
        if length == cover.length:
            cover.n_longest -= 1
            if cover.n_longest == 0:
                cover.length = 0
                _longest_left(s, route.first_active, s.path[at].line, cover)
                route.n_active -= length - cover.length


@kernel
def _longest_left(s, first, line, cover):
    """What the requests from `first` on cover of a line."""
    size = s.limits[0].block_tokens
    q = first
    while q != NONE:
        other = s.jobs[q]
        left = other.prompt // size
        for at in range(other.path_start, other.path_stop):
            length = min(np.int64(s.path[at].length), left)
            if length == 0:
                break
            left -= length
            if s.path[at].line == line:
                _extend(cover, length)
                break
        q = np.int64(s.asides[q].next_active)
