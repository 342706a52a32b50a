"""A run: the same decodes, step after step, taken at once.

Times are in closed form (Steps); blocks are taken and filled in the scheduler's order, step by step and in a
step by place in the batch, but in one go for all steps that have begun.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from agentctl.sim.job import Job
from agentctl.sim.pool import BlockPool
from agentctl.sim.steps import Steps

I64 = NDArray[np.int64]


class DecodeRun:
    """Runs until the first request has all its tokens, or until a step would not find its blocks.

    `begun` steps have their blocks (the first got them when it was planned), `ended` steps have their tokens.
    """

    def __init__(
        self, jobs: list[Job], pool: BlockPool, is_caching: bool, block_tokens: int, steps: Steps
    ) -> None:
        self._jobs, self._pool, self._is_caching, self._size = list(jobs), pool, is_caching, block_tokens
        self._steps = steps
        self._context = np.array([job.computed for job in jobs])  # before the first step
        self.n_steps = self._steps_that_fit(min(job.output - job.emitted for job in jobs))
        self.begun, self.ended = 1, 0

    @property
    def ends_at(self) -> float:
        return self._steps.end(self.n_steps)

    def stop_before_block(self) -> None:
        """End before the first further step that takes or fills a block."""
        take, fill = (-self._context - 1) % self._size, (-self._context - 2) % self._size
        self.n_steps = min(self.n_steps, 1 + int(np.minimum(take, fill).min()))

    def settle(self, now: float) -> int:
        """Take the blocks of the steps begun before `now`; returns how many more steps have ended.

        A step that ends at this very instant has ended, and the next has not begun.
        """
        ended = self._steps.n_ended(now, self.n_steps)
        between = ended > 0 and self._steps.end(ended) == now
        self._begin(ended)
        newly = ended - self.ended
        if newly:
            self._pool.announce()
        self._begin(min(ended if between else ended + 1, self.n_steps))
        self.ended = ended
        return newly

    def cut(self) -> None:
        """Settled before: no further step begins."""
        self.n_steps = self.begun

    def apply(self) -> None:
        """All steps have ended."""
        for job in self._jobs:
            job.computed += self.n_steps
            job.emitted += self.n_steps

    def _steps_that_fit(self, n_steps: int) -> int:
        """How many of the steps find their blocks (the first has them already)."""
        already = self._context // self._size

        def blocks_after(step: int) -> int:
            """Blocks taken in steps 1 .. step."""
            return int(((self._context + step) // self._size - already).sum())

        if blocks_after(n_steps - 1) <= self._pool.n_free:
            return n_steps
        return 1 + bisect_right(range(1, n_steps), self._pool.n_free, key=blocks_after)

    def _begin(self, stop: int) -> None:
        """Begin all steps before `stop`: a step on a context of c tokens takes a block when c is whole
        blocks, and fills one when c + 1 is."""
        start = self.begun
        if stop <= start:
            return
        self.begun = stop
        place, block = self._in_order(self._context + start - 1, self._context + stop - 1)
        if place.size:
            for job_place, index, taken in zip(
                place.tolist(), block.tolist(), self._pool.take(place.size).tolist(), strict=True
            ):
                job = self._jobs[job_place]
                job.blocks[index] = taken
                job.n_blocks = index + 1
        if not self._is_caching:
            return
        place, after = self._in_order(self._context + start, self._context + stop)
        if place.size:
            jobs = [self._jobs[j] for j in place.tolist()]
            filled = list(zip(jobs, (after - 1).tolist(), strict=True))
            blocks = np.array([job.blocks[index] for job, index in filled])
            self._pool.cache(blocks, np.array([job.names[index] for job, index in filled]))
            for job, index in filled:
                job.n_cached = index + 1

    def _in_order(self, low: I64, high: I64) -> tuple[I64, I64]:
        """(place, i) for every multiple i * size in (low, high] of each place, by step and then by place."""
        first, count = low // self._size + 1, high // self._size - low // self._size
        place = np.repeat(np.arange(count.size), count)
        if not place.size:
            return place, place
        multiple = np.arange(place.size) - np.repeat(np.cumsum(count) - count, count) + first[place]
        order = np.lexsort((place, multiple * self._size - self._context[place]))
        return place[order], multiple[order]
