"""How long an answer gets: mean, median and a high quantile of its tokens, from what is known before it.

Gradient boosting on prompt length, turn, task, model and the session's earlier answers: the mean with the
gamma deviance, quantiles with the pinball loss on log(1 + tokens), which keeps quantiles quantiles. A fitted
quantile covers less outside of what it was fitted on; it is moved by the same quantile of what it missed in
sessions left out (conformalized quantile regression, Romano, Patterson and Candès 2019, one-sided, with the
residuals of nested folds as in CV+, Barber et al. 2021), for each task on each model with enough of them
(Mondrian, Vovk et al. 2003). Coverage is of requests: those of one session are alike, and sessions are what
is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agentctl.errors import InputError
from agentctl.estimators.held_out import Fit, Predictor, boosted, held_out, one_thread
from agentctl.estimators.quality import Pairs

FEWEST = 50  # answers of known length to learn from
FEWEST_IN_GROUP = 100  # answers of a task on a model for a correction of their own


@dataclass(frozen=True)
class OutputLength:
    """Predicted tokens of pairs, NaN where the model has no answer of known length.

    mean, median, high  of the answer's tokens; level: which quantile `high` is
    plain_mean, plain_median, plain_high  those of the task on the model in other sessions: what to beat
    correction  {model: factor by which `high` was moved (of 1 + tokens), median over its pairs}
    """

    mean: np.ndarray
    median: np.ndarray
    high: np.ndarray
    level: float
    plain_mean: np.ndarray
    plain_median: np.ndarray
    plain_high: np.ndarray
    correction: np.ndarray


def output_length_of(
    pairs: Pairs, tokens: np.ndarray, fold: np.ndarray, folds: int, *, level: float = 0.9, seed: int = 0
) -> OutputLength:
    """Predicted lengths of all pairs.

    tokens  f64[p] tokens of the answer where there is something to learn from, else NaN; 0 counts as 1
    fold    fold of each pair's session (held_out.folds_of)
    Raises InputError where fewer than FEWEST lengths are known.
    """
    known = np.isfinite(tokens)
    if known.sum() < FEWEST:
        raise InputError(
            f"the length of {int(known.sum()):,} answers is known",
            expected=f"{FEWEST} at least, to predict others from",
            hint="output_tokens in the log or in the labels",
        )
    y = np.maximum(tokens, 1.0)
    group = _groups(pairs, known)
    with one_thread():
        mean = held_out(_mean(pairs, y, seed), fold, known, folds, nested=False).outer[:, 0]
        plain = held_out(_plain(group, y, level), fold, known, folds, nested=False).outer
        quantiles, corrections = [], []
        for q in (0.5, level):
            found = held_out(_quantile(pairs, np.log1p(y), q, seed), fold, known, folds)
            moved = _corrections(found.inner[:, :, 0], np.log1p(y), known, group, fold, q)
            quantiles.append(np.maximum(np.expm1(found.outer[:, 0] + moved), 1.0))
            corrections.append(moved)
    is_taught = np.isin(pairs.model, np.unique(pairs.model[known]))
    median, high = quantiles
    of_model = [
        np.exp(np.median(corrections[1][pairs.model == m])) for m in range(int(pairs.model.max()) + 1)
    ]

    def taught(values: np.ndarray) -> np.ndarray:
        return np.where(is_taught, values, np.nan)

    return OutputLength(
        mean=taught(mean),
        median=taught(median),
        high=taught(np.maximum(median, high)),
        level=level,
        plain_mean=taught(plain[:, 0]),
        plain_median=taught(plain[:, 1]),
        plain_high=taught(plain[:, 2]),
        correction=np.array(of_model),
    )


def _groups(pairs: Pairs, known: np.ndarray) -> np.ndarray:
    """i64[3, p]: number of the pair's task and model, of its model, and 0 for all."""
    n_models = int(pairs.model.max()) + 1
    return np.stack(((pairs.task + 1) * n_models + pairs.model, pairs.model, np.zeros_like(pairs.model)))


def _mean(pairs: Pairs, y: np.ndarray, seed: int) -> Fit:
    """The boosted mean, scaled so that each model's tokens add up to what they were: a cost is their sum."""
    x = pairs.matrix()

    def fit(rows: np.ndarray) -> Predictor:
        guess = boosted(x[rows], y[rows], "gamma", seed, pairs.categorical)
        told, was = (
            np.bincount(pairs.model[rows], weights=tokens, minlength=int(pairs.model.max()) + 1)
            for tokens in (guess(x[rows]), y[rows])
        )
        balance = np.divide(was, told, out=np.ones(told.size), where=told > 0)
        return lambda others: (guess(x[others]) * balance[pairs.model[others]])[:, None]

    return fit


def _quantile(pairs: Pairs, y: np.ndarray, q: float, seed: int) -> Fit:
    x = pairs.matrix()

    def fit(rows: np.ndarray) -> Predictor:
        guess = boosted(x[rows], y[rows], "quantile", seed, pairs.categorical, q)
        return lambda others: guess(x[others])[:, None]

    return fit


def _plain(group: np.ndarray, y: np.ndarray, level: float) -> Fit:
    """Mean, median and high quantile of the task on the model, else of the model, else of all."""

    def fit(rows: np.ndarray) -> Predictor:
        told = np.full((*group.shape, 3), np.nan)
        for g, into in zip(group, told, strict=True):
            for one in np.unique(g[rows]):
                part = y[rows][g[rows] == one]
                into[g == one] = part.mean(), conformal(part, 0.5), conformal(part, level)
        narrow, wider, widest = told
        found = np.where(np.isnan(narrow), np.where(np.isnan(wider), widest, wider), narrow)
        return lambda others: found[others]

    return fit


def _corrections(
    inner: np.ndarray, y: np.ndarray, known: np.ndarray, group: np.ndarray, fold: np.ndarray, q: float
) -> np.ndarray:
    """f64[p]: what is added to each prediction, from the residuals of other folds in the narrowest group of
    the pair that has enough of them."""
    moved = np.zeros(y.size)
    for f, predicted in enumerate(inner):
        here = fold == f
        rows = known & ~here & np.isfinite(predicted)
        missed = y[rows] - predicted[rows]
        for g in group[::-1]:  # from wide to narrow
            for one in np.unique(g[here]):
                own = missed[g[rows] == one]
                if own.size >= FEWEST_IN_GROUP or g is group[-1]:
                    moved[here & (g == one)] = conformal(own, q)
    return moved


def conformal(values: np.ndarray, q: float) -> float:
    """The ceil((n + 1) q)-th smallest: a further value like these is no larger with probability q at least.
    The largest where that would take more values than there are."""
    rank = int(np.ceil((values.size + 1) * q - 1e-9))
    return float(np.partition(values, min(rank, values.size) - 1)[min(rank, values.size) - 1])


def pinball(y: np.ndarray, predicted: np.ndarray, q: float) -> float:
    """Mean pinball loss of a quantile, tokens: what the q-quantile minimises."""
    short = y - predicted
    return float(np.mean(np.maximum(q * short, (q - 1) * short)))


def earlier_answers(
    line: np.ndarray, output_tokens: np.ndarray, arrival_s: np.ndarray, end_s: np.ndarray
) -> np.ndarray:
    """f64[n, 2]: tokens of the answer before in the session's line, and the mean of all before; NaN: none.

    Rows of one line lie together, in order of turns. An answer that had not ended when the request arrived
    (by the log's times, where it has them) is not known, and neither number is told.
    """
    told = np.full((line.size, 2), np.nan)
    total = n = 0.0
    last_end = -np.inf
    for i in range(1, line.size):
        if line[i] != line[i - 1]:
            total = n = 0.0
            last_end = -np.inf
            continue
        if np.isfinite(output_tokens[i - 1]):
            total, n = total + output_tokens[i - 1], n + 1
        last_end = max(last_end, end_s[i - 1]) if np.isfinite(end_s[i - 1]) else last_end
        if n and not last_end > arrival_s[i]:
            told[i] = output_tokens[i - 1], total / n
    return told
