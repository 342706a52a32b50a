"""Percentiles of a sample, and its curve in a figure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from agentctl.present import Curve

N_CURVE_POINTS = 200  # enough for the eye, small enough for a report


@dataclass(frozen=True)
class Distribution:
    """Nearest-rank percentiles (every one is a value of the sample), in the unit of the key that holds it."""

    count: int
    mean: float
    p10: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def distribution(values: ArrayLike) -> Distribution | None:
    """The distribution of the known (not NaN) values; None when there is none."""
    known = _known(values)
    if known.size == 0:
        return None
    p10, p50, p90, p95, p99 = quantiles(known, (0.10, 0.50, 0.90, 0.95, 0.99))
    return Distribution(known.size, float(known.mean()), p10, p50, p90, p95, p99, float(known.max()))


def part(of: Distribution | None, name: str) -> float | None:
    """One number of a distribution that may be missing."""
    return None if of is None else float(getattr(of, name))


def quantiles(values: ArrayLike, shares: tuple[float, ...]) -> tuple[float, ...]:
    """Nearest rank: the smallest value that at least this share of the sample does not exceed."""
    return tuple(float(q) for q in np.quantile(_known(values), shares, method="inverted_cdf"))


def median(values: ArrayLike) -> float | None:
    known = _known(values)
    return quantiles(known, (0.5,))[0] if known.size else None


def cdf_curve(name: str, values: ArrayLike) -> Curve:
    """The share of the sample at or below x, at no more than N_CURVE_POINTS of its values."""
    known = np.sort(_known(values))
    if known.size == 0:
        return Curve(name, (), ())
    places = np.unique(np.linspace(0, known.size - 1, min(known.size, N_CURVE_POINTS)).astype(np.int64))
    shares = (places + 1) / known.size
    return Curve(name, tuple(known[places].tolist()), tuple(shares.tolist()))


def _known(values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    return array[~np.isnan(array)]
