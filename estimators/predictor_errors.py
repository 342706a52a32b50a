"""How far predicted scores and lengths were off, on sessions that were left out, beside the plain guess."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agentctl.estimators.held_out import clustered_error
from agentctl.estimators.output_length import OutputLength, pinball
from agentctl.estimators.quality import GROUND, Pairs, Quality, calibration_error, reliability
from agentctl.estimators.remaining_length import remaining_of

Measure = Callable[[np.ndarray], dict[str, Any]]  # of some pairs (positions)


def accuracy_errors(
    pairs: Pairs, found: Quality, score: np.ndarray, models: Sequence[str], tasks: Sequence[str]
) -> dict[str, Any]:
    """Of all pairs with a label and a prediction from others, by model, and by task on a model."""
    judged = np.isfinite(score) & (found.ground == GROUND.index("labels"))

    def measure(rows: np.ndarray) -> dict[str, Any]:
        y, told, plain = score[rows], found.accuracy[rows], found.baseline[rows]
        better = (y - plain) ** 2 - (y - told) ** 2
        return {
            "n": rows.size,
            "sessions": int(np.unique(pairs.session[rows]).size),
            "mean_score": float(y.mean()),
            "bias": float((told - y).mean()),
            "mae": float(np.abs(told - y).mean()),
            "rmse": float(np.sqrt(((told - y) ** 2).mean())),
            "task_mean_mae": float(np.abs(plain - y).mean()),
            "task_mean_rmse": float(np.sqrt(((plain - y) ** 2).mean())),
            "squared_error_saved": float(better.mean()),
            "squared_error_saved_error": _finite(clustered_error(better, pairs.session[rows])),
            "calibration_error": calibration_error(reliability(told, y, pairs.session[rows])),
        }

    told = _parts(measure, judged, pairs, models, tasks)
    for place, model in enumerate(models):
        rows = np.flatnonzero(judged & (pairs.model == place))
        if rows.size:
            bins = reliability(found.accuracy[rows], score[rows], pairs.session[rows])
            told["by_model"][model]["reliability"] = [
                {"n": b.n, "predicted": b.predicted, "scored": b.scored, "scored_error": _finite(b.error)}
                for b in bins
            ]
            told["by_model"][model]["weight"] = float(found.weight[place])
    ground = {name: int((found.ground == place).sum()) for place, name in enumerate(GROUND)}
    return {"pairs_by_ground": ground, **told}


def length_errors(
    pairs: Pairs, found: OutputLength, tokens: np.ndarray, models: Sequence[str], tasks: Sequence[str]
) -> dict[str, Any]:
    """Of all pairs with a known length, by model, and by task on a model. `tokens` as learned from."""
    judged = np.isfinite(tokens) & np.isfinite(found.median)

    def measure(rows: np.ndarray) -> dict[str, Any]:
        y = np.maximum(tokens[rows], 1.0)
        within = (y <= found.high[rows]).astype(float)
        return {
            "n": rows.size,
            "sessions": int(np.unique(pairs.session[rows]).size),
            "mean_tokens": float(y.mean()),
            "mean_bias_tokens": float((found.mean[rows] - y).mean()),
            "mean_mae_tokens": float(np.abs(found.mean[rows] - y).mean()),
            "plain_mean_mae_tokens": float(np.abs(found.plain_mean[rows] - y).mean()),
            "median_coverage": float((y <= found.median[rows]).mean()),
            "median_pinball_tokens": pinball(y, found.median[rows], 0.5),
            "plain_median_pinball_tokens": pinball(y, found.plain_median[rows], 0.5),
            "high_coverage": float(within.mean()),
            "high_coverage_error": _finite(clustered_error(within, pairs.session[rows])),
            "high_pinball_tokens": pinball(y, found.high[rows], found.level),
            "plain_high_coverage": float((y <= found.plain_high[rows]).mean()),
            "plain_high_pinball_tokens": pinball(y, found.plain_high[rows], found.level),
        }

    told = _parts(measure, judged, pairs, models, tasks)
    for place, model in enumerate(models):
        if model in told["by_model"]:
            told["by_model"][model]["high_factor"] = float(found.correction[place])
    return {"high": found.level, **told}


def remaining_errors(predicted: np.ndarray, tokens: np.ndarray, fold: np.ndarray) -> dict[str, Any]:
    """Of answers that outlived their predicted median, at that moment: what was left, against tables made
    without their sessions. Half of the answers should end before what the table says."""
    left, told, again = [], [], []
    for f in np.unique(fold):
        here = (fold == f) & (tokens > predicted)
        if (fold != f).any() and here.any():
            table = remaining_of(predicted[fold != f], tokens[fold != f])
            told.append(table.median(predicted[here], predicted[here]))
            left.append(tokens[here] - predicted[here])
            again.append(predicted[here])
    if not left:
        return {"n": 0}
    y, guess, plain = (np.concatenate(part) for part in (left, told, again))
    return {
        "n": int(y.size),
        "median_coverage": float((y <= guess).mean()),
        "median_pinball_tokens": pinball(y, guess, 0.5),
        "as_long_again_coverage": float((y <= plain).mean()),
        "as_long_again_pinball_tokens": pinball(y, plain, 0.5),
    }


def _parts(
    measure: Measure, judged: np.ndarray, pairs: Pairs, models: Sequence[str], tasks: Sequence[str]
) -> dict[str, Any]:
    by_model: dict[str, Any] = {}
    by_task: list[dict[str, Any]] = []
    for m, model in enumerate(models):
        rows = np.flatnonzero(judged & (pairs.model == m))
        if rows.size:
            by_model[model] = measure(rows)
        for t in np.unique(pairs.task[rows]):
            task = tasks[t] if t >= 0 else None
            by_task.append({"model": model, "task": task, **measure(rows[pairs.task[rows] == t])})
    rows = np.flatnonzero(judged)
    return {
        "overall": measure(rows) if rows.size else None,
        "by_model": by_model,
        "by_task_and_model": by_task,
    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
