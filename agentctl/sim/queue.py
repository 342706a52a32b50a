"""The queue in front of an engine, and what the router may know of the prefill that is owed there."""

from __future__ import annotations

from agentctl.sim.holding import blocks_for
from agentctl.sim.jit import kernel
from agentctl.sim.state import NONE


@kernel
def is_decode(jobs, r):
    """Only the token sampled last is left to compute."""
    job = jobs[r]
    return job.emitted > 0 and job.computed == job.prompt + job.emitted - 1


@kernel
def fits(limits, prompt, output):
    """Whether an engine with these limits can ever serve a request of this size."""
    size, usable = limits.block_tokens, limits.usable_blocks
    if prompt + output > limits.max_model_len:
        return False
    if blocks_for(prompt, size) + limits.watermark_blocks > usable:
        return False
    return blocks_for(prompt + output - 1, size) <= usable


@kernel
def enqueue(s, e, r, hit):
    """Queue request r, of which the router knows `hit` tokens here; a run has been settled and cut."""
    wait_in(s, e, r)
    s.engines[e].context_tokens += s.jobs[r].prompt
    s.jobs[r].path_at = s.jobs[r].path_start
    owe(s, e, r, s.jobs[r].prompt - hit)


@kernel
def wait_in(s, e, r):
    """At the end of the queue; a preempted request in front; under priority where it belongs."""
    engines, jobs = s.engines, s.jobs
    before, then = NONE, engines[e].first_waiting
    if s.limits[e].by_priority:
        while then != NONE and not _goes_before(s, r, then):
            before, then = then, jobs[then].next_waiting
    elif s.jobs[r].preemptions == 0:
        before, then = engines[e].last_waiting, NONE
    jobs[r].next_waiting = then
    if before == NONE:
        engines[e].first_waiting = r
    else:
        jobs[before].next_waiting = r
    if then == NONE:
        engines[e].last_waiting = r
    engines[e].n_waiting += 1
    s.engines[e].waiting_requests += 1


@kernel
def _goes_before(s, a, b):
    """(priority, arrival, number) of a is less than that of b."""
    if s.jobs[a].priority != s.jobs[b].priority:
        return s.jobs[a].priority < s.jobs[b].priority
    if s.jobs[a].arrival != s.jobs[b].arrival:
        return s.jobs[a].arrival < s.jobs[b].arrival
    return a < b


@kernel
def owe(s, e, r, tokens):
    """What the router may know of the prefill that r still needs."""
    length = s.jobs[r].prompt + s.jobs[r].emitted  # the same since it was last owed anything
    old = s.jobs[r].owed
    s.engines[e].pending_prefill_tokens += tokens - old
    pairs = tokens * (2 * length - tokens) - old * (2 * length - old)
    s.engines[e].pending_prefill_pairs += pairs * 0.5  # whole and half numbers: exact
    s.jobs[r].owed = tokens


@kernel
def owe_rest(s, e, r):
    left = s.jobs[r].prompt + s.jobs[r].emitted - s.jobs[r].computed
    owe(s, e, r, 0 if is_decode(s.jobs, r) else left)
