"""The queue in front of an engine, and what the router may know of the prefill that is owed there."""

from __future__ import annotations

import numpy as np

from agentctl.sim.jit import kernel
from agentctl.sim.state import NONE


@kernel
def is_decode(job):
    """Only the token sampled last is left to compute."""
    return job.emitted > 0 and job.computed == job.prompt + job.emitted - 1


@kernel
def fits(limits, job):
    """Whether an engine with these limits can ever serve a request of this size."""
    return job.prompt <= limits.most_prompt and job.prompt + job.output <= limits.most_tokens


@kernel
def enqueue(s, e, r, hit):
    """Queue request r, of which the router knows `hit` tokens here; a run has been settled and cut."""
    engine, job = s.engines[e], s.jobs[r]
    wait_in(s, e, r)
    engine.context_tokens += job.prompt
    job.path_at = job.path_start
    owe(s, e, r, job.prompt - hit)


@kernel
def wait_in(s, e, r):
    """At the end of the queue; vLLM's preempted requests in front; under priority where it belongs."""
    engine, limit, job, jobs = s.engines[e], s.limits[e], s.jobs[r], s.jobs
    before, then = NONE, engine.first_waiting
    if limit.by_priority:
        while then != NONE and not _goes_before(s, r, then):
            before, then = then, np.int64(jobs[then].next_waiting)
    elif job.preemptions == 0 or limit.is_sglang:
        before, then = engine.last_waiting, NONE
    job.next_waiting = then
    if before == NONE:
        engine.first_waiting = r
    else:
        jobs[before].next_waiting = r
    if then == NONE:
        engine.last_waiting = r
    engine.n_waiting += 1
    engine.waiting_requests += 1


@kernel
def _goes_before(s, a, b):
    """(priority, arrival, number) of a is less than that of b."""
    jobs = s.jobs
    if jobs[a].priority != jobs[b].priority:
        return jobs[a].priority < jobs[b].priority
    if jobs[a].arrival != jobs[b].arrival:
        return jobs[a].arrival < jobs[b].arrival
    n = s.over.size  # both jobs of a request that is handed over have its number
    return a % n < b % n


@kernel
def leave_queue(s, e, before, r):
    """Request r, which waits behind `before` (NONE: it is the first), is admitted."""
    engine, after = s.engines[e], np.int64(s.jobs[r].next_waiting)
    if before == NONE:
        engine.first_waiting = after
    else:
        s.jobs[before].next_waiting = after
    if after == NONE:
        engine.last_waiting = before
    engine.n_waiting -= 1
    engine.waiting_requests -= 1


@kernel
def owe(s, e, r, tokens):
    """What the router may know of the prefill that r still needs."""
    engine, job = s.engines[e], s.jobs[r]
    length = job.prompt + job.emitted  # the same since it was last owed anything
    old = job.owed
    engine.pending_prefill_tokens += tokens - old
    pairs = tokens * (2 * length - tokens) - old * (2 * length - old)
    engine.pending_prefill_pairs += pairs * 0.5  # whole and half numbers: exact
    job.owed = tokens


@kernel
def owe_rest(s, e, r):
    job = s.jobs[r]
    left = job.prompt + job.emitted - job.computed
    owe(s, e, r, np.int64(0) if is_decode(job) else left)


@kernel
def apply(s, e, r, tokens, now):
    """The batch has run: `tokens` of r computed, and one emitted when nothing is left."""
    engine, job = s.engines[e], s.jobs[r]
    was_decode = is_decode(job)
    if not was_decode:
        job.prefilled += tokens
    job.computed += tokens
    length = job.prompt + job.emitted
    if not was_decode:
        owe_rest(s, e, r)
    if job.computed < length:
        return
    job.emitted += 1
    engine.context_tokens += 1
    engine.emitted_tokens += 1
    if job.emitted == 1:
        job.first_token = now
        s.routes[job.gateway, e].inflight_prefill_tokens -= job.prompt - job.dispatch_hit
    else:
        job.itl_max = max(job.itl_max, now - job.last_token)
    job.last_token = now


@kernel
def apply_run(job, steps, first_end, last_step, now):
    """A run has ended: a token a step. Steps never get shorter, so that the longest gap of a token is that
    before the first or the last."""
    job.computed += steps
    job.emitted += steps
    job.itl_max = max(job.itl_max, first_end - job.last_token, last_step)
    job.last_token = now
