"""Snapshots of the simulator's own engines, as they would publish them, also amid a run of decodes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from agentctl.cluster import Pool
from agentctl.estimators.sfs_snapshot import HEAD, SEEN, SeenRequest, Snapshot, for_kernels
from agentctl.sim.handle import handle_of
from agentctl.sim.holding import look_up
from agentctl.sim.jit import entry, kernel
from agentctl.sim.scheduler import settle
from agentctl.sim.state import NONE, State
from agentctl.sim.steps import step_end


def snapshot_of(s: State, engine: int, pool: Pool, now: float, outputs: NDArray[np.int64]) -> Snapshot:
    """Engine number `engine` (vLLM's scheduler) at `now`, up to which the simulation has come; `pool` is its.

    outputs   tokens by request, as predicted: a snapshot must not know more than a router would
    """
    n = int(s.engines["n_running"][engine] + s.engines["n_waiting"][engine])
    head, seen, number = np.zeros(1, HEAD), np.zeros(n, SEEN), np.zeros(n, np.int64)
    look_at(s, engine, now, outputs, for_kernels(head), for_kernels(seen), number)
    (n_running, _, free, executed, taken, started) = head[0].tolist()
    requests = [
        SeenRequest(prompt, output, str(r), emitted, computed, in_flight, own, hit, arrival, priority)
        for r, (prompt, output, emitted, computed, in_flight, own, hit, priority, arrival) in zip(
            number.tolist(), seen.tolist(), strict=True
        )
    ]
    running, waiting = tuple(requests[:n_running]), tuple(requests[n_running:])
    return Snapshot(pool, taken, free, running, waiting, None if math.isnan(started) else started, executed)


@entry
def look_at(state, e, now, outputs, head, seen, number):
    """Fill `head` (HEAD, one record), `seen` (SEEN, as many as run and wait) and the requests' numbers."""
    see(handle_of(state), e, now, outputs, head[0], seen, number)


@kernel
def see(s, e, now, outputs, head, seen, number):
    """The same for compiled callers, with a handle of the state and one record."""
    settle(s, e, now)
    engine = s.engines[e]
    ended = engine.run_ended if engine.run_steps else 0
    is_flying = s.ends_at[e] < math.inf and (engine.run_steps == 0 or engine.run_begun > ended)
    head.n_running, head.n_waiting = engine.n_running, engine.n_waiting
    head.free_blocks, head.executed, head.taken = engine.n_free, engine.n_executed + ended, now
    head.batch_started = np.nan
    if is_flying:
        head.batch_started = step_end(engine, ended) if engine.run_steps else engine.run_start
    for i in range(engine.n_running):
        r = s.running[e, i]
        _put(s, r, outputs[r], seen[i])
        seen[i].own_blocks -= _shared_blocks(s, e, s.jobs[r].top)
        seen[i].computed += ended
        seen[i].emitted += ended
        if is_flying:
            seen[i].in_flight = 1 if engine.run_steps else s.planned[e, i]
        number[i] = r
    r = engine.first_waiting
    for i in range(engine.n_running, engine.n_running + engine.n_waiting):
        job, size = s.jobs[r], s.limits[e].block_tokens
        _put(s, r, outputs[r], seen[i])
        if s.limits[e].prefix_caching:
            hit, _ = look_up(s, e, r, (job.prompt + job.emitted - 1) // size)
            seen[i].hit = min(hit * size, job.prompt)
        number[i] = r
        r = job.next_waiting


@kernel
def _put(s, r, output, q):
    job = s.jobs[r]
    q.prompt, q.output, q.emitted, q.computed, q.in_flight = job.prompt, output, job.emitted, job.computed, 0
    q.own_blocks, q.hit, q.priority, q.arrival = job.n_blocks, 0, job.priority, job.arrival


@kernel
def _shared_blocks(s, e, top):
    """How many blocks of a request's stack others use too."""
    shared = np.int64(0)
    while top != NONE:
        low, high = s.runs[e, s.holds[top].run].low, s.holds[top].high
        while high > low:  # parts of a run that was cut meanwhile, from the last
            x = s.holds[top].run
            while s.runs[e, x].high < high:
                x = s.runs[e, x].part
            if s.runs[e, x].users > 1:
                shared += high - s.runs[e, x].low
            high = s.runs[e, x].low
        top = s.holds[top].below
    return shared
