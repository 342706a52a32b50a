"""A noisy engine of the judge, looked at whenever a request arrives: what estimators are told, and what then
happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from oracles.random_clusters import cluster_of
from oracles.reference_simulator import BatchCoefficients, Job, Limits, Request, Result
from oracles.snapshots import snapshot_of
from oracles.stepping import RecordedCluster, RecordedEngine

from agentctl.cluster import Pool
from agentctl.estimators.batch_time import BatchTime
from agentctl.estimators.sfs import Probe
from agentctl.estimators.sfs_snapshot import Snapshot
from agentctl.estimators.steps import Steps, composed


@dataclass(frozen=True)
class Served:
    """A run: `seen[k]` is the engine when the k-th request arrives, and that itself as a probe with its true
    output."""

    requests: list[Request]
    results: list[Result]
    seen: list[tuple[Snapshot, Probe]]
    order: list[int]  # in which they arrived
    steps: Steps

    @property
    def ttft(self) -> np.ndarray:
        return np.array([one.first_token - one.arrival for one in self.results])

    def calibrated(self, c: BatchTime, output_factor: float = 1.0) -> Iterator[tuple[Snapshot, Probe]]:
        """What an estimator gets: coefficients `c`, not the hidden ones, and outputs mis-set by a factor."""
        pool: Pool = self.seen[0][0].engine
        pool = replace(pool, profile=replace(pool.profile, batch_time=c))

        def scaled(tokens: int) -> int:
            return max(round(tokens * output_factor), 1)

        for snapshot, probe in self.seen:
            running, waiting = (
                tuple(replace(q, output_tokens=scaled(q.output_tokens)) for q in part)
                for part in (snapshot.running, snapshot.waiting)
            )
            yield (
                replace(snapshot, engine=pool, running=running, waiting=waiting),
                replace(probe, output_tokens=scaled(probe.output_tokens)),
            )


class _LookedAt(RecordedCluster):
    pool: ClassVar[Pool]
    seen: ClassVar[list[tuple[Snapshot, Probe]]] = []
    order: ClassVar[list[int]] = []

    def _route(self, r: int, now: float) -> None:
        engine, request = self.engines[0], self.requests[r]
        hit = len(engine._lookup(Job(r, request, now, 0))) * engine.limits.block_tokens
        snapshot = snapshot_of(engine, self.pool, now, getattr(engine, "now", None))
        self.seen.append((snapshot, Probe(request.prompt, request.output, hit, request.priority)))
        self.order.append(r)
        super()._route(r, now)


def serve(
    requests: list[Request], limits: Limits, hidden: BatchTime | None, seed: int, noise: float = 0.03,
    stalls: float = 0.001, trace_block: int | None = None, concurrency: int | None = None,
) -> Served:  # fmt: skip
    """Requests on one engine, whose steps have log-normal noise and 50 ms stalls. `hidden` coefficients
    replace those of the limits."""
    if hidden is not None:
        names = [name for name in BatchTime._fields if name != "model"]
        coefficients = BatchCoefficients(**{name: getattr(hidden, name) for name in names})
        limits = replace(limits, batch_time=coefficients)
    RecordedEngine.log, RecordedEngine.rng = [], np.random.default_rng(seed)
    RecordedEngine.noise, RecordedEngine.stalls = noise, stalls
    _LookedAt.pool, _LookedAt.seen, _LookedAt.order = cluster_of([limits]).pools[0], [], []
    try:
        cluster = _LookedAt(requests, [limits], lambda view, r: 0, trace_block, concurrency=concurrency)
        results = cluster.run()
    finally:
        RecordedEngine.noise, RecordedEngine.stalls = 0.03, 0.001
    times, seconds, made = zip(*RecordedEngine.log, strict=True) if RecordedEngine.log else ((), (), ())
    steps = composed(list(made), list(seconds), list(times))
    return Served(requests, results, _LookedAt.seen, _LookedAt.order, steps)


def chats(
    n: int, rates: tuple[float, ...], seed: int, prompt: float = 1500, output: float = 150
) -> list[Request]:
    """n independent requests: gamma prompts, geometric outputs, Poisson arrivals whose rate takes the given
    values in turn, for as many requests each."""
    rng = np.random.default_rng(seed)
    arrival, requests = 0.0, []
    for number in range(n):
        arrival += rng.exponential(1 / rates[number * len(rates) // n])
        length = int(rng.gamma(2, prompt / 2)) + 16
        requests.append(Request(length, int(rng.geometric(1 / output)), arrival, session=number))
    return requests


def sessions(n: int, turns: int, rate: float, seed: int) -> tuple[list[Request], int]:
    """n sessions whose prompts begin with one system prompt and repeat all that came before, in blocks of 16
    tokens; returns the requests in order of arrival, and the block size."""
    rng = np.random.default_rng(seed)
    made: list[tuple[float, int, Request]] = []
    block, start = 16, 0.0
    for session in range(n):
        start += rng.exponential(1 / rate)
        at = start
        prompt = 512 + int(rng.gamma(2, 400))
        for _ in range(turns):
            output = int(rng.geometric(1 / 120))
            chain = tuple(("system", j) if j < 32 else (session, j) for j in range(prompt // block))
            made.append((at, session, Request(prompt, output, at, chain, session=session)))
            at += output * 0.012 + rng.exponential(3.0)
            prompt += output + int(rng.gamma(2, 300))
    made.sort(key=lambda one: one[:2])
    return [request for _, _, request in made], block
