"""Labels: how well each model answered which request, or how well it does on a task on average.

    request_id,task,model,score,prompt_tokens,output_tokens,n_sentences
    r-17,alpaca,qwen3-8b,0.8,512,303,12          how this model answered this request
    r-18,alpaca,,,,,9                            of which task a request is; its features
    ,alpaca,qwen3-8b,0.827,,,                    how well this model does on this task on average

CSV, JSON lines or Parquet; any of the three kinds of rows, told apart by which cells are empty. Columns that
are not named here are numeric features of the request.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from agentctl.errors import InputError
from agentctl.labels_file import KNOWN, TOKENS, features_of, read_columns, refuse

MOST_MODELS, MOST_TASKS = 64, 200
MOST_TOKENS = 10**9
PAIR = ("request_id", "model")


@dataclass(frozen=True)
class Labels:
    """What the files of labels say. Unknown is null.

    models, tasks, features  names, sorted
    by_request  request_id, model, score, prompt_tokens, output_tokens (on that model); one row a pair
    of_request  request_id, task, and a column for each feature; one row a request
    task_means  task, model, score; one row a pair
    unscored    {model: requests with a score for another model, and none for this}
    inputs      {file: sha256}
    """

    models: tuple[str, ...]
    tasks: tuple[str, ...]
    features: tuple[str, ...]
    by_request: pl.DataFrame
    of_request: pl.DataFrame
    task_means: pl.DataFrame
    unscored: dict[str, int]
    inputs: dict[str, str]


def read_labels(*paths: Path) -> Labels:
    """The labels in files of CSV, JSON lines or Parquet, taken together.

    Raises InputError with file and row for unknown columns, scores outside 0..1, pairs or means given twice,
    two tasks of one request, and rows that say nothing.
    """
    inputs: dict[str, str] = {}
    frames = []
    for path in paths:
        name, frame = read_columns(path, inputs)
        _check_rows(frame, name)
        frames.append(frame.with_columns(pl.lit(name).alias("file")))
    return labels_of(pl.concat(frames, how="diagonal"), inputs)


def labels_of(rows: pl.DataFrame, inputs: dict[str, str] | None = None) -> Labels:
    """Labels from checked rows: the columns of read_columns, with `file`."""
    features = features_of(iter((rows,)))
    has_request = rows["request_id"].is_not_null()
    pairs = rows.filter(has_request & rows["model"].is_not_null())
    means = rows.filter(~has_request)
    _check_once(pairs, PAIR, "a request on a model is labelled twice")
    _check_once(means, ("task", "model"), "the mean of a task on a model is given twice")
    of_request = _of_request(rows.filter(has_request), features)
    models = tuple(sorted(rows["model"].drop_nulls().unique()))
    tasks = tuple(sorted(rows["task"].drop_nulls().unique()))
    for names, most, what in ((models, MOST_MODELS, "models"), (tasks, MOST_TASKS, "tasks")):
        if len(names) > most:
            hint = "a task is a kind of work, not a single request" if what == "tasks" else None
            raise InputError(
                f"name {len(names):,} {what}", place="labels", expected=f"{most} at most", hint=hint
            )
    scored = pairs.filter(pairs["score"].is_not_null())
    n_scored = scored["request_id"].n_unique()
    by_model = dict(scored.group_by("model").len().iter_rows())
    return Labels(
        models=models,
        tasks=tasks,
        features=features,
        by_request=pairs.select(*PAIR, "score", *TOKENS).sort(PAIR),
        of_request=of_request,
        task_means=means.select("task", "model", "score").sort("task", "model"),
        unscored={m: n_scored - by_model.get(m, 0) for m in models if by_model.get(m, 0) < n_scored},
        inputs=inputs or {},
    )


def _check_rows(frame: pl.DataFrame, name: str) -> None:
    """Each row is one of the three kinds, and its values make sense."""
    rows = frame["row"]
    request, task, model, score = (frame[c].is_not_null() for c in ("request_id", "task", "model", "score"))
    _check_columns(frame, name)
    limits = {"expected": "a share: 0 to 1", "hint": "scores in percent are divided by 100 first"}
    outside = (frame["score"] < 0) | (frame["score"] > 1)
    refuse(outside, rows, f"{name}: score", "is out of range", **limits)
    tokens = pl.Series([False] * frame.height)
    for column in TOKENS:
        cells = frame[column]
        bad = (cells < 0) | (cells > MOST_TOKENS) | (cells != cells.round(0))
        refuse(
            bad, rows, f"{name}: {column}", "is no count", expected=f"a whole number up to {MOST_TOKENS:,}"
        )
        tokens |= cells.is_not_null()
    features = [frame[c].is_not_null() for c in features_of(iter((frame,)))]
    featured = pl.Series([False] * frame.height)
    for has in features:
        featured |= has
    refuse(~request & ~task, rows, name, "names neither a request nor a task", expected="request_id or task")
    refuse(~request & ~model, rows, f"{name}: model", "is missing", expected="the model with this mean")
    refuse(~request & ~score, rows, f"{name}: score", "is missing", expected="the mean of the task, 0 to 1")
    refuse(
        ~request & (tokens | featured), rows, name, "the mean of a task has tokens or features",
        expected="these of requests only", hint="leave the cells empty",
    )  # fmt: skip
    refuse(request & ~model & (score | tokens), rows, f"{name}: model", "is missing",
           expected="the model that this score or count is of")  # fmt: skip
    refuse(request & model & ~score & ~tokens, rows, f"{name}: score", "is missing",
           expected="0 to 1, or tokens on this model")  # fmt: skip
    refuse(request & ~model & ~task & ~featured, rows, name, "says nothing of its request")


def _check_columns(frame: pl.DataFrame, name: str) -> None:
    """A file without a column that all of its rows would need is told so at once."""
    empty = [column for column in KNOWN if frame[column].null_count() == frame.height]
    names_only = "model" in empty and "score" in empty and "request_id" not in empty
    if "request_id" in empty and "task" in empty:
        raise InputError(
            "has neither request_id nor task", place=name, expected="columns " + ", ".join(KNOWN)
        )
    if not names_only:
        for column in ("model", "score"):
            if column in empty and not (column == "score" and set(TOKENS) - set(empty)):
                raise InputError(f"has no column {column}", place=name, expected=", ".join(KNOWN[:4]))


def _check_once(rows: pl.DataFrame, keys: tuple[str, str], fact: str) -> None:
    again = rows.filter(pl.struct(keys).is_duplicated())
    if again.height:
        first = again.filter(
            (pl.col(keys[0]) == again[keys[0]][0]) & (pl.col(keys[1]) == again[keys[1]][0])
        ).head(2)
        places = " and ".join(f"{file}: row {row}" for file, row in first.select("file", "row").iter_rows())
        n = again.height - again.select(keys).n_unique()
        more = f" ({n:,} rows too many in all)" if n > 1 else ""
        raise InputError(f"{fact}{more}", place=places, expected="once", hint="keep one, or their mean")


def _of_request(rows: pl.DataFrame, features: tuple[str, ...]) -> pl.DataFrame:
    """Task and features of each request; raises where two rows of one request differ in them."""
    columns = ("task", *features)
    groups = rows.group_by("request_id", maintain_order=True)
    for column in columns:
        differ = rows.filter(pl.col(column).drop_nulls().n_unique().over("request_id") > 1)
        if differ.height:
            same = differ.filter(
                (pl.col("request_id") == differ["request_id"][0]) & pl.col(column).is_not_null()
            )
            other = same.filter(pl.col(column) != same[column][0]).head(1)
            places = " and ".join(
                f"{file}: row {row}"
                for file, row in pl.concat([same.head(1), other]).select("file", "row").iter_rows()
            )
            what = f"two values of {column}" if column != "task" else "two tasks"
            raise InputError(f"one request has {what}", place=places, expected="the same in all of its rows")
    firsts = [pl.col(column).drop_nulls().first() for column in columns]
    return groups.agg(firsts).sort("request_id")
