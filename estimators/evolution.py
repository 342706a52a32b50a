"""A minimum of a function that is rugged: evolution with an adapted covariance (CMA-ES) inside a box.

N. Hansen, "The CMA Evolution Strategy: A Tutorial" (arXiv 1604.00772), with its default constants and without
negative weights. Points outside of the box are moved to its edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

LEAST_OFFSPRING = 12
DONE = 5e-3  # largest spread at which the search ends


class Constants(NamedTuple):
    offspring: int
    weights: F64  # of the better half
    effective: float  # parents
    sigma_rate: float
    sigma_damping: float
    path_rate: float
    one_rate: float
    many_rate: float
    expected_length: float  # of a normal vector


def minimise(
    cost: Callable[[F64], float], start: F64, low: F64, high: F64, spread: float, generations: int, seed: int
) -> tuple[F64, float]:
    """The best point met and its cost, from `start` with standard deviation `spread` in every direction."""
    n = start.size
    c = constants(n)
    rng = np.random.default_rng(seed)
    mean, sigma, covariance = start.copy(), spread, np.eye(n)
    path, sigma_path = np.zeros(n), np.zeros(n)
    best, least = mean, cost(mean)
    for generation in range(1, generations + 1):
        squares, axes = np.linalg.eigh(covariance)
        lengths = np.sqrt(np.maximum(squares, 1e-20))
        points = mean + sigma * (rng.standard_normal((c.offspring, n)) * lengths) @ axes.T
        points = np.clip(points, low, high)
        costs = np.array([cost(x) for x in points])
        order = np.argsort(costs, kind="stable")
        if costs[order[0]] < least:
            best, least = points[order[0]].copy(), float(costs[order[0]])
        steps = (points[order[: c.weights.size]] - mean) / sigma
        step = c.weights @ steps
        mean = mean + sigma * step
        white = axes @ ((axes.T @ step) / lengths)
        sigma_path = (1 - c.sigma_rate) * sigma_path
        sigma_path += math.sqrt(c.sigma_rate * (2 - c.sigma_rate) * c.effective) * white
        length = float(np.linalg.norm(sigma_path))
        still = math.sqrt(1 - (1 - c.sigma_rate) ** (2 * generation))
        is_short = length / still < (1.4 + 2 / (n + 1)) * c.expected_length
        path = (1 - c.path_rate) * path
        path += is_short * math.sqrt(c.path_rate * (2 - c.path_rate) * c.effective) * step
        lost = (1 - is_short) * c.path_rate * (2 - c.path_rate)
        covariance = (
            (1 - c.one_rate - c.many_rate + c.one_rate * lost) * covariance
            + c.one_rate * np.outer(path, path)
            + c.many_rate * (steps.T * c.weights) @ steps
        )
        sigma *= math.exp(c.sigma_rate / c.sigma_damping * (length / c.expected_length - 1))
        if sigma * math.sqrt(float(np.diag(covariance).max())) < DONE:
            break
    return best, least


def constants(n: int) -> Constants:
    """The tutorial's defaults for n dimensions (its Table 1)."""
    offspring = max(4 + int(3 * math.log(n)), LEAST_OFFSPRING)
    half = offspring // 2
    weights = math.log(half + 0.5) - np.log(np.arange(1, half + 1))
    weights /= weights.sum()
    effective = float(1 / (weights**2).sum())
    sigma_rate = (effective + 2) / (n + effective + 5)
    one_rate = 2 / ((n + 1.3) ** 2 + effective)
    return Constants(
        offspring,
        weights,
        effective,
        sigma_rate,
        1 + 2 * max(0.0, math.sqrt((effective - 1) / (n + 1)) - 1) + sigma_rate,
        (4 + effective / n) / (n + 4 + 2 * effective / n),
        one_rate,
        min(1 - one_rate, 2 * (effective - 2 + 1 / effective) / ((n + 2) ** 2 + effective)),
        math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n)),
    )
