"""Times of a run of equal batches: decode steps whose contexts grow by one token each."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass


@dataclass(slots=True)
class Steps:
    """Step i (from 0) takes max(first + i * slope, host) seconds; the run begins at `start`.

    The GPU's part grows, so the host decides the first `n_host` steps and the GPU all others: the end of any
    step is in closed form.
    """

    start: float
    first: float
    slope: float
    host: float
    n_host: float = 0  # infinite when the GPU never catches up

    def __post_init__(self) -> None:
        if self.first >= self.host:
            return
        if self.slope <= 0:
            self.n_host = math.inf
            return
        n = math.ceil((self.host - self.first) / self.slope)
        while self.first + n * self.slope < self.host:  # the division may round either way
            n += 1
        while n > 0 and self.first + (n - 1) * self.slope >= self.host:
            n -= 1
        self.n_host = n

    def end(self, n: int) -> float:
        """When the first n steps have ended."""
        if n <= self.n_host:
            return self.start + n * self.host
        m = int(self.n_host)
        pairs = (n - m) * (m + n - 1) // 2
        return self.start + (m * self.host + (n - m) * self.first + pairs * self.slope)

    def n_ended(self, now: float, n_steps: int) -> int:
        """How many of the first n_steps have ended by `now`."""
        return bisect_right(range(1, n_steps + 1), now, key=self.end)
