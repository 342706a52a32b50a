"""A request on an engine: how far it is, and the blocks that it holds."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


class Job:
    """A request that was sent to an engine. Counts are tokens."""

    __slots__ = (
        "arrival", "blocks", "computed", "emitted", "first_token", "hit", "n_blocks", "n_cached", "names",
        "output", "owed", "owed_pairs", "preemptions", "prefilled", "prompt", "r", "rank", "scheduled",
    )  # fmt: skip

    def __init__(
        self, r: int, arrival: float, prompt: int, output: int, priority: int, names: NDArray[np.int64]
    ) -> None:
        self.r, self.arrival, self.prompt, self.output = r, arrival, prompt, output
        self.rank = (priority, arrival, r)
        self.names = names  # of its full blocks (BlockNames.of)
        self.blocks = np.empty(names.size + 1, dtype=np.int32)
        self.n_blocks = self.n_cached = 0  # blocks held; of these, given their names
        self.computed = self.emitted = 0  # tokens with KV; output tokens so far
        self.owed = self.owed_pairs = 0  # its part of the engine's pending prefill
        self.scheduled = self.first_token = math.nan
        self.hit = self.prefilled = self.preemptions = 0

    @property
    def length(self) -> int:
        return self.prompt + self.emitted

    @property
    def is_decode(self) -> bool:
        """Only the token sampled last is left to compute."""
        return self.emitted > 0 and self.computed == self.prompt + self.emitted - 1
