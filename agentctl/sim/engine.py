"""One engine: vLLM's V1 scheduler over a block pool, with runs of decode steps taken at once.

A batch is planned with `start`, runs until `ends_at`, and takes effect with `finish`. When the next batches
can only repeat it (decodes, nobody to admit), they become one run of steps: `settle` brings its blocks and
counters to a given instant, `cut` ends it at the next step.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque

from agentctl.cluster import Pool
from agentctl.estimators.batch_time import chunk_pairs, gpu_time, host_time
from agentctl.sim.job import Job
from agentctl.sim.pool import BlockPool
from agentctl.sim.run import DecodeRun
from agentctl.sim.steps import Steps


class Engine:
    """`waiting_jobs` and `running` are in scheduling order; pending counts are what a router may know."""

    def __init__(self, config: Pool, n_names: int) -> None:
        self.config = config
        self.block_tokens = config.block_tokens
        self.pool = BlockPool(config.kv_blocks - 1, n_names)
        self.watermark_blocks = math.floor(config.watermark * config.kv_blocks)
        self.coefficients = config.profile.batch_time
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.pending_tokens = 0
        self.pending_pairs2 = 0  # twice the sum of n(L - n/2), to stay whole
        self.context_tokens = 0
        self.ends_at = math.inf  # when the batch or run in flight ends
        self._batch: list[tuple[Job, int]] = []  # tokens planned
        self._run: DecodeRun | None = None
        self._n_batches = 0  # executed

    # What can be served

    def fits(self, prompt: int, output: int) -> bool:
        """Whether a request of this size can ever be served."""
        limit, usable = self.config.max_model_len, self.pool.n_blocks
        if limit is not None and prompt + output > limit:
            return False
        return (
            self._blocks(prompt) + self.watermark_blocks <= usable
            and self._blocks(prompt + output - 1) <= usable
        )

    def enqueue(self, job: Job, hit_at_dispatch: int) -> None:
        """Queue a request; a run in flight must have been settled and cut."""
        self._wait(job, first=False)
        self.context_tokens += job.length
        self._owe(job, job.prompt - hit_at_dispatch)

    @property
    def is_busy(self) -> bool:
        return bool(self._batch)

    # Planning a batch

    def start(self, now: float) -> None:
        """Plan the next batch or run and set `ends_at`; a plan that only preempted is made again at once."""
        config = self.config
        while True:
            off_beat = self._n_batches % config.prefill_schedule_interval != 0
            throttled = off_beat and any(job.is_decode for job in self.running)
            budget, preempted = self._plan_running(throttled)
            if not preempted and not throttled:
                budget = self._admit(budget, now)
            if self._batch or not preempted:
                break
        if not self._batch:
            return
        steps = self._steps(now)
        repeats = not preempted and len(self._batch) == len(self.running)
        if repeats and all(job.is_decode for job in self.running):
            self._run = self._repeat(steps, budget)
        self.ends_at = self._run.ends_at if self._run else steps.end(1)

    def _plan_running(self, throttled: bool) -> tuple[int, bool]:
        """Give running requests their tokens in order; returns the budget left and if any was preempted."""
        budget, preempted, place = self.config.max_num_batched_tokens, False, 0
        while place < len(self.running) and budget > 0:
            job = self.running[place]
            if throttled and not job.is_decode:
                place += 1
                continue
            tokens = min(self._threshold(job.prompt + job.emitted - job.computed), budget)
            while not self._allocate(job, tokens):
                preempted = True
                victim_place = self._victim()
                victim = self.running.pop(victim_place)
                if victim_place < place:  # under priority it may already be part of this batch
                    place -= 1
                    budget += sum(planned for other, planned in self._batch if other is victim)
                    self._batch = [entry for entry in self._batch if entry[0] is not victim]
                self._preempt(victim)
                if victim is job:
                    return budget, preempted
            self._batch.append((job, tokens))
            budget -= tokens
            place += 1
        return budget, preempted

    def _admit(self, budget: int, now: float) -> int:
        """Admit waiting requests in order until one does not fit; returns the budget left."""
        config = self.config
        while self.waiting and budget > 0 and len(self.running) < config.max_num_seqs:
            job = self.waiting[0]
            hit = self.pool.lookup(job.names[: self._most_hit(job.length)])
            hit_tokens = hit.size * self.block_tokens
            tokens = min(self._threshold(job.length - hit_tokens), budget)
            whole = job.length if config.reserve_full_prompt else hit_tokens + tokens
            needed = self._blocks(whole) - hit.size + self.pool.n_idle(hit)
            spare = self.watermark_blocks if self.running else 0
            if needed + spare > self.pool.n_free:
                break
            self.pool.use(hit)
            job.blocks[: hit.size] = hit
            job.n_blocks = job.n_cached = hit.size
            job.computed = hit_tokens
            self._allocate(job, tokens)
            if math.isnan(job.scheduled):
                job.scheduled, job.hit = now, hit_tokens
            self._owe_rest(job)
            self._batch.append((job, tokens))
            budget -= tokens
            self.running.append(self.waiting.popleft())
        return budget

    def _most_hit(self, length: int) -> int:
        """Blocks that a lookup may find: the last token is always computed."""
        return (length - 1) // self.block_tokens if self.config.prefix_caching else 0

    def _threshold(self, tokens: int) -> int:
        limit = self.config.long_prefill_token_threshold
        alone = len(self.running) + len(self.waiting) == 1
        return tokens if limit == 0 or alone else min(tokens, limit)

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def _allocate(self, job: Job, tokens: int) -> bool:
        """Take the blocks that `tokens` more need; blocks that they fill can be found from now on."""
        after = job.computed + tokens
        new = self._blocks(after) - job.n_blocks
        if new > self.pool.n_free:
            return False
        if new > 0:
            job.blocks[job.n_blocks : job.n_blocks + new] = self.pool.take(new)
            job.n_blocks += new
        full = after // self.block_tokens
        if full > job.n_cached and self.config.prefix_caching:
            self.pool.cache(job.blocks[job.n_cached : full], job.names[job.n_cached : full])
            job.n_cached = full
        return True

    def _victim(self) -> int:
        """Place in `running` of the request to preempt: the newest, or the worst (priority, arrival)."""
        if self.config.scheduling_policy == "fcfs":
            return len(self.running) - 1
        worst = max(job.rank[:2] for job in self.running)
        return next(place for place, job in enumerate(self.running) if job.rank[:2] == worst)

    def _preempt(self, job: Job) -> None:
        self._release(job)
        job.n_cached = job.computed = 0
        job.preemptions += 1
        self._wait(job, first=True)
        self._owe(job, job.length)

    def _wait(self, job: Job, first: bool) -> None:
        if self.config.scheduling_policy == "priority":
            insort(self.waiting, job, key=lambda other: other.rank)
        elif first:
            self.waiting.appendleft(job)
        else:
            self.waiting.append(job)

    def _release(self, job: Job) -> None:
        self.pool.release(job.blocks[: job.n_blocks])
        job.n_blocks = 0

    # What the router may know of the prefill that is left

    def _owe(self, job: Job, tokens: int) -> None:
        pairs2 = tokens * (2 * job.length - tokens)
        self.pending_tokens += tokens - job.owed
        self.pending_pairs2 += pairs2 - job.owed_pairs
        job.owed, job.owed_pairs = tokens, pairs2

    def _owe_rest(self, job: Job) -> None:
        self._owe(job, 0 if job.is_decode else job.length - job.computed)

    # Time

    def _steps(self, now: float) -> Steps:
        """Times of the planned batch, and of its repetitions when it is all decodes."""
        prefill = past = n_prefill = context = 0
        pairs = 0.0
        for job, tokens in self._batch:
            if job.is_decode:
                context += job.computed
                continue
            n_prefill += 1
            prefill += tokens
            pairs += chunk_pairs(tokens, job.computed)
            past += job.computed
        n_decode = len(self._batch) - n_prefill
        c = self.coefficients
        first = gpu_time(c, prefill, pairs, past, n_prefill, n_decode, context)
        slope = 0.0 if n_prefill else c.b_context * n_decode
        return Steps(now, first, slope, host_time(c, len(self._batch)))

    def _repeat(self, steps: Steps, budget: int) -> DecodeRun | None:
        """The planned decodes, repeated for as long as nothing can change who runs; None: only once.

        A waiting request that did not fit is tried again at the first step that takes or fills a block:
        between those the pool stands still.
        """
        may_admit = budget > 0 and len(self.running) < self.config.max_num_seqs
        if self.waiting and self.config.prefill_schedule_interval > 1:
            return None
        run = DecodeRun(self.running, self.pool, self.config.prefix_caching, self.block_tokens, steps)
        if self.waiting and may_admit:
            run.stop_before_block()
        return run if run.n_steps > 1 else None

    def settle(self, now: float) -> None:
        """Bring a run to `now`: blocks of the steps begun before, tokens of the steps that have ended."""
        if self._run:
            self.context_tokens += self._run.settle(now) * len(self._batch)

    def cut(self) -> None:
        """End a settled run with the step in flight, or at once when a step ends at this very instant."""
        if self._run:
            self._run.cut()
            self.ends_at = self._run.ends_at

    def finish(self, now: float) -> list[Job]:
        """Apply the batch or run that ends now; returns the requests that ended, in batch order."""
        self.settle(now)
        self.pool.announce()
        if self._run:
            self._run.apply()
        else:
            for job, tokens in self._batch:
                self._apply(job, tokens, now)
        self._n_batches += self._run.n_steps if self._run else 1
        ended = [job for job, _ in self._batch if job.emitted == job.output]
        if ended:
            self.running = [job for job in self.running if job.emitted < job.output]
            for job in ended:
                self._release(job)
                self.context_tokens -= job.length
        self._batch, self._run, self.ends_at = [], None, math.inf
        return ended

    def _apply(self, job: Job, tokens: int, now: float) -> None:
        """The batch has run: `tokens` computed, and one emitted when nothing is left."""
        if not job.is_decode:
            job.prefilled += tokens
        job.computed += tokens
        if job.computed == job.length:
            job.emitted += 1
            self.context_tokens += 1
            if job.emitted == 1:
                job.first_token = now
        self._owe_rest(job)
