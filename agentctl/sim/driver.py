"""The clock of a simulated cluster: batches end, requests arrive and are routed, idle engines start.

At one instant (1) batches that end now take effect, engines in index order; (2) arrivals are routed, ordered
by (arrival, request number); (3) idle engines with work start a batch, in index order. The driver knows no
policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agentctl.cluster import Cluster, check_simulated
from agentctl.errors import ConfigError, UsageError
from agentctl.sim.engine import Engine
from agentctl.sim.job import Job
from agentctl.sim.names import block_names
from agentctl.sim.outcome import Outcome
from agentctl.sim.release import Arrivals
from agentctl.sim.view import View
from agentctl.workload import Requests, Workload

I64 = NDArray[np.int64]


class Policy(Protocol):
    """What the driver needs of a policy (agentctl.policies.base.Policy has it)."""

    @property
    def name(self) -> str: ...
    @property
    def choose(self) -> Callable[[View, Requests, int, Any], int]: ...
    @property
    def my(self) -> Any: ...


def simulate(
    workload: Workload,
    cluster: Cluster,
    policy: Policy,
    seed: int = 0,
    concurrency: int | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Outcome:
    """Replay `workload` on `cluster` with `policy` choosing an engine for every request.

    concurrency  sessions at a time; needed by a workload of replay closed-loop, refused by others
    progress     called now and then with the share of requests that have ended

    Raises ConfigError for what cannot be simulated and for a policy that names no engine, UsageError for a
    concurrency that does not fit the replay mode.
    """
    check_simulated(cluster)
    if (workload.replay == "closed-loop") != (concurrency is not None):
        raise UsageError(
            f"replay {workload.replay} with concurrency {concurrency}",
            expected="--replay closed-loop and --concurrency together",
        )
    if concurrency is not None and concurrency < 1:
        raise UsageError(f"concurrency is {concurrency}", expected="at least 1")
    return _Run(workload, cluster, policy, seed, concurrency, progress).run()


class _Run:
    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        policy: Policy,
        seed: int,
        concurrency: int | None,
        progress: Callable[[float, str], None] | None,
    ) -> None:
        block_tokens = _common_block(cluster)
        self._requests, self._policy, self._seed, self._progress = workload.requests, policy, seed, progress
        self._names = block_names(workload, block_tokens)
        self._block_tokens = block_tokens
        pools = [pool for pool in cluster.pools for _ in range(pool.engines)]
        self._engines = [Engine(pool, self._names.n_names) for pool in pools]
        self._arrivals = Arrivals(workload, concurrency)
        self._last_chosen = -1
        self._total_blocks = np.array([engine.pool.n_blocks for engine in self._engines])
        self._sent = np.zeros(len(pools), dtype=np.int64)  # the router's own: requests not finished
        self._sent_prefill = np.zeros(len(pools), dtype=np.int64)  # uncached tokens without first token
        self._awaiting_first: list[dict[int, int]] = [{} for _ in pools]  # request -> those tokens, by engine
        self._n_ended = 0
        self._outcome = Outcome.empty(
            workload,
            tuple(pool.name for pool in cluster.pools),
            np.repeat(np.arange(len(cluster.pools)), [pool.engines for pool in cluster.pools]),
        )

    def run(self) -> Outcome:
        engines, arrivals = self._engines, self._arrivals
        while True:
            batch_end = min(engine.ends_at for engine in engines)
            now = min(batch_end, arrivals.next_time)
            if now == math.inf:
                break
            if batch_end == now:
                for number, engine in enumerate(engines):
                    if engine.ends_at == now:
                        self._finish_batch(number, engine, now)
            while arrivals.next_time == now:
                self._route(arrivals.pop(), now)
            for engine in engines:
                if not engine.is_busy and (engine.running or engine.waiting):
                    engine.start(now)
        assert self._n_ended == self._requests.arrival.size, "every request ends in exactly one state"
        return self._outcome

    def _finish_batch(self, number: int, engine: Engine, now: float) -> None:
        ended = engine.finish(now)
        awaiting = self._awaiting_first[number]
        if awaiting:
            for job in engine.running + ended:
                if job.emitted > 0 and job.r in awaiting:
                    self._sent_prefill[number] -= awaiting.pop(job.r)
        for job in ended:
            self._sent[number] -= 1
            self._record(job, number, now)
            self._end(job.r, now)

    def _record(self, job: Job, engine: int, now: float) -> None:
        out, r = self._outcome, job.r
        out.done[r], out.engine[r], out.finish_s[r] = True, engine, now
        out.scheduled_s[r], out.first_token_s[r] = job.scheduled, job.first_token
        out.hit_tokens[r], out.preemptions[r] = job.hit, job.preemptions
        out.computed_prefill_tokens[r] = job.prefilled

    def _end(self, r: int, now: float) -> None:
        self._arrivals.ended(r, now)
        self._n_ended += 1
        n = self._requests.arrival.size
        if self._progress and (self._n_ended * 100 // n) != ((self._n_ended - 1) * 100 // n):
            self._progress(self._n_ended / n, "simulating")

    def _route(self, r: int, now: float) -> None:
        requests = self._requests
        prompt, output = int(requests.prompt_tokens[r]), int(requests.output_tokens[r])
        self._outcome.arrival_s[r] = now
        self._arrivals.arrived(r, now)
        if not any(engine.fits(prompt, output) for engine in self._engines):
            self._end(r, now)
            return
        names = self._names.of(r)
        for engine in self._engines:
            engine.settle(now)
        view = self._view(r, prompt, names, now)
        chosen = self._choose(view, r)
        engine = self._engines[chosen]
        if not engine.fits(prompt, output):
            self._end(r, now)
            return
        hit = int(view.hit_tokens[chosen])
        engine.enqueue(Job(r, now, prompt, output, int(requests.priority[r]), names), hit)
        engine.cut()
        self._sent[chosen] += 1
        self._sent_prefill[chosen] += prompt - hit
        self._awaiting_first[chosen][r] = prompt - hit

    def _choose(self, view: View, r: int) -> int:
        answer = self._policy.choose(view, self._requests, r, self._policy.my)
        n = len(self._engines)
        if not isinstance(answer, int | np.integer) or not 0 <= answer < n:
            raise ConfigError(
                f"chose engine {answer!r} for request {r}",
                place=f"policy {self._policy.name}",
                expected=f"a whole number from 0 to {n - 1}",
            )
        self._last_chosen = int(answer)
        return self._last_chosen

    def _view(self, r: int, prompt: int, names: I64, now: float) -> View:
        engines = self._engines
        caching = [engine.config.prefix_caching for engine in engines]
        most = names[: (prompt - 1) // self._block_tokens]
        hits = [e.pool.n_known(most) if c else 0 for e, c in zip(engines, caching, strict=True)]
        return View(
            now=now,
            seed=self._seed,
            last_chosen=self._last_chosen,
            waiting_requests=np.array([len(engine.waiting) for engine in engines]),
            running_requests=np.array([len(engine.running) for engine in engines]),
            pending_prefill_tokens=np.array([engine.pending_tokens for engine in engines]),
            pending_prefill_pairs=np.array([engine.pending_pairs2 / 2 for engine in engines]),
            context_tokens=np.array([engine.context_tokens for engine in engines]),
            kv_used_blocks=self._total_blocks - np.array([engine.pool.n_free for engine in engines]),
            kv_total_blocks=self._total_blocks.copy(),
            hit_tokens=np.array(hits) * self._block_tokens,
            inflight_requests=self._sent.copy(),
            inflight_prefill_tokens=self._sent_prefill.copy(),
            expected_hit=self._expected_hit(r, prompt),
        )

    def _expected_hit(self, r: int, prompt: int) -> int:
        """Whole blocks of what the prefix parent left, at most the prompt; 0 in a first turn."""
        parent = self._requests.parent[r]
        if parent < 0:
            return 0
        left = int(self._requests.prompt_tokens[parent] + self._requests.output_tokens[parent])
        return min(left // self._block_tokens * self._block_tokens, prompt)


def _common_block(cluster: Cluster) -> int:
    sizes = {pool.block_tokens for pool in cluster.pools}
    if len(sizes) > 1:
        raise ConfigError(
            "pools with different block_tokens are not simulated yet",
            place="[pool] block_tokens",
            expected="one block size in all pools",
        )
    return sizes.pop()
