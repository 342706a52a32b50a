"""What the router's precise index hears of blocks that engines have or have lost.

A line of which there is something to tell is chained from the engine until the batch ends; then, or a delay
later, the index knows how many of its first blocks the engine held. Everything is modified in place.
"""

from __future__ import annotations

import numpy as np

from agentctl.sim.jit import kernel
from agentctl.sim.state import NO_NEWS, NONE


@kernel
def tell(s, e, line):
    """The router's index will hear of this line when the batch ends."""
    engine = s.engines[e]
    if np.int64(s.lines[line, e].news) == NO_NEWS:
        s.lines[line, e].news = engine.first_news
        engine.first_news = line


@kernel
def announce(s, e, now):
    """Bring the router's index of engine e up to what the engine holds, at once or after its delay."""
    engine = s.engines[e]
    line = engine.first_news
    while line != NONE:
        _announce_held(s, e, line, np.int64(s.lines[line, e].held), now)
        after = np.int64(s.lines[line, e].news)
        s.lines[line, e].news = NO_NEWS
        line = after
    engine.first_news = NONE


@kernel
def _announce_held(s, e, line, held, now):
    router = s.router[0]
    if router.index_delay == 0:
        s.known[line, e] = held
    elif router.n_late == s.late.size:
        router.lost_late += 1
    else:
        _announce_late(s, e, line, held, now)


@kernel
def _announce_late(s, e, line, held, at):
    """In order of time: a run is settled after other engines have announced what they did since."""
    router, late = s.router[0], s.late
    place = router.first_late + router.n_late
    router.n_late += 1
    while place > router.first_late and late[(place - 1) % late.size].at > at:
        before, here = late[(place - 1) % late.size], late[place % late.size]
        here.at, here.engine, here.line, here.held = before.at, before.engine, before.line, before.held
        place -= 1
    here = late[place % late.size]
    here.at, here.engine, here.line, here.held = at, e, line, held


@kernel
def announce_loaded(s, e, r, named, now):
    """The router's index hears of r's blocks from `named` on, which a load has brought. What the batch in
    flight does to the same lines it hears at the batch's end: until then there may be a gap before them."""
    job, before = s.jobs[r], np.int64(0)
    for at in range(job.path_start, job.path_stop):
        line, length = np.int64(s.path[at].line), np.int64(s.path[at].length)
        low, high = max(named - before, 0), min(job.n_named - before, length)
        if high <= 0:
            break
        if low < high:
            known = _last_announced(s, e, line)
            if low <= known < high:
                _announce_held(s, e, line, high, now)
        before += length


@kernel
def _last_announced(s, e, line):
    """What the router's index has heard of the line, or is going to."""
    router, late = s.router[0], s.late
    for k in range(router.n_late - 1, -1, -1):
        one = late[(router.first_late + k) % late.size]
        if one.engine == e and one.line == line:
            return np.int64(one.held)
    return np.int64(s.known[line, e])
