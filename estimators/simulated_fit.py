"""Coefficients of a simulation that reproduce what was measured: a fit through runs of the simulator.

What is minimised is a sum of squared relative errors, Huber beyond `BEND`, plus the distance to a prior. It
is rugged: a coefficient that moves a batch by a little may move a request into another one. So the box is
scanned by a space-filling sequence, evolution goes on from the best places, and all is done in logarithms.
Same input and seed, same result.

Intervals are profile likelihoods: a coefficient is held where it is tried and all others are fitted again.
Errors of requests that share batches are alike, so that they count as fewer, by their autocorrelation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, qmc

from agentctl.estimators.evolution import minimise

F64 = NDArray[np.float64]
Ends = tuple[float | None, float | None]
# Of coefficients: relative errors by kind, each over the same units in the order of time.
Errors = Callable[[dict[str, float]], Sequence[F64]]

BEND = 0.05  # relative error beyond which it counts with its size, no longer with its square
SCAN = 256  # points of the box, a power of two
STARTS = 3  # the best of them that are no neighbours, and the prior: from these evolution goes on
APART = 1.0  # in logarithms, between two starts
WIDELY, CLOSELY = (1.0, 40), (0.5, 80)  # spread and generations of evolution, from all and then from the best
RUGGED, N_RUGGED = 0.2, 12  # standard errors, and number of places around the best: how rugged it is there
AGAIN = ((0.03, 1), (0.01, 1))  # when one coefficient is held: Gauss-Newton with differences so wide, steps
SLOPE_WIDTH = 0.03  # of the differences at the best place
LONGEST = 0.7  # step, in logarithms
DAMPING = (1e-2, 1e-1, 1.0)
GAIN = 1e-3  # of the cost: with less a width is done
PRIOR_ERRORS = 20  # one spread off the prior costs as much as so many errors of BEND
LEVEL = 0.90
SHORTEST, MOST_TRIES = 0.02, 6  # distances at which a coefficient is held, each twice the one before
NOISE_FLOOR = 0.005  # relative errors below are not noise but luck


@dataclass(frozen=True)
class Box:
    """Where a coefficient may lie, both above 0, and where a prior has it: its middle, and how far in
    logarithms it may reasonably be off; None: no prior."""

    low: float
    high: float
    prior: float | None = None
    spread: float | None = None


@dataclass(frozen=True)
class SimulatedFit:
    """values   the best coefficients
    interval  of each at LEVEL, alone; None: the errors do not rise up to the end of the box
    cost      at the best values
    noise     typical relative error there
    n_errors, n_independent  errors, and as how many they count
    n_runs    of the simulator
    starts    cost that each search from afar ended with
    condition  of the slopes of the errors, each scaled to 1: with a large one coefficients trade off
    is_rugged  cost next to the best place jumps by more than an interval allows: intervals are too narrow
    """

    values: dict[str, float]
    interval: dict[str, Ends]
    cost: float
    noise: float
    n_errors: int
    n_independent: float
    n_runs: int
    starts: tuple[float, ...]
    condition: float
    is_rugged: bool = False

    @property
    def unseen(self) -> list[str]:
        """Coefficients that may be anything in their box."""
        return [name for name, ends in self.interval.items() if ends == (None, None)]


def fit_simulated(
    errors: Errors,
    boxes: Mapping[str, Box],
    seed: int = 0,
    intervals: bool = True,
    n_starts: int = STARTS,
    note: Callable[[str], None] = lambda said: None,
) -> SimulatedFit:
    """Search the boxes for the coefficients with the least errors; without `intervals` all ends are None.

    note  is told what comes next
    """
    search = _Search(errors, boxes)
    note("scanning the box of coefficients")
    starts = search.starts(seed, n_starts)
    found = []
    for number, start in enumerate(starts, start=1):
        note(f"search {number} of {len(starts)}")
        found.append(search.evolve(start, *WIDELY, seed))
    found.sort(key=lambda one: one[1])
    note("search from the best place")
    found.append(min(search.evolve(found[0][0], *CLOSELY, seed + 1), found[0], key=lambda one: one[1]))
    best, cost = found[-1]
    rest = search.errors_at(best)
    noise = max(float(np.sqrt(np.mean(np.minimum(np.abs(rest), 3 * BEND) ** 2))), NOISE_FLOOR)
    independent = min(kind.size / correlation_time(kind) for kind in search.kinds(rest))
    ends: dict[str, Ends] = dict.fromkeys(boxes, (None, None))
    is_rugged = False
    slopes = search.slopes(best, np.arange(best.size), SLOPE_WIDTH)
    if intervals:
        note("intervals of the coefficients")
        ends, is_rugged = _intervals(search, best, cost, slopes, noise**2 * len(rest) / independent, seed)
    return SimulatedFit(
        dict(zip(boxes, map(float, np.exp(best)), strict=True)),
        ends, float(cost), noise, len(rest), independent, search.n_runs, tuple(c for _, c in found[:-1]),
        float(np.linalg.cond(slopes / np.maximum(np.linalg.norm(slopes, axis=0), 1e-300))), is_rugged,
    )  # fmt: skip


class _Search:
    def __init__(self, errors: Errors, boxes: Mapping[str, Box]) -> None:
        self.names = list(boxes)
        self.low = np.log([box.low for box in boxes.values()])
        self.high = np.log([box.high for box in boxes.values()])
        self._errors = errors
        self._prior = np.array([np.log(box.prior) if box.prior else 0.0 for box in boxes.values()])
        self._spread = np.array([box.spread or np.inf for box in boxes.values()])
        self.n_runs = 0
        self._sizes: list[int] = []

    def errors_at(self, x: F64) -> F64:
        self.n_runs += 1
        kinds = self._errors(dict(zip(self.names, map(float, np.exp(x)), strict=True)))
        self._sizes = [kind.size for kind in kinds]
        return np.concatenate(kinds)

    def rest(self, x: F64) -> F64:
        """Errors, then how far each coefficient is from its prior: from afar it pulls but little."""
        spreads = (x - self._prior) / self._spread
        pull = PRIOR_ERRORS**0.5 * BEND * np.sign(spreads) * np.sqrt(np.log1p(spreads**2))
        return np.concatenate([self.errors_at(x), pull])

    def cost(self, rest: F64) -> float:
        size = np.abs(rest)
        huber = np.where(size < BEND, size**2, BEND * (2 * size - BEND))
        huber[-len(self.names) :] = rest[-len(self.names) :] ** 2
        return float(huber.sum())

    def kinds(self, rest: F64) -> list[F64]:
        """Errors by kind, as they were returned."""
        return np.split(rest, np.cumsum(self._sizes)[:-1])

    def evolve(self, start: F64, spread: float, generations: int, seed: int) -> tuple[F64, float]:
        return minimise(self.cost_at, start, self.low, self.high, spread, generations, seed)

    def cost_at(self, x: F64) -> float:
        return self.cost(self.rest(x))

    def starts(self, seed: int, n: int) -> list[F64]:
        """The prior, and the best points of a scan that are no neighbours."""
        points = self.low + (self.high - self.low) * qmc.Sobol(len(self.names), seed=seed).random(SCAN)
        order = np.argsort([self.cost_at(x) for x in points], kind="stable")
        has_prior = np.isfinite(self._spread)
        chosen = [np.where(has_prior, self._prior, points[order[0]])] if has_prior.any() else []
        for x in points[order]:
            if len(chosen) < n and all(np.abs(x - other).max() > APART for other in chosen):
                chosen.append(x)
        return chosen

    def descend(self, x: F64, held: int) -> tuple[F64, float]:
        """Damped Gauss-Newton from x; the coefficient `held` stays."""
        free = np.array([k for k in range(len(x)) if k != held])
        rest = self.rest(x)
        cost = self.cost(rest)
        for width, steps in AGAIN:
            for _ in range(steps):
                better = self._step(x, rest, cost, self.slopes(x, free, width), free)
                if better is None:
                    break
                gain = cost - better[2]
                x, rest, cost = better
                if gain < GAIN * cost:
                    break
        return x, cost

    def slopes(self, x: F64, free: NDArray[np.int64], width: float) -> F64:
        columns = []
        for k in free:
            above, below = x.copy(), x.copy()
            above[k], below[k] = min(x[k] + width, self.high[k]), max(x[k] - width, self.low[k])
            columns.append((self.rest(above) - self.rest(below)) / (above[k] - below[k]))
        return np.column_stack(columns)

    def _step(
        self, x: F64, rest: F64, cost: float, slopes: F64, free: NDArray[np.int64]
    ) -> tuple[F64, F64, float] | None:
        """The first step that is better, with more and more damping; None: there is none."""
        weight = np.minimum(1, BEND / np.maximum(np.abs(rest), 1e-300))
        weight[-len(self.names) :] = 1
        square, gradient = (slopes.T * weight) @ slopes, (slopes.T * weight) @ rest
        for damping in DAMPING:
            step = -np.linalg.solve(square + np.diag(damping * np.diag(square) + 1e-9), gradient)
            y = x.copy()
            y[free] = np.clip(x[free] + np.clip(step, -LONGEST, LONGEST), self.low[free], self.high[free])
            rest_y = self.rest(y)
            if (cost_y := self.cost(rest_y)) < cost:
                return y, rest_y, cost_y
        return None


def _intervals(
    search: _Search, best: F64, found: float, slopes: F64, scale: float, seed: int
) -> tuple[dict[str, Ends], bool]:
    """(Where each coefficient's profile rises by what LEVEL allows, whether that says little.)

    Above what is met next to the best place, whose own cost `found` is the luck of many tries; where that
    luck is more than what is allowed, a better place may lie far away that no try has met.
    """
    allowed = float(chi2.ppf(LEVEL, 1)) * scale
    covariance = np.linalg.pinv(slopes.T @ slopes, rcond=1e-9)
    squares, axes = np.linalg.eigh(covariance)
    errors = np.minimum(np.sqrt(scale * np.maximum(squares, 0)), 1.0)
    around = (
        best + RUGGED * (np.random.default_rng(seed).standard_normal((N_RUGGED, best.size)) * errors) @ axes.T
    )
    cost = float(np.median([search.cost_at(np.clip(x, search.low, search.high)) for x in around]))
    ends: dict[str, Ends] = {}
    for k, name in enumerate(search.names):
        variance = max(float(covariance[k, k]), 1e-12)
        direction = covariance[:, k] / variance  # of the others while k moves by 1
        direction[k] = 1.0
        first = float(np.clip(np.sqrt(allowed * variance), SHORTEST, LONGEST))
        low, high = (_end(search, best, cost, allowed, k, sign * direction, first) for sign in (-1, 1))
        ends[name] = (low, high)
    return ends, cost - found > allowed


def _end(
    search: _Search, best: F64, cost: float, allowed: float, k: int, direction: NDArray[Any], distance: float
) -> float | None:
    """Held further and further away until the cost has risen enough; between two tries it is a parabola.
    None where the box ends before that."""
    limit = search.high[k] - best[k] if direction[k] > 0 else best[k] - search.low[k]
    before, risen_before = 0.0, 0.0
    for number in range(MOST_TRIES):
        is_last = distance >= limit or number == MOST_TRIES - 1
        distance = limit if is_last else distance
        x = np.clip(best + distance * direction, search.low, search.high)
        _, held_cost = search.descend(x, held=k)
        risen = max(held_cost - cost, 0.0)
        if risen >= allowed:
            root_before, root = np.sqrt(risen_before), np.sqrt(risen)
            share = (np.sqrt(allowed) - root_before) / max(root - root_before, 1e-300)
            return float(np.exp(best[k] + direction[k] * (before + share * (distance - before))))
        if is_last:
            return None
        before, risen_before, distance = distance, max(risen, risen_before), 2 * distance
    return None


def correlation_time(errors: F64) -> float:
    """Neighbours that carry the same error, at least 1: 1 + 2 * sum of the autocorrelations up to the first
    that is not positive (Geyer's initial positive sequence, without pairs)."""
    centred = errors - errors.mean()
    power = float(centred @ centred)
    total = 1.0
    for lag in range(1, len(errors) // 2 if power else 0):
        rho = float(centred[:-lag] @ centred[lag:]) / power
        if rho <= 0:
            break
        total += 2 * rho
    return total
