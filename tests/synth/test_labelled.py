"""The mix of tasks for several models: published means whatever the seed, dependence as said, same bytes."""

from __future__ import annotations

import csv
import hashlib

import numpy as np
import pytest
from scipy.stats import norm, rankdata

from agentctl.errors import OutputError, UsageError
from agentctl.synth import model_routing as mix
from agentctl.synth.labelled import (
    LABEL_COLUMNS,
    draw_labelled,
    labels_path,
    synthesise_labelled,
)
from agentctl.trace import META_FILE, REQUESTS_FILE
from agentctl.workload import compile_workload

PUBLISHED_ALL = (0.353, 0.788, 0.895)  # the paper's mean over all tasks, which no number here was made from


def normal_scores(values):
    """Normal quantiles of the ranks; ties are broken by rank."""
    return norm.ppf((rankdata(values, "ordinal") - 0.5) / values.size)


@pytest.mark.parametrize("seed", [0, 5])
def test_mean_scores_are_the_published_ones_by_task_and_over_all(seed):
    drawn = draw_labelled(2_000, 360, seed)
    for number, task in enumerate(mix.TASKS):
        assert drawn.score[drawn.task == number].mean(axis=0) == pytest.approx(task.score, abs=2e-3)
    assert drawn.score.mean(axis=0) == pytest.approx(PUBLISHED_ALL, abs=2e-3)
    assert drawn.score.min() >= 0 and drawn.score.max() <= 1


def test_tasks_come_in_equal_shares_and_shuffled():
    task = draw_labelled(2_000, 360, 1).task
    assert np.bincount(task).tolist() == [500] * 4
    follows_itself = np.mean(task[1:] == task[:-1])
    assert follows_itself == pytest.approx(0.25, abs=4 * np.sqrt(0.25 * 0.75 / 2_000))


def test_what_scores_and_lengths_have_in_common_is_as_said():
    drawn = draw_labelled(8_000, 360, 2)
    rows = drawn.task == 1
    scores = [normal_scores(column) for column in drawn.score[rows].T]
    outputs = [normal_scores(column) for column in drawn.output[rows].T]
    prompt = normal_scores(drawn.requests.prompt[rows])
    off = 4 / np.sqrt(rows.sum())
    assert np.corrcoef(scores[1], scores[2])[0, 1] == pytest.approx(mix.SHARED_DIFFICULTY, abs=off)
    assert np.corrcoef(outputs[0], outputs[2])[0, 1] == pytest.approx(mix.SHARED_LENGTH, abs=off)
    harder = -mix.LENGTH_DIFFICULTY * np.sqrt(mix.SHARED_DIFFICULTY)
    assert np.corrcoef(prompt, scores[0])[0, 1] == pytest.approx(harder, abs=off)


def test_lengths_have_the_assumed_medians_and_stay_within_their_limits():
    drawn = draw_labelled(4_000, 360, 3)
    for number, task in enumerate(mix.TASKS):
        rows = drawn.task == number
        assert np.median(drawn.requests.prompt[rows]) == pytest.approx(task.prompt.median, rel=0.03)
        medians = [lengths.median for lengths in task.output]
        assert np.median(drawn.output[rows], axis=0) == pytest.approx(medians, rel=0.03)
    assert drawn.output.min() >= 1 and drawn.output.max() <= mix.MOST_OUTPUT
    assert drawn.requests.prompt.max() + mix.MOST_OUTPUT <= 131_072


def test_every_request_has_a_label_for_every_model_and_the_dataset_names_the_table(tmp_path):
    report = synthesise_labelled(tmp_path / "mix.trace", requests=40, seed=4)
    file = labels_path(tmp_path / "mix.trace")
    assert file.name == "mix.labels.csv"
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert tuple(rows[0]) == LABEL_COLUMNS
    named = report.trace.meta["synth"]["labels"]
    assert named == {"file": file.name, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    requests = report.trace.requests()
    pairs = {(row["request_id"], row["model"]) for row in rows}
    assert pairs == {(name, model) for name in requests["request_id"] for model in mix.MODELS}
    middle = [int(row["output_tokens"]) for row in rows if row["model"] == mix.MODELS[mix.MIDDLE]]
    assert middle == requests["output_tokens"].to_list()


def test_what_is_assumed_is_said_in_the_dataset(tmp_path):
    meta = synthesise_labelled(tmp_path / "mix.trace", requests=8).trace.meta
    assert any("lengths are assumed" in warning for warning in meta["warnings"])
    assert meta["time"]["origin"] == "synthesised" and meta["synth"]["workload"] == mix.NAME
    assert all("guess" in task.source or "assumed" in task.source for task in mix.TASKS)


def test_its_requests_are_sessions_of_one_turn(tmp_path):
    workload = compile_workload(synthesise_labelled(tmp_path / "mix.trace", requests=60).trace)
    assert workload.n_sessions == workload.n_requests == 60
    assert workload.starts_synthesised and workload.block_tokens is None


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path):
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        (tmp_path / name).mkdir()
        synthesise_labelled(tmp_path / name / "mix.trace", requests=30, seed=seed)
    for file in (f"mix.trace/{META_FILE}", f"mix.trace/{REQUESTS_FILE}", "mix.labels.csv"):
        one, two, other = ((tmp_path / name / file).read_bytes() for name in ("one", "two", "other"))
        assert one == two != other


def test_labels_of_an_older_workload_are_kept_unless_told_otherwise(tmp_path):
    labels_path(tmp_path / "mix.trace").write_text("mine\n")
    with pytest.raises(OutputError, match="already exists"):
        synthesise_labelled(tmp_path / "mix.trace", requests=8)
    assert not (tmp_path / "mix.trace").exists()
    synthesise_labelled(tmp_path / "mix.trace", requests=8, force=True)


@pytest.mark.parametrize("bad", [{"requests": 0}, {"per_min": 0.0}, {"per_min": float("nan")}])
def test_numbers_that_make_no_workload_are_refused(tmp_path, bad):
    with pytest.raises(UsageError):
        synthesise_labelled(tmp_path / "mix.trace", **bad)
