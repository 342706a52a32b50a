"""What a router believes: labels and log side by side, the same in any order, nothing known made up."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from agentctl.errors import InputError, UsageError
from agentctl.files import canonical_json
from agentctl.labels import read_labels
from agentctl.predictions import predict

MODELS = ("small", "big")
ARRAYS = ("score", "accuracy", "prompt_tokens", "output_tokens", "output_mean", "output_q50", "output_high")


def log(n: int = 180, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    session = np.arange(n) // 3
    return pl.DataFrame(
        {
            "request_id": [f"r{k}" for k in range(n)],
            "session_id": [f"s{k}" for k in session],
            "turn_index": np.arange(n) % 3,
            "prompt_tokens": rng.integers(10, 2000, n),
            "output_tokens": rng.integers(1, 500, n),
            "model": ["big"] * n,
            "status": ["ok"] * n,
        }
    )


def labelled(requests: pl.DataFrame, seed: int = 1) -> pl.DataFrame:
    """Scores and lengths of all requests on both models; tasks by session."""
    rng = np.random.default_rng(seed)
    n = requests.height
    task = np.array(["qa", "code"])[np.arange(n) // 3 % 2]
    return pl.DataFrame(
        {
            "request_id": requests["request_id"].to_numpy().repeat(2),
            "task": task.repeat(2),
            "model": np.tile(MODELS, n),
            "score": rng.random(2 * n) * np.tile([0.6, 1.0], n),
            "prompt_tokens": np.tile([7.0, 9.0], n),
            "output_tokens": rng.integers(1, 900, 2 * n).astype(float),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("labels")


def labels(folder, table: pl.DataFrame):
    table.write_csv(folder / "labels.csv")
    return read_labels(folder / "labels.csv")


@pytest.fixture(scope="module")
def found(folder):
    requests = log()
    table = labelled(requests)
    return requests, table, predict(requests, labels(folder, table), MODELS, folds=3)


def test_rows_are_those_of_the_log_and_labels_stand_beside_them(found):
    requests, table, told = found
    assert told.request_ids.tolist() == requests["request_id"].to_list() and told.models == MODELS
    np.testing.assert_allclose(told.score, table["score"].to_numpy().reshape(-1, 2))
    np.testing.assert_array_equal(told.output_tokens, table["output_tokens"].to_numpy().reshape(-1, 2))
    assert (told.prompt_tokens == [7, 9]).all()
    assert [told.tasks[t] for t in told.task] == table["task"].to_list()[::2]
    for name in ARRAYS:
        values = getattr(told, name)
        assert values.shape == (180, 2) and values.dtype == np.float64 and np.isfinite(values).all()
    told.check_complete()
    assert told.report["tokens_from_log"]["output_pairs"] == 0
    canonical_json(told.report)  # plain, without NaN


def test_no_order_of_requests_labels_or_models_changes_a_bit(found, folder):
    requests, table, told = found
    order = np.random.default_rng(5).permutation(requests.height)
    mixed = labels(folder, table.sample(fraction=1.0, shuffle=True, seed=3))
    again = predict(requests[order], mixed, MODELS[::-1], folds=3)
    for name in (*ARRAYS, "accuracy_error"):
        assert (getattr(again, name) == getattr(told, name)[order][:, ::-1]).all(), name
    assert (again.task == told.task[order]).all()
    assert canonical_json(again.report) == canonical_json(told.report)
    assert (again.remaining.arrays.tokens == told.remaining.arrays.tokens).all()


def test_scores_and_lengths_of_a_session_do_not_touch_what_is_predicted_of_it(found, folder):
    requests, table, told = found
    own = pl.col("request_id").is_in(["r3", "r4", "r5"])
    changed = table.with_columns(
        pl.when(own).then(1 - pl.col("score")).otherwise("score").alias("score"),
        pl.when(own).then(9999.0).otherwise("output_tokens").alias("output_tokens"),
    )
    again = predict(requests, labels(folder, changed), MODELS, folds=3)
    for name in ("accuracy", "output_mean", "output_q50", "output_high"):
        before, after = getattr(told, name), getattr(again, name)
        assert (before[3:6] == after[3:6]).all() and (before != after).any()


def test_some_requests_are_taken_in_any_order(found):
    told = found[-1]
    some = told.take(np.array([5, 0]))
    assert some.request_ids.tolist() == ["r5", "r0"]
    assert (some.accuracy == told.accuracy[[5, 0]]).all() and some.task.tolist() == told.task[[5, 0]].tolist()


def test_without_counts_of_a_model_the_logs_stand_in_and_are_counted(folder):
    requests = log()
    bare = labelled(requests).drop("prompt_tokens", "output_tokens")
    told = predict(requests, labels(folder, bare), MODELS, folds=3)
    assert (told.output_tokens == requests["output_tokens"].to_numpy()[:, None]).all()
    assert told.report["tokens_from_log"] == {
        "prompt_pairs": 180,
        "output_pairs": 180,
        "models_learned_from_answers_of_others": ["small"],
    }


def test_answers_that_were_cut_off_are_not_learned_from(folder):
    requests = log().with_columns(
        pl.when(pl.col("turn_index") == 2).then(pl.lit("aborted")).otherwise("status").alias("status")
    )
    told = predict(requests, labels(folder, labelled(requests).drop("output_tokens")), MODELS, folds=3)
    assert told.report["output_length"]["by_model"]["big"]["n"] == 120
    assert np.isfinite(told.output_q50).all() and np.isfinite(told.output_tokens).all()


def test_means_of_tasks_need_the_tasks_of_requests(folder):
    requests = log()
    means = pl.DataFrame(
        {"task": ["qa", "qa", "code"], "model": ["small", "big", "big"], "score": [0.2, 0, 1]}
    )
    with pytest.raises(InputError, match="no request of the trace has a task"):
        predict(requests, labels(folder, means), MODELS, folds=3)
    named = requests.with_columns(
        pl.when(pl.col("turn_index") == 0).then(pl.lit("qa")).otherwise(pl.lit("code")).alias("task")
    )
    told = predict(named, labels(folder, means), MODELS, folds=3)
    assert told.accuracy[0].tolist() == [0.2, 0.0] and told.accuracy[1, 1] == 1
    assert np.isnan(told.accuracy[1, 0]) and np.isnan(told.accuracy_error).all()
    assert told.report["accuracy"]["pairs_by_ground"] == {"none": 120, "task mean": 240, "labels": 0}
    with pytest.raises(InputError, match=r"120 of 360 pairs .*: task 'code' on 'small'") as error:
        told.check_complete()
    assert "add rows with task, model and score" in error.value.hint


@pytest.mark.parametrize(
    ("models", "change", "fact", "hint"),
    [
        (["smal", "big"], {}, "no label names the model 'smal'", "did you mean `small`?"),
        (["big", "big"], {}, "named twice", None),
        ([], {}, "missing", None),
        (MODELS, {"task": pl.lit("quiz")}, "no label names the task 'quiz'", "known: code, qa"),
        (MODELS, {"task": pl.lit("qa")}, "90 requests have another task in the labels", None),
        (MODELS, {"session_id": pl.lit("one")}, "1 sessions have labels", "--folds"),
    ],
)
def test_what_does_not_fit_is_told(folder, models, change, fact, hint):
    requests = log()
    table = labelled(requests)
    if change.get("task") is not None and fact.startswith("no label"):
        table = table.with_columns(
            pl.when(pl.col("request_id") == "r0").then(None).otherwise("task").alias("task")
        )
        requests = requests.with_columns(
            pl.when(pl.col("request_id") == "r0").then(pl.lit("quiz")).alias("task")
        )
    else:
        requests = requests.with_columns(**change)
    with pytest.raises(InputError) as told:
        predict(requests, labels(folder, table), models)
    assert fact in told.value.message and (hint is None or hint in told.value.hint)


def test_missing_columns_and_quantiles_that_are_none_are_told(folder):
    requests = log()
    known = labels(folder, labelled(requests))
    with pytest.raises(InputError, match="have no column session_id"):
        predict(requests.drop("session_id"), known, MODELS)
    with pytest.raises(InputError, match="holds no requests"):
        predict(requests.clear(), known, MODELS)
    for high in (0.5, 1.0):
        with pytest.raises(UsageError, match="high quantile"):
            predict(requests, known, MODELS, high=high)


def test_requests_of_a_log_without_prompt_lengths_are_predicted_all_the_same(folder):
    requests = log().with_columns(prompt_tokens=pl.lit(None, pl.Int64))
    told = predict(requests, labels(folder, labelled(requests).drop("prompt_tokens")), MODELS, folds=3)
    assert np.isnan(told.prompt_tokens).all() and np.isfinite(told.accuracy).all()


def test_whoever_only_names_predictions_does_not_wait_for_scikit_learn():
    code = "import sys, agentctl.predictions; print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
