"""Limited processor sharing under bursts: arrivals switch between a low and a high rate (MMPP-2), exactly.

A quasi-birth-death process: the level is the number in the system, the phase is the rate in force. Source:
Neuts, Matrix-Geometric Solutions in Stochastic Models, 1981; R by the logarithmic reduction of Latouche and
Ramaswami 1993. Sizes are exponential: no correction for other sizes is known to hold under bursts. Poisson
formulas are wrong by a factor of 6 to 10 here already when the high rate is three times the low one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import expm
from scipy.optimize import brentq

from agentctl.errors import UsageError
from agentctl.estimators.lps import NEAR_SATURATION, Estimate, Lps, unstable
from agentctl.estimators.lps_tail import Quantile, check_share

CONVERGED = 1e-15
EVEN = np.ones(2)


@dataclass(frozen=True)
class Mmpp2:
    """Poisson arrivals whose rate per second is low or high; switches per second between the two states.

    Raises UsageError unless 0 <= low_rate <= high_rate, high_rate > 0 and both switching rates are above 0.
    """

    low_rate: float
    high_rate: float
    to_high: float
    to_low: float

    def __post_init__(self) -> None:
        if not (0 <= self.low_rate <= self.high_rate < np.inf and self.high_rate > 0):
            raise UsageError(
                f"are {self.low_rate} and {self.high_rate}",
                place="rates",
                expected="0 <= low <= high, not both 0",
            )
        if not (0 < self.to_high < np.inf and 0 < self.to_low < np.inf):
            raise UsageError(
                f"are {self.to_high} and {self.to_low}", place="switching rates", expected="numbers above 0"
            )

    @classmethod
    def bursty(cls, rate: float, ratio: float, high_share: float = 0.2, correlation_s: float = 2.0) -> Mmpp2:
        """Mean `rate`, high/low `ratio`, share of time in the high state, correlation time of the rate.

        The defaults are those of the latency-aware routing paper (SFS), which uses ratios of 3 to 6.
        """
        if not (ratio >= 1 and 0 < high_share < 1 and correlation_s > 0):
            raise UsageError(
                f"ratio {ratio}, high share {high_share}, correlation time {correlation_s} s make no bursts",
                expected="ratio >= 1, a share between 0 and 1, a time above 0",
            )
        low = rate / (1 - high_share + high_share * ratio)
        return cls(low, ratio * low, high_share / correlation_s, (1 - high_share) / correlation_s)

    @property
    def high_share(self) -> float:
        return self.to_high / (self.to_high + self.to_low)

    @property
    def rate(self) -> float:
        """Mean arrivals per second."""
        return (1 - self.high_share) * self.low_rate + self.high_share * self.high_rate

    def dispersion(self, window_s: float = np.inf) -> float:
        """Variance over mean of the arrivals in windows of this length, in stationarity (1: Poisson).

        The rate's covariance is s^2 exp(-t/c) with s^2 = p (1 - p) (high - low)^2, p the high share and c the
        correlation time: 1 + 2 s^2 c/rate (1 - c/t (1 - exp(-t/c))) in windows of t.
        """
        c = 1 / (self.to_high + self.to_low)
        variance = self.high_share * (1 - self.high_share) * (self.high_rate - self.low_rate) ** 2
        settled = 1 - c / window_s * -np.expm1(-window_s / c) if window_s < np.inf else 1.0
        return float(1 + 2 * variance * c / self.rate * settled)

    @property
    def rates(self) -> np.ndarray:
        return np.array([self.low_rate, self.high_rate])

    @property
    def no_arrival(self) -> np.ndarray:
        """D0: transitions per second between the two states without an arrival."""
        switching = np.array([[-self.to_high, self.to_high], [self.to_low, -self.to_low]])
        return switching - np.diag(self.rates)


def estimate_mmpp(model: Lps, arrivals: Mmpp2) -> Estimate:
    """The steady state of the queue; the fields of an Estimate, exact for exponential sizes."""
    utilisation = arrivals.rate / model.saturation_rate
    if utilisation >= 1:
        return unstable(utilisation)
    levels, ratio = _solve(model, arrivals)
    last = len(levels) - 1
    beyond = np.linalg.inv(np.eye(2) - ratio)
    more = levels[-1] @ ratio @ beyond  # probability of more than `last`, by phase
    in_system = float(np.arange(last + 1) @ levels.sum(axis=1) + (last * more + more @ beyond) @ EVEN)
    if model.limit is None:
        p_wait, in_queue = 0.0, 0.0
    else:
        p_wait = float(levels[-1] @ beyond @ arrivals.rates / arrivals.rate)
        in_queue = float(more @ beyond @ EVEN)
    return Estimate(
        stable=True,
        utilisation=utilisation,
        p_wait=p_wait,
        wait=in_queue / arrivals.rate,
        response=in_system / arrivals.rate,
        in_system=in_system,
        in_queue=in_queue,
        method="exact" if model.scv == 1 else "approximate",
        caveats=_caveats(model, arrivals, utilisation),
    )


def mmpp_wait_quantile(model: Lps, arrivals: Mmpp2, p: float) -> Quantile:
    """Seconds that a share p of the requests does not wait longer than.

    A request that meets limit - 1 + m others waits for m ends, Erlang at the full service rate mu; with
    p[limit - 1 + m] = p[limit] R^(m - 1) the tail is p[limit] (I - R)^-1 exp(-mu (I - R) t) rates/rate.
    """
    check_share(p)
    found = estimate_mmpp(model, arrivals)
    if found.p_wait is None:
        return Quantile(p, None, found.method, found.caveats)
    if found.p_wait <= 1 - p:
        return Quantile(p, 0.0, found.method, found.caveats)
    levels, ratio = _solve(model, arrivals)
    rest = np.eye(2) - ratio
    start, end = levels[-1] @ np.linalg.inv(rest), arrivals.rates / arrivals.rate
    mu = model.saturation_rate

    def tail(t: float) -> float:
        return float(start @ expm(-mu * t * rest) @ end)

    above = 1 / mu
    while tail(above) > 1 - p:
        above *= 2
    return Quantile(p, float(brentq(lambda t: tail(t) - (1 - p), 0, above)), found.method, found.caveats)


def _solve(model: Lps, arrivals: Mmpp2) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities by level (number in the system) and phase up to the last level, and R beyond it.

    With R[n] = Lambda (mu[n] I - Q[n])^-1 level n is level n - 1 times R[n]. Q[n] = D0 + mu[n+1] R[n+1] moves
    the phase while the levels above n are left out; level 0 solves p Q[0] = 0. Its diagonal is made from the
    rest, since rounding errors of the row sums would grow by rate/mu from level to level. Levels are kept as
    directions and logarithms, since the first may underflow.
    """
    service = model.service_rates()
    come, stay = np.diag(arrivals.rates), arrivals.no_arrival
    ratio = _rate_matrix(come, stay - service[-1] * np.eye(2), service[-1])
    steps = np.empty((service.size, 2, 2))
    phases = _generator(stay + service[-1] * ratio)
    for n in range(service.size - 1, -1, -1):
        steps[n] = come @ np.linalg.inv(service[n] * np.eye(2) - phases)
        phases = _generator(stay + service[n] * steps[n])
    levels, log_weight = np.empty((service.size + 1, 2)), np.zeros(service.size + 1)
    levels[0] = np.array([phases[1, 0], phases[0, 1]]) / (phases[1, 0] + phases[0, 1])
    for n, step in enumerate(steps, start=1):
        level = levels[n - 1] @ step
        levels[n] = level / level.sum()
        log_weight[n] = log_weight[n - 1] + np.log(level.sum())
    levels *= np.exp(log_weight - log_weight.max())[:, None]
    beyond = levels[-1] @ ratio @ np.linalg.inv(np.eye(2) - ratio)
    return levels / (levels.sum() + beyond.sum()), ratio


def _generator(q: np.ndarray) -> np.ndarray:
    """Two phases and the moves between them, rows summing to 0."""
    return np.array([[-q[0, 1], q[0, 1]], [q[1, 0], -q[1, 0]]])


def _rate_matrix(up: np.ndarray, stay: np.ndarray, mu: float) -> np.ndarray:
    """R of the homogeneous levels: the least solution of up + R stay + mu R^2 = 0."""
    solved = np.linalg.inv(-stay)
    higher, lower = solved @ up, mu * solved
    first_passage, weight = lower, higher  # G: the phase in which the level below is reached
    while np.abs(weight).max() > CONVERGED:
        mixed = np.linalg.inv(np.eye(2) - higher @ lower - lower @ higher)
        higher, lower = mixed @ higher @ higher, mixed @ lower @ lower
        first_passage = first_passage + weight @ lower
        weight = weight @ higher
    return up @ np.linalg.inv(-stay - up @ first_passage)


def _caveats(model: Lps, arrivals: Mmpp2, utilisation: float) -> tuple[str, ...]:
    found = []
    if model.scv != 1:
        found.append("sizes are taken as exponential")
    if arrivals.high_rate > model.saturation_rate:
        found.append("bursts overload the engine: the backlog hangs on how long they last")
    if utilisation > NEAR_SATURATION:
        found.append("close to saturation: small errors of rate or capacity move the result much")
    return tuple(found)
