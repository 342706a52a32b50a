"""What gateways keep by themselves: an index of what they sent, and the blocks of requests in flight.

Few policies and routers ask for either. These are rules that the loop is handed, so that they are compiled
only where they are used (`router.keeps`); else `nothing` stands in their place.
"""

from __future__ import annotations

import math

import numpy as np

from agentctl.sim.active import add_active, count_active, drop_active
from agentctl.sim.index import Index, expire, insert, match
from agentctl.sim.jit import rule
from agentctl.sim.queue import fits
from agentctl.sim.sight import SEES_ACTIVE


@rule
def nothing(s, r, now):
    return 0


@rule
def ask(s, r, now):
    """Fill in what the gateway of request r believes: hit tokens, and the blocks in flight with r's."""
    job, size, g = s.jobs[r], s.router[0].own_block, np.int64(s.jobs[r].gateway)
    if size > 0:
        own, index = s.asides[r], Index(s.router, s.routes, s.places, s.segments, s.path)
        expire(index, g, now)
        match(index, g, np.int64(own.own_start), np.int64(own.own_stop), (job.prompt - 1) // size)
    if s.router[0].sees & SEES_ACTIVE:
        count_active(s, r, g)
    return 0


@rule
def note(s, r, now):
    """Request r was sent to its engine, or has ended there. The index learns of what an engine refuses, too:
    the gateway does not hear of that."""
    job, size = s.jobs[r], s.router[0].own_block
    e, is_sent = np.int64(job.engine), math.isnan(job.finish)
    if size > 0 and is_sent:
        index = Index(s.router, s.routes, s.places, s.segments, s.path)
        insert(index, np.int64(job.gateway), e, np.int64(s.asides[r].own_start), job.prompt // size, now)
    if s.router[0].sees & SEES_ACTIVE:
        if not is_sent:
            drop_active(s, r, e)
        elif fits(s.limits[e], job):
            add_active(s, r, e)
    return 0
