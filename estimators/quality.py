"""How well a model will answer a request: predicted scores in 0..1, calibrated, with their error.

The mean score of the task on the model, moved towards what gradient boosting says of the request (prompt
length, turn, task, model, features of the user) as far as sessions left out bear that out: the weight is the
least-squares slope there, shrunk by its standard error (positive part of James and Stein 1961) to 0..1. Where
labels are noise the weight is 0, or near it, and the prediction is the task's mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from agentctl.estimators.held_out import HeldOut, Predictor, boosted, clustered_error, held_out, one_thread

BINS = 10
FEWEST_IN_BIN = 30  # labels
GROUND = ("none", "task mean", "labels")


class Pairs(NamedTuple):
    """(request, model) pairs, p of them.

    session   i64[p] number of the request's session
    task      i64[p], -1: unknown; model: i64[p]
    features  f64[p, k] what is known before the answer, NaN where unknown
    """

    session: np.ndarray
    task: np.ndarray
    model: np.ndarray
    features: np.ndarray

    def matrix(self) -> np.ndarray:
        """Features with task and model as categories in the last two columns. A column of which nothing is
        known is 0 throughout: trees cannot be grown on nothing."""
        task = np.where(self.task < 0, np.nan, self.task)
        features = np.where(np.isnan(self.features).all(axis=0), 0.0, self.features)
        return np.column_stack((features, task, self.model))

    @property
    def categorical(self) -> list[int]:
        return [self.features.shape[1], self.features.shape[1] + 1]


@dataclass(frozen=True)
class Quality:
    """Arrays over pairs; NaN where nothing is known.

    accuracy  predicted score; error: standard error of the mean score of pairs predicted alike, as sessions
              left out showed it, NaN where there were none
    ground    position in GROUND: where the prediction comes from
    baseline  the mean of the task on the model, from other sessions
    weight    {model: share of the way from the task's mean to the boosted score}, mean over folds
    """

    accuracy: np.ndarray
    error: np.ndarray
    ground: np.ndarray
    baseline: np.ndarray
    weight: np.ndarray


def quality_of(
    pairs: Pairs, score: np.ndarray, given: np.ndarray, fold: np.ndarray, folds: int, seed: int = 0
) -> Quality:
    """Predicted scores of all pairs.

    score  f64[p] labels, NaN where there is none
    given  f64[tasks, models] means of tasks, NaN where unknown: used where no label of other sessions is
    fold   fold of each pair's session (held_out.folds_of)
    """
    known = np.isfinite(score)
    means = _given(pairs, given)
    n_models = given.shape[1]
    if not known.any():
        unknown = np.full(score.size, np.nan)
        return Quality(means, unknown, np.isfinite(means).astype(np.int8), means, np.zeros(n_models))
    with one_thread():
        found = held_out(_learner(pairs, score, n_models, seed), fold, known, folds)
    mean = found.outer[:, 0]
    weights = _weights(pairs, score, known, fold, found, n_models)
    predicted = np.clip(mean + weights[fold, pairs.model] * (found.outer[:, 1] - mean), 0.0, 1.0)
    is_labelled = np.isfinite(mean)
    accuracy = np.where(is_labelled, predicted, means)
    ground = np.where(is_labelled, 2, np.isfinite(means)).astype(np.int8)
    error = _error(pairs, accuracy, score, known & is_labelled)
    error[~is_labelled] = np.nan
    return Quality(accuracy, error, ground, np.where(is_labelled, mean, means), weights.mean(axis=0))


def _given(pairs: Pairs, given: np.ndarray) -> np.ndarray:
    if given.shape[0] == 0:
        return np.full(pairs.task.size, np.nan)
    return np.where(pairs.task < 0, np.nan, given[pairs.task, pairs.model])


def _learner(pairs: Pairs, score: np.ndarray, n_models: int, seed: int) -> Any:
    """fit(rows) of held_out: predicts [mean of the group, boosted score]."""
    x = pairs.matrix()
    group = (pairs.task + 1) * n_models + pairs.model
    n_groups = int(group.max()) + 1

    def fit(rows: np.ndarray) -> Predictor:
        n = np.bincount(group[rows], minlength=n_groups)
        total = np.bincount(group[rows], weights=score[rows], minlength=n_groups)
        mean = np.divide(total, n, out=np.full(n_groups, np.nan), where=n > 0)
        move = boosted(x[rows], score[rows] - mean[group[rows]], "squared_error", seed, pairs.categorical)

        def predict(others: np.ndarray) -> np.ndarray:
            base = mean[group[others]]
            return np.column_stack((base, base + move(x[others])))

        return predict

    return fit


def _weights(
    pairs: Pairs, score: np.ndarray, known: np.ndarray, fold: np.ndarray, found: HeldOut, n_models: int
) -> np.ndarray:
    """f64[folds, models]: slope of (score - mean) over (boosted - mean) in the other folds, cautiously."""
    weights = np.zeros((found.inner.shape[0], n_models))
    for f, inner in enumerate(found.inner):
        moved, missed = inner[:, 1] - inner[:, 0], score - inner[:, 0]
        for m in range(n_models):
            rows = known & (pairs.model == m) & np.isfinite(moved)
            square = float(np.sum(moved[rows] ** 2))
            if square > 0:
                slope = float(np.sum(moved[rows] * missed[rows])) / square
                noise = moved[rows] * (missed[rows] - slope * moved[rows])
                sums = np.bincount(pairs.session[rows], weights=noise)
                variance = float(np.sum(sums**2)) / square**2
                if slope**2 > variance and slope > 0:
                    weights[f, m] = min(slope * (1 - variance / slope**2), 1.0)
    return weights


class Bin(NamedTuple):
    """Pairs predicted alike: how many, what was predicted, what was scored, and the latter's error."""

    low: float
    n: int
    predicted: float
    scored: float
    error: float


def reliability(predicted: np.ndarray, score: np.ndarray, session: np.ndarray, bins: int = BINS) -> list[Bin]:
    """Labelled pairs in bins of equally many by their prediction, equal predictions in one bin."""
    order = np.argsort(predicted, kind="stable")
    n_bins = max(1, min(bins, predicted.size // FEWEST_IN_BIN))
    edges = np.unique(predicted[order][[predicted.size * k // n_bins for k in range(n_bins)]])
    code = np.searchsorted(edges, predicted, side="right") - 1
    found = []
    for k, low in enumerate(edges):
        rows = code == k
        error = clustered_error(score[rows], session[rows])
        told = float(predicted[rows].mean()), float(score[rows].mean())
        found.append(Bin(float(low), int(rows.sum()), *told, error))
    return found


def calibration_error(bins: list[Bin]) -> float:
    """Expected calibration error: how far mean scores are from predictions, over bins of `reliability`."""
    n = sum(one.n for one in bins)
    return sum(one.n * abs(one.predicted - one.scored) for one in bins) / n


def _error(pairs: Pairs, accuracy: np.ndarray, score: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Of each pair: bias and sampling error of the mean score in its bin of its model, together."""
    error = np.full(accuracy.size, np.nan)
    for m in np.unique(pairs.model[known]):
        rows = known & (pairs.model == m)
        bins = reliability(accuracy[rows], score[rows], pairs.session[rows])
        size = np.array([np.hypot(one.predicted - one.scored, one.error) for one in bins])
        here = (pairs.model == m) & np.isfinite(accuracy)
        place = np.searchsorted([one.low for one in bins], accuracy[here], side="right") - 1
        error[here] = size[np.clip(place, 0, None)]
    return error
