"""What a router between models believes of each request on each model: how well it will be answered, and how
long the answer gets. Learned from labels and the log, and predicted only for sessions that were left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from agentctl.errors import InputError, UsageError
from agentctl.estimators.remaining_length import RemainingLength, remaining_of

if TYPE_CHECKING:
    import polars as pl

    from agentctl.labels import Labels
    from agentctl.prediction_rows import Rows
    from agentctl.trace import Trace

FOLDS = 5
HIGH = 0.9  # the quantile of output_high


@dataclass(frozen=True)
class Predictions:
    """Arrays [n requests, m models] of float64, NaN where unknown; rows are those of the trace, in its order.

    models           names, in the order of the columns
    score            the label, 0..1
    accuracy         predicted score, from sessions other than the request's own; NaN without any ground
    accuracy_error   standard error of the mean score of requests predicted alike, as labels of sessions left
                     out showed it; NaN where there were none
    prompt_tokens    on that model: as the labels say, else the log's
    output_tokens    the true length on that model: as the labels say, else the log's
    output_mean, output_q50, output_high  predicted tokens of the answer, from other sessions
    high             which quantile output_high is
    remaining        tokens left of a request that outlives its prediction (the median)
    task, tasks      [n] number of each request's task, -1: unknown; the tasks' names
    report           what was learned, and how far off it was on sessions left out (plain dict, null: unknown)
    """

    models: tuple[str, ...]
    request_ids: np.ndarray
    score: np.ndarray
    accuracy: np.ndarray
    accuracy_error: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    output_mean: np.ndarray
    output_q50: np.ndarray
    output_high: np.ndarray
    high: float
    remaining: RemainingLength
    task: np.ndarray
    tasks: tuple[str, ...]
    report: dict[str, Any]

    def take(self, rows: np.ndarray) -> Predictions:
        """Those of some requests, in the order of `rows` (numbers of rows of the trace); the same report."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        chosen = {name: value[rows] for name, value in arrays.items() if isinstance(value, np.ndarray)}
        return replace(self, **chosen)

    def check_complete(self) -> None:
        """Raise InputError, naming tasks and models, unless every pair has a predicted accuracy."""
        unknown = np.isnan(self.accuracy)
        if not unknown.any():
            return
        pairs = np.unique(np.stack((np.repeat(self.task, len(self.models)), np.tile(
            np.arange(len(self.models)), self.task.size)))[:, unknown.ravel()], axis=1)  # fmt: skip
        told = [
            f"{'task ' + repr(self.tasks[t]) if t >= 0 else 'requests without a task'} on {self.models[m]!r}"
            for t, m in pairs.T[:3]
        ]
        more = f" and {pairs.shape[1] - 3} more" if pairs.shape[1] > 3 else ""
        raise InputError(
            f"{int(unknown.sum()):,} of {unknown.size:,} pairs of request and model have neither a label of "
            f"their task nor its mean: {', '.join(told)}{more}",
            place="labels",
            expected="a ground for every pair that a router may choose",
            hint="add rows with task, model and score, or leave the model out",
        )


def predict(
    requests: Trace | pl.DataFrame | Mapping[str, Any],
    labels: Labels,
    models: Sequence[str],
    seed: int = 0,
    folds: int = FOLDS,
    *,
    high: float = HIGH,
) -> Predictions:
    """Learn from all sessions but one part, and predict that part; `folds` times.

    requests  a trace, or its columns: request_id, session_id, turn_index, prompt_tokens, output_tokens, and
              where known agent_path, attempt, arrival_s, end_s, model, status and task
    models    of which predictions are wanted, in this order
    high      which quantile of the answer's length output_high is

    The same predictions for the same seed, in whatever order requests, labels and models come, on any number
    of threads. Raises InputError: models or tasks that no label knows, too few sessions to leave some out.
    """
    from agentctl.prediction_rows import rows_of

    if not 0.5 < high < 1:
        raise UsageError(f"is {high:g}", place="the high quantile", expected="above 0.5 and below 1")
    names = sorted(models)
    rows = rows_of(requests, labels, names)
    found = _learn(rows, labels, names, seed, folds, high)
    back = np.empty(rows.order.size, np.int64)
    back[rows.order] = np.arange(rows.order.size)
    columns = [names.index(model) for model in models]
    arrays = {name: value[back][:, columns] for name, value in found.items() if isinstance(value, np.ndarray)}
    return Predictions(
        models=tuple(models),
        request_ids=rows.frame["request_id"].to_numpy()[back],
        **arrays,
        high=high,
        remaining=found["remaining"],
        task=rows.task[back],
        tasks=rows.tasks,
        report=found["report"],
    )


def _learn(
    rows: Rows, labels: Labels, models: Sequence[str], seed: int, folds: int, high: float
) -> dict[str, Any]:
    """The fields of Predictions, in the order of `rows`."""
    from agentctl.estimators import predictor_errors as errors  # not before: scikit-learn takes a second
    from agentctl.estimators.held_out import folds_of
    from agentctl.estimators.output_length import earlier_answers, output_length_of
    from agentctl.estimators.quality import Pairs, quality_of

    n, m = rows.score.shape
    log_prompt, log_output = (rows.logged(name)[:, None] for name in ("prompt_tokens", "output_tokens"))
    prompt = np.where(np.isnan(rows.prompt_tokens), log_prompt, rows.prompt_tokens)
    output = np.where(np.isnan(rows.output_tokens), log_output, rows.output_tokens)
    turn = np.repeat(rows.logged("turn_index"), m)
    before = earlier_answers(rows.line, log_output[:, 0], rows.logged("arrival_s"), rows.logged("end_s"))
    request = np.repeat(np.arange(n), m)
    known = np.column_stack((np.log1p(prompt).ravel(), turn, rows.features[request]))
    pairs = Pairs(rows.session[request], rows.task[request], np.tile(np.arange(m), n), known)
    score = rows.score.ravel()

    fold = np.zeros(score.size, np.int64)
    if np.isfinite(score).any():
        fold = folds_of(pairs.session, np.isfinite(score), folds, seed, "labels")
    quality = quality_of(pairs, score, _means(labels, rows.tasks, models), fold, folds, seed)

    learned, assumed = _lengths(rows, output)
    tokens = learned.ravel()
    fold = folds_of(pairs.session, np.isfinite(tokens), folds, seed, "answers of known length")
    longer = pairs._replace(features=np.column_stack((known, np.log1p(before)[request])))
    length = output_length_of(longer, tokens, fold, folds, level=high, seed=seed)
    taught = np.isfinite(tokens) & np.isfinite(length.median)
    told = length.median[taught], np.maximum(tokens[taught], 1.0)
    report = {
        "requests": n,
        "sessions": int(np.unique(rows.session).size),
        "models": list(models),
        "tasks": list(rows.tasks),
        "features": ["prompt_tokens", "turn_index", "task", "model", *labels.features],
        "folds": folds,
        "seed": seed,
        "requests_without_task": int((rows.task < 0).sum()),
        "labels": {
            "scored_pairs": int(np.isfinite(score).sum()),
            "task_means": labels.task_means.height,
            "requests_not_in_log": rows.unmatched,
            "requests_unscored_by_model": {name: labels.unscored.get(name, 0) for name in models},
        },
        "tokens_from_log": {
            "prompt_pairs": _of_another(rows, rows.prompt_tokens, log_prompt),
            "output_pairs": _of_another(rows, rows.output_tokens, log_output),
            "models_learned_from_answers_of_others": [models[k] for k in assumed],
        },
        "accuracy": errors.accuracy_errors(pairs, quality, score, models, rows.tasks),
        "output_length": errors.length_errors(longer, length, tokens, models, rows.tasks),
        "remaining": errors.remaining_errors(*told, fold[taught]),
    }  # fmt: skip
    shaped = {
        "score": score, "accuracy": quality.accuracy, "accuracy_error": quality.error,
        "prompt_tokens": prompt, "output_tokens": output, "output_mean": length.mean,
        "output_q50": length.median, "output_high": length.high,
    }  # fmt: skip
    arrays = {name: value.reshape(n, m) for name, value in shaped.items()}
    return {**arrays, "remaining": remaining_of(*told), "report": report}


def _means(labels: Labels, tasks: Sequence[str], models: Sequence[str]) -> np.ndarray:
    """f64[tasks, models] of the labels' means of tasks."""
    given = np.full((len(tasks), len(models)), np.nan)
    for task, model, score in labels.task_means.iter_rows():
        if model in models:
            given[tasks.index(task), models.index(model)] = score
    return given


def _lengths(rows: Rows, output: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """(lengths to learn from, NaN where a pair has none; models that have none of their own).

    Own lengths of a model are those of the labels, and of the log where it served the request to the end. A
    model without any is learned from the answers of whichever model served.
    """
    is_ok = rows.frame["status"].fill_null("ok").to_numpy() == "ok"
    served = rows.served_by[:, None] == np.arange(output.shape[1])
    own = np.isfinite(rows.output_tokens) | (served & is_ok[:, None] & np.isfinite(output))
    without = ~own.any(axis=0)
    taken = own | (without & is_ok[:, None] & np.isfinite(output))
    return np.where(taken, output, np.nan), np.flatnonzero(without & taken.any(axis=0)).tolist()


def _of_another(rows: Rows, labelled: np.ndarray, logged: np.ndarray) -> int:
    """Pairs whose tokens are the log's, counted by another model than theirs or by one that is not known."""
    served = rows.served_by[:, None] == np.arange(labelled.shape[1])
    return int((np.isnan(labelled) & np.isfinite(logged) & ~served).sum())
