"""What becomes of a policy's answer where engines have roles: a request is sent, handed over, kept, refused.

Roles say which engine may compute a prompt for which: prefill for both or decode, both for decode, and both
and decode for themselves. Sources: llm-d and Dynamo; the judge's docstring says what they leave open.
"""

from __future__ import annotations

import numpy as np

from agentctl.sim.active import add_active
from agentctl.sim.index import Index, insert
from agentctl.sim.jit import kernel, rule
from agentctl.sim.keeping import ask
from agentctl.sim.pair_state import NONE
from agentctl.sim.pooled import finish_step, let_go, take_over
from agentctl.sim.queue import enqueue, fits
from agentctl.sim.roles import BOTH, DECODE, LATER, NOT_YET, PREFILL, REFUSED, decode_of, prefill_of
from agentctl.sim.router import match_precise
from agentctl.sim.sight import SEES_ACTIVE, SEES_HITS
from agentctl.sim.steps import cut, settle

PLACED, TURNED_AWAY, NO_ENGINE = range(3)


@rule
def place(s, r, now):
    """Apply `pairs[r].answer`; TURNED_AWAY where it cannot be, NO_ENGINE where it names none."""
    answer, pair, n = s.pairs[r].answer, s.pairs[r], s.engines.size
    if answer == NOT_YET:
        s.waiting[s.network[0].n_waiting] = r
        s.network[0].n_waiting += 1
        return PLACED
    prefill, decode = prefill_of(answer), decode_of(answer)
    if answer == REFUSED:
        prefill = decode = NONE
    elif answer < 0 or prefill >= n or decode >= n:
        return NO_ENGINE
    if pair.is_over:
        return _place_decode(s, r, decode if prefill == decode else NONE, now)
    if np.isnan(pair.arrived):
        pair.arrived = s.jobs[r].arrival
    return _place(s, r, prefill, decode, now)


@kernel
def _place(s, r, prefill, decode, now):
    job, pair = s.jobs[r], s.pairs[r]
    is_one = prefill == decode or job.output == 1
    if prefill != NONE:
        if not s.router[0].sees & SEES_HITS:
            match_precise(s, r, now, prefill, prefill + 1)
            if s.router[0].keeps:
                ask(s, r, now)
        _note(s, r, prefill, LATER if job.output == 1 else decode, now)
    if not _can_serve(s, r, prefill, decode):
        job.engine = NONE
        return TURNED_AWAY
    hit = np.int64(s.routes[job.gateway, prefill].hit_tokens)
    if is_one:
        pair.prefill = prefill
        _send(s, r, prefill, hit, now)
        _queue(s, r, prefill, hit, now)
        return PLACED
    j = s.pairs.size + r
    s.jobs[j].gateway, s.jobs[j].arrival = job.gateway, now
    pair.prefill, pair.decode = prefill, decode
    _send(s, j, prefill, hit, now)
    _queue(s, j, prefill, hit, now)
    if decode != LATER:
        _send(s, r, decode, np.int64(job.prompt), now)
    return PLACED


@kernel
def _place_decode(s, r, decode, now):
    """At the hand-over."""
    pair = s.pairs[r]
    if decode != NONE:
        _note(s, r, LATER, decode, now)
    if decode == NONE or decode == pair.prefill or not _can_serve(s, r, np.int64(pair.prefill), decode):
        let_go(s, r, now, np.int64(0))  # nobody has started at this instant
        s.jobs[r].first_token, s.jobs[r].engine = np.nan, NONE
        return TURNED_AWAY
    pair.decode = decode
    _send(s, r, decode, np.int64(s.jobs[r].prompt), now)
    take_over(s, r, now, s.engines.size)
    return PLACED


# Who may serve what


@kernel
def _can_serve(s, r, prefill, decode):
    job = s.jobs[r]
    if prefill == NONE:
        return False
    if prefill == decode:
        return s.limits[prefill].role != PREFILL and fits(s.limits[prefill], job)
    if not _fits_first(s.limits[prefill], job):
        return False
    if decode != LATER:
        return _is_permitted(s, prefill, decode) and fits(s.limits[decode], job)
    for d in range(s.engines.size):
        if d != prefill and _is_permitted(s, prefill, d) and fits(s.limits[d], job):
            return True
    return False


@kernel
def _fits_first(limit, job):
    """Whether the engine can ever serve the prompt and one token."""
    return job.prompt <= limit.most_prompt and job.prompt + 1 <= limit.most_tokens


@kernel
def _is_permitted(s, prefill, decode):
    first, second = s.limits[prefill].role, s.limits[decode].role
    return (first == PREFILL and second != PREFILL) or (first == BOTH and second == DECODE)


# What the gateway notes


@kernel
def _note(s, r, prefill, decode, now):
    """The choice, and what an index of the gateway's own learns of it, whatever becomes of the request."""
    g = np.int64(s.jobs[r].gateway)
    if prefill != LATER:
        s.last_chosen[g] = prefill
        _learn(s, r, g, prefill, now)
    if decode != LATER:
        s.last_decode[g] = decode
        if decode != prefill:
            _learn(s, r, g, decode, now)


@kernel
def _learn(s, r, g, e, now):
    size = s.router[0].own_block
    if size > 0:
        index = Index(s.router, s.routes, s.places, s.segments, s.path)
        insert(index, g, e, np.int64(s.asides[r].own_start), s.jobs[r].prompt // size, now)


@kernel
def _send(s, j, e, hit, now):
    """The gateway counts job j on engine e from now on."""
    job = s.jobs[j]
    route, new = s.routes[job.gateway, e], job.prompt - hit
    job.engine, job.dispatch_hit = e, hit
    route.inflight_requests += 1
    route.inflight_prefill_tokens += new
    route.sent_requests += 1
    route.sent_tokens += new
    if s.router[0].sees & SEES_ACTIVE:
        add_active(s, j, e)


@kernel
def _queue(s, j, e, hit, now):
    s.jobs[j].arrival = now
    settle(s, e, now)
    enqueue(s, e, j, hit)
    cut(s, e)
    if s.ends_at[e] == now:
        finish_step(s, e, now)
