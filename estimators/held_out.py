"""Predictions for sessions that were left out: folds, and models that saw neither one fold nor another.

Every prediction of a row comes from models that saw no row of its session; so does whatever corrects it.
A correction for fold f is learned from the other folds g, each predicted without g *and* f: one model for
each pair of folds serves both ways (nested cross-validation with folds (folds - 1) / 2 inner fits).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import GroupKFold
from threadpoolctl import threadpool_limits

from agentctl.errors import InputError

FEWEST_FOLDS = 3  # one to predict, one to correct by, one to learn from
Predictor = Callable[[np.ndarray], np.ndarray]  # rows -> predictions of them
Fit = Callable[[np.ndarray], Predictor]  # rows to learn from -> what predicts others


class HeldOut(NamedTuple):
    """Predictions [rows, columns].

    outer  of each row, by a model that did not see its fold
    inner  [folds, rows, columns]: inner[f] of rows known, by a model that saw neither their fold nor fold f;
           NaN in fold f itself, and where nothing is known
    """

    outer: np.ndarray
    inner: np.ndarray


def folds_of(
    sessions: np.ndarray, known: np.ndarray, folds: int, seed: int, what: str = "something to learn from"
) -> np.ndarray:
    """Fold of each row, 0 to folds - 1: sessions stay whole, and the known rows are spread evenly.

    sessions  number of each row's session; known: rows with `what`, to learn from
    Raises InputError where fewer sessions than folds have known rows.
    """
    if folds < FEWEST_FOLDS:
        raise InputError(f"{folds} parts to leave out in turn", expected=f"{FEWEST_FOLDS} at least")
    taught = np.unique(sessions[known])
    if taught.size < folds:
        raise InputError(
            f"{taught.size:,} sessions have {what}, for {folds} parts to be left out in turn",
            expected=f"a session for each part, {FEWEST_FOLDS} at least",
            hint="more labels, or fewer parts (--folds)",
        )
    of_session = np.full(int(sessions.max()) + 1, -1)
    rows = np.flatnonzero(known)
    name = np.random.default_rng(seed).permutation(int(sessions.max()) + 1)  # breaks ties of size
    split = GroupKFold(folds).split(rows, groups=name[sessions[rows]])
    for fold, (_, held_out) in enumerate(split):
        of_session[sessions[rows[held_out]]] = fold
    untaught = np.flatnonzero(of_session < 0)  # nothing is learned from these: any part will do
    of_session[untaught] = np.arange(untaught.size) % folds
    return of_session[sessions]


def held_out(fit: Fit, fold: np.ndarray, known: np.ndarray, folds: int, *, nested: bool = True) -> HeldOut:
    """Fit without each fold, and with `nested` without each pair of folds."""
    outer: np.ndarray | None = None
    inner: np.ndarray | None = None
    for f in range(folds):
        predict = fit(np.flatnonzero(known & (fold != f)))
        rows = np.flatnonzero(fold == f)
        found = predict(rows)
        if outer is None or inner is None:
            outer = np.full((fold.size, found.shape[1]), np.nan)
            inner = np.full((folds if nested else 0, *outer.shape), np.nan)
        outer[rows] = found
        for g in range(f + 1, folds if nested else 0):
            predict = fit(np.flatnonzero(known & (fold != f) & (fold != g)))
            for without, of in ((f, g), (g, f)):
                others = np.flatnonzero(known & (fold == of))
                if others.size:
                    inner[without, others] = predict(others)
    assert outer is not None and inner is not None
    return HeldOut(outer, inner)


def boosted(
    x: np.ndarray, y: np.ndarray, loss: str, seed: int, categorical: list[int], quantile: float | None = None
) -> Predictor:
    """Trees fitted to y of x: a function of other rows of features, f64[rows].

    Few small trees: labels are mostly noise. No early stopping: it would set rows aside at random.
    """
    told = np.flatnonzero(np.isfinite(x).any(axis=0))  # a column of which nothing is known splits nothing
    model = HistGradientBoostingRegressor(
        loss=loss,
        quantile=quantile,
        max_iter=60,
        learning_rate=0.08,
        max_leaf_nodes=8,
        min_samples_leaf=30,
        l2_regularization=1.0,
        early_stopping=False,
        categorical_features=np.isin(told, categorical),
        random_state=seed,
    )
    model.fit(x[:, told], y)
    return lambda others: model.predict(others[:, told])


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums over several threads differ in their last bits with the number of threads."""
    with threadpool_limits(limits=1):
        yield


def clustered_error(values: np.ndarray, clusters: np.ndarray) -> float:
    """Standard error of the mean of `values`, of independent clusters (sessions); NaN for one cluster."""
    names, code = np.unique(clusters, return_inverse=True)
    if names.size < 2:
        return float("nan")
    sums = np.bincount(code, weights=values - values.mean())
    return float(np.sqrt(names.size / (names.size - 1) * np.sum(sums**2)) / values.size)
