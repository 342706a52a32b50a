"""The judge's engine with KV that comes and goes: reference_pools says the rules.

Nothing here is shared with `agentctl`, nothing is fast and nothing is clever.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from oracles.reference_simulator import Chunk, Engine, Job, Limits, Names


class PoolEngine(Engine):
    def __init__(self, limits: Limits, names: Names):
        super().__init__(limits, names)
        self.hands_over: set[int] = set()  # requests whose decode is elsewhere
        self.remote: dict[int, str] = {}  # handed over to here and not run yet: queued | moving | here

    def connect(self, move: Callable[[Job, int], None]) -> None:
        """`move` starts the transfer of so many tokens; transfers that take no time end in it."""
        self.move = move

    # --- what it hands over

    def finish(self, now: float = 0.0) -> list[Job]:
        for chunk in self.batch:
            job = chunk.job
            if job.r in self.hands_over and job.computed + chunk.tokens == job.length:
                self.pool.touch(job.blocks)  # held; given back by `let_go`
        return super().finish(now)

    def let_go(self, job: Job) -> None:
        self.hands_over.remove(job.r)
        self.pool.release(job.blocks)

    # --- what is handed over to it

    def take_over(self, job: Job) -> None:
        self.remote[job.r] = "queued"
        self.enqueue(job)

    def _admit(self, budget: int, now: float) -> None:
        """As without pools, but what has come goes first and what is on the way is passed."""
        for job in sorted(self.waiting, key=lambda job: self.remote.get(job.r) != "here"):
            if budget <= 0 or len(self.running) >= self.limits.max_num_seqs:
                return
            state = self.remote.get(job.r)
            if state is None and not self._reserve(job, budget):
                return
            if state == "queued" and not self._begin_transfer(job, now):
                return
            if self.remote.get(job.r) == "moving":
                continue
            self.remote.pop(job.r, None)
            tokens = min(self._threshold(job.length - job.computed), budget)
            self._allocate(job, tokens)  # cannot fail: both kinds have looked
            if math.isnan(job.scheduled):
                job.scheduled, job.hit = now, job.computed
            self.batch.append(Chunk(job, tokens, job.computed, job.is_decode))
            budget -= tokens
            self.waiting.remove(job)
            self.running.append(job)

    def _reserve(self, job: Job, budget: int) -> bool:
        """One that is computed here: its hit, if the rest fits."""
        hit = self._lookup(job)
        at = len(hit) * self.limits.block_tokens
        tokens = min(self._threshold(job.length - at), budget)
        whole = job.length if self.limits.reserve_full_prompt else at + tokens
        if not self._fit(hit, whole):
            return False
        self.pool.touch(hit)
        job.blocks, job.cached, job.computed = list(hit), len(hit), at
        return True

    def _begin_transfer(self, job: Job, now: float) -> bool:
        """One that was computed elsewhere: all its blocks, if they fit, and its transfer."""
        hit = self._lookup(job)
        if not self._fit(hit, job.length):
            return False
        self.pool.touch(hit)
        new = self.blocks_for(job.length) - len(hit)
        job.blocks, job.cached = hit + [self.pool.take() for _ in range(new)], len(hit)
        job.scheduled, job.hit, job.computed = now, len(hit) * self.limits.block_tokens, job.request.prompt
        self.remote[job.r] = "moving"
        self.move(job, job.request.prompt - job.hit)
        return True

    def _fit(self, hit: list[int], tokens: int) -> bool:
        spare = self.watermark_blocks if self.running else 0
        needed = self.pool.needed(hit, self.blocks_for(tokens) - len(hit))
        return needed + spare <= len(self.pool.free)

    def has_come(self, job: Job, now: float) -> None:
        self.remote[job.r] = "here"
        events = len(self.pool.events)
        if self.limits.prefix_caching:
            for j in range(job.cached, job.request.prompt // self.limits.block_tokens):
                self.pool.cache(job.blocks[j], self.names.name(job.r, j))
                job.cached = j + 1
        self.news += [(now, name, copies) for name, copies in self.pool.events[events:]]
        del self.pool.events[events:]
