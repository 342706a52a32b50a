"""The simulator's own scheduler, set going from a snapshot until the probe has its first token.

Nothing of the engine is written again here: batches are formed, timed and taken together into runs of decodes
by the kernels of agentctl.sim, on a state of one engine that is filled from the snapshot before every replay.
Every request has content of its own, so that a preempted one can come back to what it had computed; hits on
what others left are laid out as blocks of that content.

Assumed: hit blocks are free ones, forgotten last, as far as the snapshot has free blocks, else in use.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentctl.estimators.sfs_snapshot import for_kernels
from agentctl.sim.cache import cache_blocks, release, take
from agentctl.sim.content import Content
from agentctl.sim.handle import handle_of
from agentctl.sim.jit import entry, kernel
from agentctl.sim.make_state import make_state
from agentctl.sim.queue import enqueue, fits
from agentctl.sim.scheduler import finish, settle, start
from agentctl.sim.sight import Sight
from agentctl.sim.state import CLOCK, FREE_HOLD, NO_NEWS, NONE, State
from agentctl.sim.steps import cut, set_end, time_batch
from agentctl.workload import Requests


def make_scratch(limits: NDArray, n: int) -> State:
    """A state that replays of up to n requests overwrite; limits: LIMITS, one record."""
    i32 = np.zeros(n, np.int32)
    fields: dict[str, Any] = dict.fromkeys(Requests._fields, i32)
    fields["prompt_tokens"] = fields["output_tokens"] = np.ones(n, np.int64)
    endless = np.full(n, np.iinfo(np.int32).max, np.int32)
    content = Content(np.arange(n + 1), np.arange(n, dtype=np.int32), endless, n)
    s = make_state(limits, content, Requests(**fields), Sight(sees=0))
    # a run has a block of its own at least, but for two of a request: those of blocks that others use too
    n_slots = int(limits[0].usable_blocks) + 2 * n + 2
    runs = np.zeros((1, n_slots), s.runs.dtype)
    runs["next"] = np.arange(1, n_slots + 1)
    arrays: Any = s._replace(runs=runs, holds=np.empty(n_slots, s.holds.dtype))
    return State(*(for_kernels(array) if array.dtype.fields else array for array in arrays))


@entry
def first_token_at(state, head, seen, late):
    """When the last of `late` gets its first token; infinite: never, as far as the snapshot tells.

    state  of `make_scratch`, for as many requests as `seen` and `late` together have; overwritten
    head   HEAD, one record; seen: SEEN, the snapshot's requests
    late   SEEN, those that join the queue later, in order of when they do (`arrival`)
    """
    return first_token(handle_of(state), head[0], seen, late)


@kernel
def first_token(s, head, seen, late):
    """The same for compiled callers, with a handle of the state and one record."""
    _lay_out(s, head, seen, late)
    at = _replay(s, head, seen.size, late)
    for x in range(s.counts[CLOCK] + 2):  # no more slots were used
        s.runs[0, x].next = x + 1
    return at


@kernel
def _replay(s, head, n_seen, late):
    now, probe = head.taken, s.jobs[n_seen + late.size - 1]
    if not fits(s.limits[0], probe):
        return math.inf
    for k in range(late.size):
        joins = max(late[k].arrival, head.taken)
        _go_on(s, now, joins)
        now = joins
        settle(s, 0, now)
        enqueue(s, 0, n_seen + k, np.int64(0))
        cut(s, 0)
        if s.ends_at[0] == now:
            finish(s, 0, now)
    while math.isnan(probe.first_token):
        if s.ends_at[0] == math.inf:
            start(s, 0, now)
            if s.ends_at[0] == math.inf:  # nothing fits, and nobody will leave
                return math.inf
        now = s.ends_at[0]
        finish(s, 0, now)
    return now


@kernel
def _go_on(s, now, until):
    """Apply all that ends by `until`; what then begins at that instant waits for who joins."""
    engine = s.engines[0]
    while True:
        if s.ends_at[0] == math.inf:
            if now >= until or engine.n_running + engine.n_waiting == 0:
                return
            start(s, 0, now)
            if s.ends_at[0] == math.inf:
                return
        if s.ends_at[0] > until:
            return
        now = s.ends_at[0]
        finish(s, 0, now)


@kernel
def _lay_out(s, head, seen, late):
    """The engine as in the snapshot."""
    _empty(s, head)
    take(s, 0, s.limits[0].usable_blocks - head.free_blocks)
    for r in range(seen.size):
        _put(s, r, seen[r])
    for r in range(head.n_running):
        s.running[0, r], s.planned[0, r] = r, seen[r].in_flight
        _give_blocks(s, r, seen[r])
    for r in range(head.n_running, seen.size):
        s.jobs[r].next_waiting = r + 1 if r + 1 < seen.size else NONE
    for k in range(late.size):
        _put(s, seen.size + k, late[k])
    if s.limits[0].prefix_caching:  # the last in the queue loses its hits first
        idle = head.free_blocks
        for r in range(seen.size + late.size - 1, head.n_running - 1, -1):
            idle -= _cache_hit(s, r, seen[r].hit if r < seen.size else late[r - seen.size].hit, idle)
    _resume(s, head, seen)


@kernel
def _empty(s, head):
    """An engine with the snapshot's lists and nothing in its cache."""
    engine, run, usable = s.engines[0], s.runs[0, 0], s.limits[0].usable_blocks
    s.counts[:] = 0
    s.counts[FREE_HOLD] = NONE
    engine.n_running = engine.running_requests = head.n_running
    engine.n_waiting = engine.waiting_requests = head.n_waiting
    engine.first_waiting = head.n_running if head.n_waiting else NONE
    engine.last_waiting = head.n_running + head.n_waiting - 1 if head.n_waiting else NONE
    engine.n_executed, engine.run_steps = head.executed, 0
    engine.settled_until = engine.silent_until = 0.0
    engine.first_news, engine.n_free = NONE, usable
    engine.oldest = engine.newest = 0
    engine.first_slot = 1
    run.line, run.low, run.high, run.users = NONE, 0, usable, 0
    run.previous = run.next = run.sibling = run.part = NONE
    s.ends_at[0] = math.inf


@kernel
def _put(s, r, q):
    """Job r is request q, in no list yet. A prediction that it has outlived is doubled until it has not; one
    that the engine could not hold is cut."""
    job, line, most = s.jobs[r], s.lines[r, 0], s.limits[0].most_tokens
    job.prompt, job.emitted, job.computed = q.prompt, q.emitted, q.computed
    output = q.output
    while output <= q.emitted:
        output *= 2
    job.output = max(min(output, most - q.prompt), q.emitted + 1)
    job.priority, job.arrival = q.priority, q.arrival
    job.n_blocks = job.n_named = job.owed = job.prefilled = job.preemptions = 0
    job.path_at, job.path_offset, job.top, job.next_waiting = job.path_start, 0, NONE, NONE
    job.scheduled = job.first_token = np.nan
    line.first_run, line.held, line.news = NONE, 0, NO_NEWS


@kernel
def _give_blocks(s, r, q):
    """What running request r holds: first blocks that others use too, then its own. All are taken already."""
    job, size = s.jobs[r], s.limits[0].block_tokens
    after = q.computed + q.in_flight
    job.n_blocks = (after + size - 1) // size
    if not s.limits[0].prefix_caching or after < size:
        return
    job.n_named = job.path_offset = after // size
    shared = job.n_blocks - q.own_blocks
    job.top = _in_use(s, r, shared)
    if job.n_named > shared:
        job.top = cache_blocks(s, 0, r, shared, job.n_named, job.top)


@kernel
def _in_use(s, line, n):
    """The first n blocks of a line, which others use as well; returns a stack with them."""
    if n == 0:
        return np.int64(NONE)
    top = cache_blocks(s, 0, line, np.int64(0), n, np.int64(NONE))
    s.runs[0, s.holds[top].run].users = 2
    return top


@kernel
def _cache_hit(s, r, hit, idle):
    """Cache what waiting request r will find; returns how many of the `idle` free blocks it is in."""
    n = hit // s.limits[0].block_tokens
    idle = min(n, idle)
    _in_use(s, r, n - idle)
    if idle:
        take(s, 0, idle)
        top = cache_blocks(s, 0, r, n - idle, n, np.int64(NONE))
        release(s, 0, top, np.int64(0))
    return idle


@kernel
def _resume(s, head, seen):
    """The batch in flight, if there is one, ends when it should, or now where that is over."""
    n_planned = 0
    for i in range(head.n_running):
        n_planned += seen[i].in_flight > 0
    if n_planned:
        time_batch(s, 0, head.batch_started, n_planned)
        set_end(s, 0)
        s.ends_at[0] = max(s.ends_at[0], head.taken)
