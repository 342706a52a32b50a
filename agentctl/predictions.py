"""What a router between models believes of each request on each model: how well it will be answered, and how
long the answer gets. Learned from labels and the log, and predicted only for sessions that were left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from agentctl.estimators.remaining_length import RemainingLength

if TYPE_CHECKING:
    import polars as pl

    from agentctl.labels import Labels
    from agentctl.trace import Trace

FOLDS = 5
HIGH = 0.9  # the quantile of output_high


@dataclass(frozen=True)
class Predictions:
    """Arrays [n requests, m models] of float64, NaN where unknown; rows are those of the trace, in its order.

    models           names, in the order of the columns
    score            the label, 0..1
    accuracy         predicted score, from sessions other than the request's own; NaN without any ground
    accuracy_error   standard error of it, as held-out labels showed it; NaN where there were none
    prompt_tokens    on that model: as the labels say, else the log's
    output_tokens    the true length on that model: as the labels say, else the log's
    output_mean, output_q50, output_high  predicted tokens of the answer, from other sessions
    high             which quantile output_high is
    remaining        tokens left of a request that outlives its prediction
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
        """Those of some requests, in the order of `rows` (numbers of rows of the trace)."""
        n = self.task.size
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        chosen = {
            name: value[rows]
            for name, value in arrays.items()
            if isinstance(value, np.ndarray) and len(value) == n
        }
        return replace(self, **chosen)


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
    """
    raise NotImplementedError
