"""The clock of a simulated cluster: batches end, requests arrive and are routed, idle engines start.

At one instant (1) batches that end now take effect, engines in index order; (2) arrivals are routed, ordered
by (arrival, request number); (3) idle engines with work start a batch, in index order. The loop knows no
policy. It goes on where it was left, so that progress can be shown and a run be stopped.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from agentctl.sim.arrivals import has_arrived, has_ended, next_time, pop
from agentctl.sim.scheduler import cut, enqueue, finish, fits, settle, start
from agentctl.sim.view import View

# What `tick` holds: requests that have ended, the router's last choice, the request whose choice was no engine
ENDED, LAST_CHOSEN, WRONG, STOP = range(4)


def replay(s, requests, arrivals, choose, my, seed, ended, tick):
    """Replay until everything has ended, `tick[STOP]` is set or a choice is no engine.

    Compiled when the policy is; called as it stands for a policy in plain Python. `ended` is scratch space,
    one place per sequence of an engine.
    """
    engines = s.engines
    while tick[STOP] == 0:
        batch_end = math.inf
        for e in range(engines.ends_at.size):
            batch_end = min(batch_end, engines.ends_at[e])
        now = min(batch_end, next_time(arrivals))
        if now == math.inf:
            break
        if batch_end == now:
            finish_batches(s, requests, arrivals, now, ended, tick)
        while next_time(arrivals) == now:
            r = pop(arrivals)
            if not receive(s, requests, arrivals, r, now, tick):
                continue
            expected_hit = look(s, requests, r, now)
            view = View(now, seed, tick[LAST_CHOSEN], *s.counters, expected_hit)
            e = choose(view, requests, r, my)
            if not 0 <= e < engines.ends_at.size:
                tick[WRONG] = r
                return e
            send(s, requests, arrivals, r, e, now, ended, tick)
        start_idle(s, requests, now)
    return 0


@njit(cache=True, nogil=True)
def finish_batches(s, requests, arrivals, now, ended, tick):
    """(1) Apply the batches that end now."""
    for e in range(s.engines.ends_at.size):
        if s.engines.ends_at[e] == now:
            for k in range(finish(s, requests, e, now, ended)):
                r = ended[k]
                s.results.done[r], s.results.engine[r], s.results.finish[r] = True, e, now
                s.counters.inflight_requests[e] -= 1
                has_ended(arrivals, requests, r, now)
                tick[ENDED] += 1


@njit(cache=True, nogil=True)
def receive(s, requests, arrivals, r, now, tick):
    """(2) Request r is here. Returns whether any engine can ever serve it; otherwise it is rejected."""
    s.results.arrival[r] = now
    has_arrived(arrivals, requests, r, now)
    for e in range(s.engines.ends_at.size):
        if fits(s.limits, e, requests.prompt_tokens[r], requests.output_tokens[r]):
            return True
    _reject(requests, arrivals, r, now, tick)
    return False


@njit(cache=True, nogil=True)
def _reject(requests, arrivals, r, now, tick):
    has_ended(arrivals, requests, r, now)
    tick[ENDED] += 1


@njit(cache=True, nogil=True)
def look(s, requests, r, now):
    """Bring the counters that the router sees to this instant, for request r; returns its expected hit."""
    counters, content, known = s.counters, s.content, s.cache.known
    n_engines = s.engines.ends_at.size
    hit = counters.hit_tokens
    for e in range(n_engines):
        settle(s, requests, e, now)
        counters.kv_used_blocks[e] = counters.kv_total_blocks[e] - s.cache.n_free[e]
        hit[e] = 0
    size = s.limits.block_tokens[0]
    most, before = (requests.prompt_tokens[r] - 1) // size, np.int64(0)
    for at in range(content.start[r], content.start[r + 1]):
        line, length = content.line[at], min(np.int64(content.length[at]), most - before)
        any_whole = False
        for e in range(n_engines):
            if hit[e] == before:  # all of the path so far is there
                here = min(np.int64(known[line, e]), length)
                hit[e] += here
                any_whole = any_whole or here == length
        before += length
        if before == most or not any_whole:
            break
    for e in range(n_engines):
        hit[e] *= size if s.limits.prefix_caching[e] else 0
    return _expected_hit(requests, r, size)


@njit(cache=True, nogil=True)
def _expected_hit(requests, r, size):
    """Whole blocks of what the prefix parent left, at most the prompt; 0 in a first turn."""
    parent = requests.parent[r]
    if parent < 0:
        return np.int64(0)
    left = requests.prompt_tokens[parent] + requests.output_tokens[parent]
    return min(left // size * size, requests.prompt_tokens[r])


@njit(cache=True, nogil=True)
def send(s, requests, arrivals, r, e, now, ended, tick):
    """Put request r into the queue of engine e."""
    tick[LAST_CHOSEN] = e
    if not fits(s.limits, e, requests.prompt_tokens[r], requests.output_tokens[r]):
        _reject(requests, arrivals, r, now, tick)
        return
    hit = s.counters.hit_tokens[e]
    enqueue(s, requests, e, r, hit)
    cut(s, e)
    if s.engines.ends_at[e] == now:
        finish(s, requests, e, now, ended)  # a step of a run ends now, and nothing with it
    s.jobs.dispatch_hit[r] = hit
    s.counters.inflight_requests[e] += 1
    s.counters.inflight_prefill_tokens[e] += requests.prompt_tokens[r] - hit


@njit(cache=True, nogil=True)
def start_idle(s, requests, now):
    """(3) Idle engines with work start a batch."""
    engines = s.engines
    for e in range(engines.ends_at.size):
        if engines.ends_at[e] == math.inf and (engines.n_running[e] or engines.n_waiting[e]):
            start(s, requests, e, now)
