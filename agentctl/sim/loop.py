"""The clock of a simulated cluster: batches end, requests arrive and are routed, idle engines start.

At one instant (1) batches that end now take effect, engines in index order; (2) arrivals are routed, ordered
by (arrival, request number); (3) idle engines with work start a batch, in index order. The clock stops at
every request that must be routed (`advance`); whoever drives it shows the policy what the router sees
(`look`) and sends the request where it says (`send`).

What an engine does is not known here: `start`, `finish` and `settle` of its scheduler (for example
agentctl.sim.scheduler) are handed in, with the arguments (state, engine, now).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from agentctl.sim.arrivals import has_arrived, has_ended, next_time, pop
from agentctl.sim.jit import kernel
from agentctl.sim.queue import enqueue, fits
from agentctl.sim.state import ENDED, LAST_CHOSEN
from agentctl.sim.steps import cut
from agentctl.sim.view import View


@kernel
def advance(s, arrivals, start, finish):
    """Go on to the next request that must be routed; returns it, or -1 when everything has ended."""
    while True:
        while next_time(arrivals) == arrivals.now[0]:
            r = pop(arrivals)
            if _receive(s, arrivals, r):
                return r
        _start_idle(s, arrivals.now[0], start)
        now = next_time(arrivals)
        for e in range(s.engines.size):
            now = min(now, s.engines[e].ends_at)
        if now == math.inf:
            return -1
        arrivals.now[0] = now
        _finish_batches(s, arrivals, now, finish)


@kernel
def _finish_batches(s, arrivals, now, finish):
    """(1) Apply the batches that end now."""
    for e in range(s.engines.size):
        if s.engines[e].ends_at == now:
            for k in range(finish(s, e, now)):
                job = s.jobs[s.ended[k]]
                job.done, job.engine, job.finish = True, e, now
                s.engines[e].inflight_requests -= 1
                _end(s, arrivals, s.ended[k])


@kernel
def _end(s, arrivals, r):
    has_ended(arrivals, r)
    s.counts[ENDED] += 1


@kernel
def _receive(s, arrivals, r):
    """(2) Request r is here. Returns whether any engine can ever serve it; otherwise it is rejected."""
    job = s.jobs[r]
    job.arrival = arrivals.now[0]
    has_arrived(arrivals, r)
    for e in range(s.engines.size):
        if fits(s.limits[e], job.prompt, job.output):
            return True
    _end(s, arrivals, r)
    return False


@kernel
def _start_idle(s, now, start):
    """(3) Idle engines with work start a batch."""
    for e in range(s.engines.size):
        engine = s.engines[e]
        if engine.ends_at == math.inf and (engine.n_running or engine.n_waiting):
            start(s, e, now)


@njit(cache=True, nogil=True)
def look(s, arrivals, requests, r, seed, settle):
    """What the router sees for request r at this instant. Its arrays are the state's own, not copies."""
    engines, job, now = s.engines, s.jobs[r], arrivals.now[0]
    for e in range(engines.size):
        if engines[e].run_steps and now >= engines[e].settled_until:
            settle(s, e, now)
        engines[e].kv_used_blocks = engines[e].kv_total_blocks - engines[e].n_free
        engines[e].hit_tokens = 0
    size = s.limits[0].block_tokens
    most, before = (job.prompt - 1) // size, np.int64(0)
    for at in range(job.path_start, job.path_stop):
        line, length = s.path[at].line, min(np.int64(s.path[at].length), most - before)
        any_whole = False
        for e in range(engines.size):
            if (
                engines[e].hit_tokens == before * size and s.limits[e].prefix_caching
            ):  # the path so far is there
                here = min(np.int64(s.lines[line, e].known), length)
                engines[e].hit_tokens += here * size
                any_whole = any_whole or here == length
        before += length
        if before == most or not any_whole:
            break
    return View(
        now, seed, s.counts[LAST_CHOSEN], engines.waiting_requests, engines.running_requests,
        engines.pending_prefill_tokens, engines.pending_prefill_pairs, engines.context_tokens,
        engines.kv_used_blocks, engines.kv_total_blocks, engines.hit_tokens, engines.inflight_requests,
        engines.inflight_prefill_tokens, _expected_hit(s, requests.parent[r], job.prompt, size),
    )  # fmt: skip


@kernel
def _expected_hit(s, parent, prompt, size):
    """Whole blocks of what the prefix parent left, at most the prompt; 0 in a first turn."""
    if parent < 0:
        return np.int64(0)
    return min((s.jobs[parent].prompt + s.jobs[parent].output) // size * size, prompt)


@kernel
def send(s, arrivals, r, e, finish):
    """Put request r into the queue of engine e."""
    job, engine, now = s.jobs[r], s.engines[e], arrivals.now[0]
    s.counts[LAST_CHOSEN] = e
    if not fits(s.limits[e], job.prompt, job.output):
        _end(s, arrivals, r)
        return
    job.dispatch_hit = engine.hit_tokens
    engine.inflight_requests += 1
    engine.inflight_prefill_tokens += job.prompt - job.dispatch_hit
    enqueue(s, e, r, job.dispatch_hit)
    cut(s, e)
    if engine.ends_at == now:
        finish(s, e, now)  # a step of a run ends now, and nothing with it
