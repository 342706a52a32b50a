"""What a gateway of the router knows when it places a request.

Its own counters are exact. Engine metrics are those of the last publish: every `interval` seconds engines
publish the state after what ended at that instant and before anything arrives, which gateways see `delay`
later; interval 0 is always fresh. The precise prefix index hears of blocks `index_delay` after the end of
the batch that computed or evicted them; gateways with an index of their own (agentctl.sim.index) ask that
instead. Arrivals are spread over gateways by a hash of the request.
"""

from __future__ import annotations

import math

import numpy as np

from agentctl.sim.hashing import gateway_of
from agentctl.sim.jit import kernel
from agentctl.sim.sight import SEES_ACTIVE, SEES_HITS, SEES_PROGRESS, SEES_STEPS, SEES_UNPUBLISHED
from agentctl.sim.state import ENDED, NONE
from agentctl.sim.view import View


@kernel
def look(s, arrivals, requests, r, seed, settle, ask):
    """What the router sees for request r at this instant. Its arrays are the state's own, not copies."""
    now, job = arrivals.now[0], s.jobs[r]
    number = _survey(s, r, now, seed, settle, ask)
    g, router = np.int64(job.gateway), s.router[0]
    routes, fresh, seen = s.routes[g], s.engines, s.published[_row(s, number)]
    is_fresh = router.interval == 0
    first, stop = int(np.int64(job.path_start)), int(np.int64(job.path_stop))
    published_at = now if is_fresh else number * router.interval if number >= 0 else -math.inf
    prefill_engine = _prefill_engine(s, r)
    # choices between arrays stand outside of the call: numba has no such long one with branches inside
    waiting = fresh.waiting_requests if is_fresh else seen.waiting_requests
    running = fresh.running_requests if is_fresh else seen.running_requests
    pending = fresh.pending_prefill_tokens if is_fresh else seen.pending_prefill_tokens
    pairs = fresh.pending_prefill_pairs if is_fresh else seen.pending_prefill_pairs
    context = fresh.context_tokens if is_fresh else seen.context_tokens
    used = fresh.kv_used_blocks if is_fresh else seen.kv_used_blocks
    expected = _expected_hit(s, requests.parent[r], np.int64(job.prompt))
    beliefs, tau = s.beliefs[g], s.forecasts[r].tau if s.fleet[0].is_on else math.nan
    return View(
        now, seed, s.last_chosen[g], waiting, running, pending, pairs, context, used, fresh.kv_total_blocks,
        routes.hit_tokens, routes.inflight_requests, routes.inflight_prefill_tokens, expected,
        routes.unpublished_requests, routes.unpublished_tokens, published_at, routes.active_blocks,
        s.memory[g], fresh.step_ends_at, s.limits[0].block_tokens, s.path, first, stop,
        routes.host_hit_tokens, routes.global_hit_tokens, s.limits.role, s.last_decode[g], prefill_engine,
        s.over, s.counts[ENDED], s.limits.prefill_rate, s.network[0].s_per_token, s.network[0].latency,
        beliefs.accuracy, beliefs.cost, beliefs.ttft, beliefs.ttft_high, tau, s.fleet[0].lam,
    )  # fmt: skip


@kernel
def _prefill_engine(s, r):
    return np.int64(s.pairs[r].prefill) if s.router[0].has_roles and s.pairs[r].is_over else np.int64(NONE)


@kernel
def _survey(s, r, now, seed, settle, ask):
    """Bring what the policy asks for up to this instant; returns the number of the publish it sees."""
    router = s.router[0]
    g = gateway_of(seed, r, s.last_chosen.size)
    s.jobs[r].gateway = g
    if router.sees & (SEES_PROGRESS | SEES_STEPS):
        for e in range(s.engines.size):
            catch_up(s, e, now, settle)
            s.engines[e].kv_used_blocks = s.engines[e].kv_total_blocks - s.engines[e].n_free
    elif router.sees & SEES_HITS:
        for e in range(s.engines.size):
            if s.engines[e].run_steps and now >= s.engines[e].silent_until:
                settle(s, e, now)
    number = np.int64(0)
    if router.interval > 0:
        number = min(math.floor((now - router.delay) / router.interval), router.next_publish - 1)
    if router.sees & SEES_HITS:
        believe(s, r, now, np.int64(0), s.engines.size, ask)
    elif router.sees & SEES_ACTIVE:
        ask(s, r, now)
    if router.sees & SEES_UNPUBLISHED and router.interval > 0:
        row = _row(s, number)
        for e in range(s.engines.size):
            route, sent = s.routes[g, e], s.sent[row, g, e]
            route.unpublished_requests = route.sent_requests - sent.requests
            route.unpublished_tokens = route.sent_tokens - sent.tokens
    if router.sees & SEES_STEPS:
        for e in range(s.engines.size):
            engine = s.engines[e]
            ends = engine.settled_until if engine.run_steps else s.ends_at[e]
            engine.step_ends_at = ends if ends > now else np.inf  # a step that ends now has ended
    return number


@kernel
def catch_up(s, e, now, settle):
    if s.engines[e].run_steps and now >= s.engines[e].settled_until:
        settle(s, e, now)


@kernel
def _row(s, number):
    """Where publish `number` is kept; the last row stays empty, for a time before the first."""
    n = s.published.shape[0] - 1
    return number % n if number >= 0 else np.int64(n)


@kernel
def _take(s, row):
    """Write down what engines publish now."""
    for e in range(s.engines.size):
        engine, seen = s.engines[e], s.published[row, e]
        seen.waiting_requests = engine.waiting_requests
        seen.running_requests = engine.running_requests
        seen.pending_prefill_tokens = engine.pending_prefill_tokens
        seen.pending_prefill_pairs = engine.pending_prefill_pairs
        seen.context_tokens = engine.context_tokens
        seen.kv_used_blocks = engine.kv_total_blocks - engine.n_free


@kernel
def publish(s, now, settle, note):
    """Take the publishes due before `now`, as far as anyone will see them."""
    router = s.router[0]
    seen_next = max(math.floor((now - router.delay) / router.interval) - 1, 0)
    router.next_publish = max(router.next_publish, seen_next)
    while True:
        at = router.next_publish * router.interval
        if at >= now:
            return
        for e in range(s.engines.size):
            catch_up(s, e, at, settle)
        row = _row(s, router.next_publish)
        _take(s, row)
        for g in range(s.routes.shape[0]):
            for e in range(s.engines.size):
                s.sent[row, g, e].requests = s.routes[g, e].sent_requests
                s.sent[row, g, e].tokens = s.routes[g, e].sent_tokens
        if s.fleet[0].is_on:
            note(s, -2 - row, at)
        router.next_publish += 1


@kernel
def believe(s, r, now, first, stop, ask):
    """Fill in the hit tokens of request r on engines `first` .. `stop` - 1 as its gateway knows them; from an
    index of its own, on all engines."""
    match_precise(s, r, now, first, stop)
    if s.router[0].keeps:
        ask(s, r, now)


@kernel
def match_precise(s, r, now, first, stop):
    if s.router[0].own_block == 0:
        _hear(s, now)
        _match_known(s, r, np.int64(s.jobs[r].gateway), first, stop)


@kernel
def _hear(s, now):
    """The precise index hears of announcements made `index_delay` ago."""
    router = s.router[0]
    while router.n_late:
        late = s.late[router.first_late]
        if late.at + router.index_delay > now:
            return
        s.known[late.line, late.engine] = late.held
        router.first_late = (router.first_late + 1) % s.late.size
        router.n_late -= 1


@kernel
def _match_known(s, r, g, first, stop):
    """Hit tokens by the precise index."""
    job, routes, size = s.jobs[r], s.routes, s.limits[0].block_tokens
    for e in range(first, stop):
        routes[g, e].hit_tokens = 0
    most, before = (job.prompt - 1) // size, np.int64(0)
    for at in range(job.path_start, job.path_stop):
        line, length = s.path[at].line, min(np.int64(s.path[at].length), most - before)
        any_whole = False
        for e in range(first, stop):
            is_there = routes[g, e].hit_tokens == before * size  # the path so far
            if is_there and s.limits[e].prefix_caching:
                here = min(np.int64(s.known[line, e]), length)
                routes[g, e].hit_tokens += here * size
                any_whole = any_whole or here == length
        before += length
        if before == most or not any_whole:
            break


@kernel
def _expected_hit(s, parent, prompt):
    """Whole blocks of what the prefix parent left, at most the prompt; 0 in a first turn."""
    if parent < 0:
        return np.int64(0)
    size = s.limits[0].block_tokens
    return min((s.jobs[parent].prompt + s.jobs[parent].output) // size * size, prompt)
