"""Pools with KV tiers behind their engines: the judges of both, put together.

Each rule holds for the jobs that it is about: a prompt is looked up in tiers where it is computed, and stored
from there; the decode half of a hand-over asks no tier for what it is given, and what came to it can go to
tiers like what was computed there. In a queue those whose KV has been handed over go first, the rest is as
with tiers. Of transfers that end at one instant those of tiers end first (open).
"""

from __future__ import annotations

import math

from oracles.reference_pool_engine import PoolEngine
from oracles.reference_pools import PoolCluster
from oracles.reference_simulator import Chunk, Job
from oracles.reference_tiers import TieredCluster, TieredEngine


class TieredPoolEngine(PoolEngine, TieredEngine):
    def connect(self, *given) -> None:
        (PoolEngine if len(given) == 1 else TieredEngine).connect(self, *given)

    def _stands_still(self) -> bool:
        return super()._stands_still() and "moving" not in self.remote.values()

    def _admit(self, budget: int, now: float) -> None:
        for job in sorted(self.waiting, key=lambda job: self.remote.get(job.r) != "here"):
            if budget <= 0 or len(self.running) >= self.limits.max_num_seqs:
                return
            if self.remote.get(job.r) == "queued" and not self._begin_transfer(job, now):
                return
            if self.remote.get(job.r) == "moving" or job.r in self.loading:
                continue
            is_here = self.remote.pop(job.r, None) == "here"
            if not (is_here or job.r in self.ready or self._begin(job, budget, now)):
                return
            if job.r in self.loading:
                continue
            tokens = min(self._threshold(job.length - job.computed), budget)
            whole = job.length if self.limits.reserve_full_prompt else job.computed + tokens
            spare = self.watermark_blocks if self.running and not is_here else 0
            if self.blocks_for(whole) - len(job.blocks) + spare > len(self.pool.free):
                return
            self._allocate(job, tokens)
            self.ready.discard(job.r)
            if math.isnan(job.scheduled):
                job.scheduled = now
            self.batch.append(Chunk(job, tokens, job.computed, job.is_decode))
            budget -= tokens
            self.waiting.remove(job)
            self.running.append(job)

    def _begin_transfer(self, job: Job, now: float) -> bool:
        begun = super()._begin_transfer(job, now)
        if begun:
            self.tier_hits[job.r] = [0] * len(self.stores)  # what it finds later, preempted, is no hit
        return begun

    def has_come(self, job: Job, now: float) -> None:
        super().has_come(job, now)
        self._note_units(job)


class TieredPoolCluster(PoolCluster, TieredCluster):
    engine_type = TieredPoolEngine
    engines: list[TieredPoolEngine]

    def _transfers_end(self, now: float) -> bool:
        TieredCluster._transfers_end(self, now)
        return PoolCluster._transfers_end(self, now)

    def _end(self, job: Job, now: float) -> None:
        PoolCluster._end(self, job, now)
        if job.r in self.results:
            result = self.results[job.r]
            both = [self.engines[e] for e in dict.fromkeys((result.engine, result.decode_engine))]
            found = [engine.tier_hits[job.r] for engine in both if job.r in engine.tier_hits]
            result.tier_hits = tuple(map(sum, zip(*found, strict=True)))
            result.load_s = sum(engine.load_s[job.r] for engine in both)
