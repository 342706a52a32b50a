"""How far a fitted batch-time model is from steps it has not seen, and what its coefficients are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agentctl.estimators.batch_fit import HUBER, Coefficients, fit, weights
from agentctl.estimators.steps import KINDS, Floats, Steps

FOLDS = 5
BLOCK_ROWS = 20  # a block of time: neighbours share a disturbance, so they are held out together
MOST_BLOCKS = 100  # of a log with times; a grid without times has blocks of BLOCK_ROWS
SIZES = (1, 16, 128, 1024)  # lower edges of the bands of tokens computed in a step
INSEPARABLE = 1e-6  # share of a column that the others do not explain
STALL_SPREADS = 6.0  # spreads of its kind of step beyond which a step is a stall,
STALL_RATIO = 1.3  # and this much longer than predicted
MOST_STALLS = 0.02  # more than this share is no stall but a wrong model


@dataclass(frozen=True)
class Errors:
    """Of predicted seconds against measured ones; bias is the mean signed relative error."""

    rows: int
    mape: float
    median_ape: float
    bias: float
    r2: float | None  # of seconds; None when all are equal


def errors(predicted: Floats, measured: Floats) -> Errors | None:
    """None of no rows."""
    if not len(measured):
        return None
    relative = predicted / measured - 1
    total = float(((measured - measured.mean()) ** 2).sum())
    residual = float(((measured - predicted) ** 2).sum())
    return Errors(
        len(measured),
        float(np.abs(relative).mean()),
        float(np.median(np.abs(relative))),
        float(relative.mean()),
        1 - residual / total if total > 0 else None,
    )


def blocks_of_time(steps: Steps) -> np.ndarray:
    """Number of the block of neighbouring steps that each belongs to, int64[n]."""
    n = len(steps)
    size = max(BLOCK_ROWS, n // MOST_BLOCKS) if np.isfinite(steps.time_s).all() else BLOCK_ROWS
    size = max(1, min(size, n // (2 * FOLDS)))
    return np.arange(n) // size


def held_out(steps: Steps, names: Sequence[str], prior: Mapping[str, float] | None = None) -> Floats:
    """Seconds of each step, predicted by the model fitted without its fold: every fifth block of time."""
    fold = blocks_of_time(steps) % FOLDS
    predicted = np.empty(len(steps))
    for left_out in range(FOLDS):
        mine = fold == left_out
        predicted[mine] = fit(steps.at(~mine), names, prior).predict(steps.at(mine))
    return predicted


def by_region(predicted: Floats, steps: Steps) -> dict[str, Errors]:
    """Errors by kind of step, and by tokens computed in it; regions without a row are left out."""
    tokens, kind = steps.tokens, steps.kind
    found: dict[str, Errors | None] = {}
    for number, name in enumerate(KINDS):
        rows = kind == number
        found[name] = errors(predicted[rows], steps.seconds[rows])
    for low, high in zip(SIZES, (*SIZES[1:], np.inf), strict=True):
        rows = (tokens >= low) & (tokens < high)
        name = f"{low:,} tokens and more" if high == np.inf else f"{low:,} to {high - 1:,.0f} tokens"
        found[name] = errors(predicted[rows], steps.seconds[rows])
    return {name: value for name, value in found.items() if value}


def score(predicted: Floats, steps: Steps) -> float:
    """Mean relative error, weighted as the fit weighs steps: what chooses between models."""
    return float(np.average(np.abs(predicted / steps.seconds - 1), weights=weights(steps)))


def stalls(steps: Steps, model: Coefficients) -> np.ndarray:
    """Which steps lasted far longer than their kind does, bool[n]; none when they are too many for that."""
    ratio = steps.seconds / model.predict(steps)
    found = np.zeros(len(steps), bool)
    for number in range(len(KINDS)):
        rows = steps.kind == number
        if rows.any():
            middle = np.median(ratio[rows])
            spread = 1.4826 * np.median(np.abs(ratio[rows] - middle))
            found |= rows & (ratio > max(middle + STALL_SPREADS * spread, STALL_RATIO))
    return found if found.mean() <= MOST_STALLS else np.zeros(len(steps), bool)


@dataclass(frozen=True)
class Identification:
    """What the data say of each coefficient of a model."""

    condition: float  # of the scaled design; above 30 coefficients trade off against each other
    separable: dict[str, float]  # share of the column that the others do not explain; 0 of an unseen one


def identify(steps: Steps, model: Coefficients) -> Identification:
    rows = model.jacobian(steps) * np.sqrt(weights(steps))[:, None]
    norm = np.sqrt((rows**2).sum(axis=0))
    seen = norm > 0
    share = np.zeros(len(norm))
    if not seen.any():
        return Identification(np.inf, dict(zip(model.names, share, strict=True)))
    gram = (rows[:, seen] / norm[seen]).T @ (rows[:, seen] / norm[seen])
    values = np.linalg.eigvalsh(gram)
    condition = float(np.sqrt(values[-1] / values[0])) if values[0] > 1e-14 else np.inf
    share[seen] = 1 / np.diag(np.linalg.inv(gram + 1e-12 * np.eye(len(gram))))
    return Identification(condition, dict(zip(model.names, map(float, share), strict=True)))


def covariance(steps: Steps, model: Coefficients) -> Floats:
    """Sandwich covariance of the coefficients, robust to unequal spread and to disturbances that neighbouring
    steps share (clusters: blocks of time); float64[k, k], 0 in rows of coefficients at their bound 0."""
    k = len(model.names)
    result = np.zeros((k, k))
    rows = model.jacobian(steps)
    free = (model.values > 0) & (np.abs(rows).sum(axis=0) > 0)
    if not free.any():
        return result
    scale = np.sqrt((rows[:, free] ** 2).mean(axis=0))
    scaled, g = rows[:, free] / scale, weights(steps)
    error = model.predict(steps) / steps.seconds - 1
    bread = np.linalg.pinv((scaled * (g * (np.abs(error) <= HUBER))[:, None]).T @ scaled)
    block = blocks_of_time(steps)
    n_blocks = int(block.max()) + 1
    sums = np.zeros((n_blocks, scaled.shape[1]))
    np.add.at(sums, block, scaled * (g * np.clip(error, -HUBER, HUBER))[:, None])
    inner = bread @ (sums.T @ sums) @ bread * n_blocks / max(n_blocks - 1, 1)
    result[np.ix_(free, free)] = inner / np.outer(scale, scale)
    return result
