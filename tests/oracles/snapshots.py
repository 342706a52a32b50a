"""Snapshots for the judge: its engine put into the state of one, or seen as one."""

from __future__ import annotations

import math

from oracles.reference_simulator import Chunk, Engine, Job, Limits, Names, Request

from agentctl.cluster import Pool
from agentctl.estimators.sfs import Probe
from agentctl.estimators.sfs_snapshot import SeenRequest, Snapshot


def first_token(snapshot: Snapshot, limits: Limits, joining: list[tuple[float, Probe]]) -> float:
    """When the last of `joining` (time, request) gets its first token, batch by batch and block by block."""
    engine, late = _engine_in(snapshot, limits, joining)
    coming, now = list(late), snapshot.taken_s
    while True:
        if engine.batch_ends == now:
            engine.finish(now)
        if not math.isnan(late[-1].first_token):
            return late[-1].first_token
        while coming and coming[0].arrival <= now:
            engine.enqueue(coming.pop(0))
        if engine.batch_ends == math.inf and (engine.waiting or engine.running):
            engine.schedule(now)
        now = min([engine.batch_ends] + [job.arrival for job in coming[:1]])
        if now == math.inf:
            return math.inf


def _engine_in(
    snapshot: Snapshot, limits: Limits, joining: list[tuple[float, Probe]]
) -> tuple[Engine, list[Job]]:
    seen = list(snapshot.requests)
    seen += [
        SeenRequest(
            q.prompt_tokens, q.output_tokens, hit_tokens=q.hit_tokens, arrival_s=at, priority=q.priority
        )
        for at, q in joining
    ]
    requests = []
    for q in seen:
        output = q.output_tokens
        while q.emitted_tokens >= output:  # it has outlived its prediction
            output *= 2
        output = max(min(output, _most(limits) - q.prompt_tokens), q.emitted_tokens + 1)
        requests.append(Request(q.prompt_tokens, output, q.arrival_s, priority=q.priority))
    engine = Engine(limits, Names(requests, None, limits.block_tokens))
    engine.batches = snapshot.batches
    jobs = [
        Job(r, requests[r], q.arrival_s, 0, q.computed_tokens, q.emitted_tokens) for r, q in enumerate(seen)
    ]
    n = len(snapshot.running)
    engine.running, engine.waiting = jobs[:n], jobs[n : len(snapshot.requests)]
    in_use = [engine.pool.take() for _ in range(engine.pool.usable - snapshot.free_blocks)]
    for job, q in zip(engine.running, snapshot.running, strict=True):
        _hand_out(engine, job, q, in_use)
    _cache_hits(engine, jobs[n:], seen[n:])
    if snapshot.batch_started_s is not None:
        engine.batch = [
            Chunk(job, q.in_flight_tokens, job.computed, job.is_decode)
            for job, q in zip(engine.running, snapshot.running, strict=True)
            if q.in_flight_tokens
        ]
        engine.batch_ends = max(snapshot.batch_started_s + engine.duration(), snapshot.taken_s)
    return engine, jobs[len(snapshot.requests) :]


def _most(limits: Limits) -> int:
    """Tokens of the longest request that the engine can hold; its last token needs no KV."""
    return min((limits.kv_blocks - 1) * limits.block_tokens + 1, limits.max_model_len or 10**9)


def _hand_out(engine: Engine, job: Job, q: SeenRequest, in_use: list[int]) -> None:
    """Blocks of a running request: first those that others use too, then its own."""
    after = q.computed_tokens + q.in_flight_tokens
    n_blocks = engine.blocks_for(after)
    own = n_blocks if q.kv_blocks is None else q.kv_blocks
    job.blocks = [_block_of_others(engine) for _ in range(n_blocks - own)]
    for block in job.blocks:
        engine.pool.users[block] = 2
    job.blocks += [in_use.pop() for _ in range(own)]
    if engine.limits.prefix_caching:
        job.cached = after // engine.limits.block_tokens
        for j in range(job.cached):
            engine.pool.cache(job.blocks[j], engine.names.name(job.r, j))


def _cache_hits(engine: Engine, jobs: list[Job], seen: list[SeenRequest]) -> None:
    """What waiting requests will find, those of the last in the queue in front of the others': in free blocks
    as far as there are any, the rest in blocks that others use."""
    if not engine.limits.prefix_caching:
        return
    pool, n_free = engine.pool, len(engine.pool.free)
    for job, q in reversed(list(zip(jobs, seen, strict=True))):
        n = q.hit_tokens // engine.limits.block_tokens
        idle = min(n, n_free)
        n_free -= idle
        blocks = [_block_of_others(engine) for _ in range(n - idle)] + [pool.take() for _ in range(idle)]
        for j, block in enumerate(blocks):
            pool.cache(block, engine.names.name(job.r, j))
        pool.release(blocks[n - idle :])


def _block_of_others(engine: Engine) -> int:
    """One more block that somebody unknown uses."""
    engine.pool.users.append(1)
    engine.pool.name.append(None)
    return len(engine.pool.users) - 1


def snapshot_of(engine: Engine, pool: Pool, now: float, started: float | None = None) -> Snapshot:
    """What an engine of the judge would publish at `now`; `started`: when its batch did."""
    planned = {chunk.job.r: chunk.tokens for chunk in engine.batch}

    def seen(job: Job) -> SeenRequest:
        return SeenRequest(
            job.request.prompt, job.request.output, str(job.r), job.emitted, job.computed,
            planned.get(job.r, 0), sum(engine.pool.users[block] == 1 for block in job.blocks),
            len(engine._lookup(job)) * engine.limits.block_tokens if job in engine.waiting else 0,
            job.arrival, job.request.priority,
        )  # fmt: skip

    return Snapshot(
        pool, now, len(engine.pool.free), tuple(map(seen, engine.running)), tuple(map(seen, engine.waiting)),
        started if planned else None, engine.batches,
    )  # fmt: skip
