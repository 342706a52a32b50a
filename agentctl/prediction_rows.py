"""Requests and labels side by side, in an order that does not depend on the log's: what predictors see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from agentctl.errors import InputError
from agentctl.labels import Labels
from agentctl.toml import suggestion
from agentctl.trace import Trace

NEEDED = {
    "request_id": pl.String, "session_id": pl.String, "turn_index": pl.Int64, "prompt_tokens": pl.Float64,
    "output_tokens": pl.Float64,
}  # fmt: skip
OPTIONAL = {
    "agent_path": pl.String, "attempt": pl.Int64, "arrival_s": pl.Float64, "end_s": pl.Float64,
    "model": pl.String, "status": pl.String,
}  # fmt: skip
IN_ORDER = ("session_id", "agent_path", "turn_index", "attempt", "arrival_s", "request_id", *list(NEEDED)[3:])


@dataclass(frozen=True)
class Rows:
    """n requests sorted by session, line and turn, on m models; NaN where unknown.

    order      i64[n] the row of the log that each is
    frame      its columns (NEEDED, OPTIONAL) in this order
    session    i64[n] number of its session; line: of its agent's line in it
    task       i64[n] position in `tasks`, -1: unknown
    features   f64[n, k] those of the labels
    served_by  i64[n] position of the model that answered by the log, -1: none of these, or not said
    score, prompt_tokens, output_tokens  f64[n, m] as the labels say
    unmatched  requests in the labels that the log does not have
    """

    order: np.ndarray
    frame: pl.DataFrame
    session: np.ndarray
    line: np.ndarray
    task: np.ndarray
    tasks: tuple[str, ...]
    features: np.ndarray
    served_by: np.ndarray
    score: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    unmatched: int

    def logged(self, column: str) -> np.ndarray:
        return self.frame[column].fill_null(np.nan).to_numpy()


def rows_of(
    requests: Trace | pl.DataFrame | Mapping[str, Any], labels: Labels, models: Sequence[str]
) -> Rows:
    """Requests and labels joined by request_id; InputError for models and tasks that no label knows."""
    place = str(requests.path) if isinstance(requests, Trace) else "requests"
    _check_models(labels, models)
    frame = _with_labels(_columns(requests, place), labels, place).sort(IN_ORDER, maintain_order=True)
    tasks = labels.tasks or tuple(sorted(frame["task"].drop_nulls().unique()))
    session = frame["session_id"].rank("dense").to_numpy().astype(np.int64) - 1
    line = pl.select(pl.struct(frame["session_id"], frame["agent_path"].fill_null("")).rle_id()).to_series()
    ids = frame.select("request_id", pl.int_range(pl.len()).alias("at"))
    pairs = ids.join(labels.by_request.filter(pl.col("model").is_in(list(models))), on="request_id")
    at, model = pairs["at"].to_numpy(), _positions(pairs["model"], models)
    told = {}
    for column in ("score", "prompt_tokens", "output_tokens"):
        told[column] = np.full((frame.height, len(models)), np.nan)
        told[column][at, model] = pairs[column].fill_null(np.nan).to_numpy()
    named = [frame[_feature(name)].fill_null(np.nan).to_numpy() for name in labels.features]
    return Rows(
        order=frame["row"].to_numpy().astype(np.int64),
        frame=frame,
        session=session,
        line=line.to_numpy().astype(np.int64),
        task=_positions(frame["task"], tasks),
        tasks=tasks,
        features=np.column_stack(named) if named else np.zeros((frame.height, 0)),
        served_by=_positions(frame["model"], models),
        unmatched=labels.of_request.join(ids, on="request_id", how="anti").height,
        **told,
    )


def _positions(names: pl.Series, known: Sequence[str]) -> np.ndarray:
    """i64: where each name stands in `known`, -1: not there."""
    place = {name: k for k, name in enumerate(known)}
    return names.replace_strict(place, default=-1, return_dtype=pl.Int64).fill_null(-1).to_numpy()


def _check_models(labels: Labels, models: Sequence[str]) -> None:
    if not models or len(set(models)) < len(models):
        raise InputError("models are missing, or named twice", place="labels", expected="each model once")
    for model in models:
        if model not in labels.models:
            hint = suggestion(model, labels.models)
            raise InputError(f"no label names the model {model!r}", place="labels", hint=hint)


def _columns(requests: Trace | pl.DataFrame | Mapping[str, Any], place: str) -> pl.DataFrame:
    """NEEDED, OPTIONAL and `task`, typed, with `row`; null where unknown."""
    known = {**NEEDED, **OPTIONAL, "task": pl.String}
    if isinstance(requests, Trace):
        frame = requests.requests([*NEEDED, *OPTIONAL])
    else:
        frame = requests if isinstance(requests, pl.DataFrame) else pl.DataFrame(dict(requests))
        for name in NEEDED:
            if name not in frame.columns:
                raise InputError(f"have no column {name}", place=place, expected=", ".join(NEEDED))
    if frame.height == 0:
        raise InputError("holds no requests", place=place)
    columns = [
        pl.col(name).cast(kind) if name in frame.columns else pl.lit(None, kind).alias(name)
        for name, kind in known.items()
    ]
    return frame.select(columns).with_columns(pl.col(pl.Float64).fill_nan(None)).with_row_index("row")


def _with_labels(frame: pl.DataFrame, labels: Labels, place: str) -> pl.DataFrame:
    """The task and the features of each request beside it."""
    renamed = {name: _feature(name) for name in labels.features}
    told = labels.of_request.rename({"task": "labelled_task", **renamed})
    joined = frame.join(told, on="request_id", how="left", maintain_order="left")
    differ = joined.filter(pl.col("task") != pl.col("labelled_task"))
    if differ.height:
        fact = f"{differ.height:,} requests have another task in the labels than in the log"
        raise InputError(fact, place=place, expected="one task a request")
    joined = joined.with_columns(pl.coalesce("task", "labelled_task").alias("task"))
    for task in joined["task"].drop_nulls().unique().sort():
        if labels.tasks and task not in labels.tasks:
            hint = suggestion(task, labels.tasks)
            raise InputError(f"no label names the task {task!r}", place=place, hint=hint)
    if labels.by_request.height == 0 and joined["task"].null_count() == joined.height:
        raise InputError(
            "have only means of tasks, and no request of the trace has a task",
            place="labels",
            expected="the task of each request",
            hint="rows with request_id and task alone say it",
        )
    return joined


def _feature(name: str) -> str:
    return f"feature {name}"
