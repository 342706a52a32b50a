"""What one engine's estimates have lately been off, and a bound that they keep.

Any estimator of latency, any engine: `observe` takes each estimate with what then happened. The correction
follows an engine that became slower than it was when calibrated. The bound is split conformal prediction on
the ratio actual / estimate (Vovk et al. 2005; Lei et al. 2018): where ratios to come are exchangeable with
those kept, the asked share of requests stays below it, whatever the estimator. They are not while the load
changes: from 2 to 5 requests/s on the test's engine 84 % stayed below the bound for 90 %. Gate SLO decisions
on the bound and not on the estimate.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field

from agentctl.errors import UsageError

WEIGHT = 0.05  # of the newest ratio in the moving average
FEWEST = 200  # ratios before a bound is given, and
MOST = 4096  # kept: as in SFS's reserve for the tail
LARGEST = math.log(4)  # a ratio beyond counts as this: a stall is no slower engine


@dataclass
class Correction:
    """One engine's; `mean_log` is the moving average of log(actual / estimate)."""

    mean_log: float = 0.0
    _ratios: deque[float] = field(default_factory=deque)  # in order of time
    _ranked: list[float] = field(default_factory=list)  # the same in order of size

    def observe(self, estimate: float, actual: float) -> None:
        """Uncorrected seconds as estimated, and as measured. Estimates that were infinite teach nothing."""
        if not (estimate > 0 and actual > 0 and math.isfinite(actual)):
            raise UsageError(f"are {estimate} and {actual}", place="estimate and actual", expected="seconds")
        if math.isinf(estimate):
            return
        log = math.log(actual / estimate)
        self.mean_log += WEIGHT * (max(-LARGEST, min(log, LARGEST)) - self.mean_log)
        self._ratios.append(actual / estimate)
        insort(self._ranked, actual / estimate)
        if len(self._ratios) > MOST:
            del self._ranked[bisect_left(self._ranked, self._ratios.popleft())]

    def corrected(self, estimate: float) -> float:
        """Seconds as the engine has lately taken them."""
        return estimate * math.exp(self.mean_log)

    def upper(self, estimate: float, share: float) -> float | None:
        """Seconds that a share of requests does not exceed; None while there is too little to tell from."""
        if not 0 < share < 1:
            raise UsageError(f"is {share}", place="share", expected="above 0 and below 1")
        n = len(self._ratios)
        rank = math.ceil((n + 1) * share)
        if n < FEWEST or rank > n:
            return None
        return estimate * self._ranked[rank - 1]
