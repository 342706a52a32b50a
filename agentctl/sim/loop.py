"""The clock of a simulated cluster: batches end, requests arrive and are routed, idle engines start.

At one instant (1) batches that end now take effect, engines in index order; (2) arrivals are routed, ordered
by (arrival, request number); (3) idle engines with work start a batch, in index order. The clock stops at
every request that must be routed (`advance`); whoever drives it shows the policy what the router sees
(agentctl.sim.router) and sends the request where it says (`send`).

What an engine does is not known here: `start`, `finish` and `settle` of its scheduler (for example
agentctl.sim.scheduler) are handed in, with the arguments (state, engine, now).
"""

from __future__ import annotations

import math

import numpy as np

from agentctl.sim.arrivals import has_arrived, has_ended, next_time, pop, push
from agentctl.sim.jit import kernel
from agentctl.sim.placing import NO_ENGINE, TURNED_AWAY
from agentctl.sim.queue import enqueue, fits
from agentctl.sim.roles import PREFILL
from agentctl.sim.router import believe, catch_up, publish
from agentctl.sim.samples import sample
from agentctl.sim.sight import SEES_HITS
from agentctl.sim.state import ENDED, NONE
from agentctl.sim.steps import cut


@kernel
def advance(s, arrivals, start, finish, settle, note, move):
    """Go on to the next request that must be routed; returns it, or -1 when everything has ended."""
    while True:
        while next_time(arrivals) == arrivals.now[0]:
            r = pop(arrivals)
            if _receive(s, arrivals, r):
                return r
        _start_idle(s, arrivals.now[0], start)
        while s.network[0].again:
            s.network[0].again = False
            _start_idle(s, arrivals.now[0], start)
        now = min(next_time(arrivals), s.moving[0])
        for e in range(s.engines.size):
            now = min(now, s.ends_at[e])
        if now == math.inf:
            return -1
        if s.sampling[0].due < now:
            sample(s, now, False, settle)
        if s.router[0].interval > 0:
            publish(s, now, settle, note)
        arrivals.now[0] = now
        if s.moving[0] <= now:
            move(s, 0, now)
        _finish_batches(s, arrivals, now, finish, note)
        _ask_again(s, arrivals)
        if s.sampling[0].due == now:
            sample(s, now, True, settle)
        if s.router[0].interval > 0:
            publish(s, np.nextafter(now, np.inf), settle, note)  # and the one due now


@kernel
def _finish_batches(s, arrivals, now, finish, note):
    """(1) Apply the batches that end now."""
    for e in range(s.engines.size):
        if s.ends_at[e] == now:
            for k in range(finish(s, e, now)):
                job = s.jobs[s.ended[k]]
                job.finish = now
                s.routes[job.gateway, e].inflight_requests -= 1
                if s.router[0].keeps:
                    note(s, s.ended[k], now)
                _end(s, arrivals, s.ended[k])


@kernel
def _end(s, arrivals, r):
    has_ended(arrivals, r)
    s.over[s.counts[ENDED]] = r
    s.counts[ENDED] += 1
    for k in range(s.network[0].n_waiting):
        push(arrivals, arrivals.now[0], s.waiting[k])
    s.network[0].n_waiting = 0


@kernel
def _ask_again(s, arrivals):
    """Whose decoder has to be chosen now is asked like an arrival."""
    for k in range(s.network[0].n_asks):
        push(arrivals, arrivals.now[0], s.asks[k])
    s.network[0].n_asks = 0


@kernel
def _receive(s, arrivals, r):
    """(2) Request r is here. Returns whether any engine can ever serve it; otherwise it is rejected."""
    job = s.jobs[r]
    if not math.isnan(job.arrival):
        return True  # it is asked for again
    job.arrival = arrivals.now[0]
    has_arrived(arrivals, r)
    for e in range(s.engines.size):
        if s.limits[e].role != PREFILL and _fits_as_sent(s, e, r):
            return True
    _end(s, arrivals, r)
    return False


@kernel
def _fits_as_sent(s, e, r):
    """Whether engine e could ever serve request r, which may be longer on its model."""
    if s.fleet[0].is_on:
        return fits(s.limits[e], s.offers[r, s.limits[e].pool])
    return fits(s.limits[e], s.jobs[r])


@kernel
def _start_idle(s, now, start):
    """(3) Idle engines with work start a batch."""
    for e in range(s.engines.size):
        if s.ends_at[e] == math.inf and (s.engines[e].n_running or s.engines[e].n_waiting):
            start(s, e, now)


@kernel
def send(s, arrivals, r, e, finish, settle, ask, note):
    """Put request r, which the router has looked at, into the queue of engine e."""
    job, now = s.jobs[r], arrivals.now[0]
    route = s.routes[job.gateway, e]
    s.last_chosen[job.gateway] = e
    catch_up(s, e, now, settle)
    if not s.router[0].sees & SEES_HITS:
        believe(s, r, now, e, e + 1, ask)
    job.engine = e
    if s.fleet[0].is_on:
        offer = s.offers[r, s.limits[e].pool]
        job.prompt, job.output = offer.prompt, offer.output
    if s.router[0].keeps:
        note(s, r, now)
    if not fits(s.limits[e], job):
        job.engine = NONE
        _end(s, arrivals, r)
        return
    job.dispatch_hit = route.hit_tokens
    new = job.prompt - job.dispatch_hit
    route.inflight_requests += 1
    route.inflight_prefill_tokens += new
    route.sent_requests += 1
    route.sent_tokens += new
    enqueue(s, e, r, np.int64(job.dispatch_hit))
    cut(s, e)
    if s.ends_at[e] == now:
        finish(s, e, now)  # a step of a run ends now, and nothing with it


@kernel
def place_or_send(s, arrivals, r, answer, finish, settle, ask, note, place):
    """Do as the policy answers; returns whether it names engines."""
    if s.router[0].has_roles:
        s.pairs[r].answer = answer
        became = place(s, r, arrivals.now[0])
        if became == TURNED_AWAY:
            _end(s, arrivals, r)
        return became != NO_ENGINE
    if answer < 0 or answer >= s.engines.size:
        return False
    send(s, arrivals, r, answer, finish, settle, ask, note)
    return True
