"""Limited processor sharing: at most `limit` requests in service share an engine, the others queue in order.

Exact for exponential sizes; for other sizes an interpolation that is exact at limit 1 (Pollaczek-Khinchine)
and without a limit (processor sharing). Sources: Avi-Itzhak and Halfin 1988 and Zhang and Zwart 2008 for
constant capacity; Cohen 1979 for processor sharing whose speed depends on the number in service; the factor
(1 + scv)/2 on the wait is Lee and Longton's for M/G/c. Arrivals are Poisson: for bursts see mmpp.py; they
cost far more than any error made here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from agentctl.errors import UsageError

RARE_WAIT = 0.1  # below this probability of waiting the mean wait of non-exponential sizes is unreliable
CHECKED_SCV = 4.0  # the approximation was compared with simulations up to here
NEAR_SATURATION = 0.95


@dataclass(frozen=True)
class Lps:
    """One engine as a queue. Sizes may be in any unit of work: seconds alone, tokens, engine steps.

    size      mean work of a request
    capacity  work per second with 1, 2, ... requests in service; the last value holds for all beyond
    limit     most requests in service at once; None: no limit, nobody queues
    scv       squared coefficient of variation of the sizes (0 all equal, 1 exponential)

    Raises UsageError for values that no engine has.
    """

    size: float
    capacity: tuple[float, ...] = (1.0,)
    limit: int | None = None
    scv: float = 1.0

    def __post_init__(self) -> None:
        _check("size", self.size, self.size > 0, "work above 0")
        _check("scv", self.scv, self.scv >= 0, "0 or more")
        for speed in self.capacity or (math.nan,):
            _check("capacity", speed, speed > 0, "work per second above 0")
        if self.limit is not None:
            _check("limit", self.limit, self.limit >= 1, "at least one request in service")

    @property
    def saturation_rate(self) -> float:
        """Requests per second that the engine completes when everybody it admits is in service."""
        return float(self.service_rates()[-1])

    def service_rates(self) -> np.ndarray:
        """Completions per second with 1, 2, ... in the system; the last value holds for all beyond."""
        n = len(self.capacity) if self.limit is None else self.limit
        served = np.minimum(np.arange(n), len(self.capacity) - 1)
        return np.asarray(self.capacity, dtype=np.float64)[served] / self.size


@dataclass(frozen=True)
class Estimate:
    """What a queue does in the long run, in seconds and requests; None where it has no steady state.

    utilisation  rate / saturation rate; the queue is stable below 1
    p_wait       probability that a request waits for a place in service
    wait         mean time before service; response: mean time until it is done
    in_system, in_queue   mean numbers of requests (Little's law holds between them and the means)
    method       exact | approximate | unstable
    caveats      where the method is known to be poor, in words; empty when it is not
    """

    stable: bool
    utilisation: float
    p_wait: float | None = None
    wait: float | None = None
    response: float | None = None
    in_system: float | None = None
    in_queue: float | None = None
    method: str = "unstable"
    caveats: tuple[str, ...] = ()


def step_capacity(fixed: float, each: float, n: int) -> tuple[float, ...]:
    """Work per second with j = 1..n requests in service that all advance by one step each fixed + each*j s.

    The unit of work is a step. (0, 1) is one fair server, (1, 0) is one server for each.
    """
    if not (fixed >= 0 and each >= 0 and fixed + each > 0 and n >= 1):
        raise UsageError("a step takes no time", expected="fixed and each of 0 or more, one of them above 0")
    j = np.arange(1, n + 1)
    return tuple((j / (fixed + each * j)).tolist())


def estimate(model: Lps, rate: float) -> Estimate:
    """The steady state at `rate` Poisson arrivals per second: a birth-death process, then the factor for scv.

    p[n] is proportional to the product of rate / service rate over 1..n, geometric from the limit on.
    """
    check_rate(rate)
    service = model.service_rates()
    ratio = float(rate / service[-1])
    if ratio >= 1:
        return unstable(ratio)
    p = stationary(rate, service)
    n = np.arange(p.size)
    beyond = p[-1] * ratio / (1 - ratio)  # probability of more than the last n
    in_system = float(n @ p + beyond * (n[-1] + 1 / (1 - ratio)))
    if model.limit is None:
        in_queue, p_wait, factor = 0.0, 0.0, 1.0  # insensitive to the distribution of sizes
    else:
        in_queue, p_wait = float(beyond / (1 - ratio)), float(p[-1] / (1 - ratio))
        factor = (1 + model.scv) / 2
    in_system += (factor - 1) * in_queue
    in_queue *= factor
    return Estimate(
        stable=True,
        utilisation=ratio,
        p_wait=p_wait,
        wait=in_queue / rate,
        response=in_system / rate,
        in_system=in_system,
        in_queue=in_queue,
        method="exact" if is_exact(model) else "approximate",
        caveats=_caveats(model, ratio, p_wait),
    )


def stationary(rate: float, service: np.ndarray) -> np.ndarray:
    """Probabilities of 0, 1, ... len(service) in the system, at `service` completions per second from 1 on.

    Beyond, each is rate/service[-1] of the one before; all together are 1.
    """
    log_p = np.concatenate(([0.0], np.cumsum(np.log(rate / service))))
    p = np.exp(log_p - log_p.max())
    ratio = rate / service[-1]
    return p / (p.sum() + p[-1] * ratio / (1 - ratio))


def constant_capacity(rate: float, size: float, limit: int | None, scv: float = 1.0) -> Estimate:
    """The same for one server of constant speed, in closed form: work in seconds, rho = rate * size.

    wait = size * rho^limit / (1 - rho) * (1 + scv)/2; response = size / (1 - rho) * (1 - rho^limit) + wait.
    """
    check_rate(rate)
    model = Lps(size, (1.0,), limit, scv)
    rho = rate * size
    if rho >= 1:
        return unstable(rho)
    p_wait = 0.0 if limit is None else rho**limit
    wait = size * p_wait / (1 - rho) * (1 + scv) / 2
    response = size * (1 - p_wait) / (1 - rho) + wait
    return Estimate(
        stable=True,
        utilisation=rho,
        p_wait=p_wait,
        wait=wait,
        response=response,
        in_system=rate * response,
        in_queue=rate * wait,
        method="exact" if is_exact(model) else "approximate",
        caveats=_caveats(model, rho, p_wait),
    )


def is_exact(model: Lps) -> bool:
    return model.limit in (None, 1) or model.scv == 1


def unstable(utilisation: float) -> Estimate:
    return Estimate(
        stable=False, utilisation=utilisation, caveats=("more work arrives than the engine can do",)
    )


def check_rate(rate: float) -> None:
    _check("rate", rate, rate > 0, "arrivals per second above 0")


def _check(name: str, value: float, holds: bool, expected: str) -> None:
    if not (holds and math.isfinite(value)):
        raise UsageError(f"is {value}", place=name, expected=expected)


def _caveats(model: Lps, utilisation: float, p_wait: float) -> tuple[str, ...]:
    """Where the formula differs from simulations of two million requests, and by how much."""
    found = []
    if not is_exact(model):
        if p_wait < RARE_WAIT:
            found.append(
                "few requests wait, so the mean wait is unreliable: up to 20 % too low for equal sizes, "
                "75 % too high for scv 4 (about 0.02 of the size in all)"
            )
        elif model.scv > 1:
            found.append(
                "sizes vary more than exponential ones: wait up to 12 %, response up to 7 % too high"
            )
        if model.scv > CHECKED_SCV:
            found.append(f"never compared with simulation beyond scv {CHECKED_SCV:g}")
    if utilisation > NEAR_SATURATION:
        found.append(
            "close to saturation: an error of 1 % in rate or capacity moves the result by 20 % or more"
        )
    return tuple(found)
