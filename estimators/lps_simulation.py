"""Limited processor sharing played through: for quantiles and sizes that no formula covers."""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np
from numba import njit

from agentctl.errors import UsageError
from agentctl.estimators.lps import Lps, check_rate

WARM_UP = 0.1  # share of the requests that fill the empty queue and are not counted


class Played(NamedTuple):
    """Seconds of each request, in order of arrival."""

    wait: np.ndarray
    response: np.ndarray


def simulate_lps(
    model: Lps,
    rate: float,
    n_requests: int = 400_000,
    seed: int = 0,
    sizes: np.ndarray | None = None,
    arrivals: np.ndarray | None = None,
) -> Played:
    """Waits and responses of `n_requests` after a warm-up; about 0.2 s of one core for 400,000.

    sizes     work of every request instead of random sizes with the model's mean and scv (`random_sizes`)
    arrivals  their times in seconds, ascending, instead of Poisson arrivals; nothing is warm-up then

    Raises UsageError when more work arrives than the engine can do, since the answer would only say how long
    the simulation lasted.
    """
    check_rate(rate)
    if rate >= model.saturation_rate:
        raise UsageError(f"is {rate:g} per second", place="rate", expected=f"below {model.saturation_rate:g}")
    random = np.random.default_rng(seed)
    warm_up = 0
    if arrivals is None:
        warm_up = int(n_requests * WARM_UP)
        arrivals = np.cumsum(random.exponential(1 / rate, n_requests + warm_up))
    if sizes is None:
        sizes = random_sizes(model.size, model.scv, arrivals.size, random)
    start, finish = np.empty(arrivals.size), np.empty(arrivals.size)
    capacity = np.asarray(model.capacity, dtype=np.float64)
    limit = arrivals.size if model.limit is None else model.limit
    serve(arrivals, sizes, capacity, limit, start, finish)
    return Played((start - arrivals)[warm_up:], (finish - arrivals)[warm_up:])


def random_sizes(mean: float, scv: float, n: int, random: np.random.Generator) -> np.ndarray:
    """Sizes with a given mean and scv: equal (0), gamma (below 1), exponential (1), hyperexponential (above).

    The last draws from two exponentials that carry half of the work each ("balanced means").
    """
    if scv == 0:
        return np.full(n, mean)
    if scv <= 1:
        return random.gamma(1 / scv, mean * scv, n)
    often = (1 + math.sqrt((scv - 1) / (scv + 1))) / 2
    short = random.random(n) < often
    return random.exponential(mean / 2, n) / np.where(short, often, 1 - often)


@njit(cache=True, nogil=True)
def serve(arrivals, sizes, capacity, limit, start, finish):
    """Fill `start` and `finish` (seconds) of requests served in order of arrival, `limit` at once.

    All in service attain the same amount of work per second, so one clock of attained work orders their ends.
    At one instant an end comes before an arrival.
    """
    n = arrivals.size
    ends = [(0.0, 0)]  # attained work at which a request is done, request
    ends.pop()
    clock = attained = 0.0
    arrived = started = 0
    while arrived < n or len(ends) > 0:
        speed = capacity[min(len(ends), capacity.size) - 1] / len(ends) if len(ends) > 0 else 0.0
        end = clock + (ends[0][0] - attained) / speed if len(ends) > 0 else np.inf
        if arrived < n and arrivals[arrived] < end:
            attained += speed * (arrivals[arrived] - clock)
            clock = arrivals[arrived]
            arrived += 1
        else:
            attained, request = heapq.heappop(ends)
            clock = end
            finish[request] = clock
        if len(ends) == 0:
            attained = 0.0  # so that rounding errors do not pile up over a long run
        while started < arrived and len(ends) < limit:
            start[started] = clock
            heapq.heappush(ends, (attained + sizes[started], started))
            started += 1
