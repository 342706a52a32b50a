"""`agentctl calibrate labels`: a log and a table of labels in; predictions and their errors out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

SAMPLES = Path(__file__).parents[2] / "sample_traces"


@pytest.fixture
def table(weka, agentctl, tmp_path):
    """Made-up labels of the small Weka sample on two models, as the file labels.csv."""
    assert agentctl("ingest", weka, "-o", "weka.trace", "-q").code == 0
    ids = pl.read_parquet(tmp_path / "weka.trace" / "requests.parquet")["request_id"]
    rng = np.random.default_rng(0)
    table = pl.DataFrame(
        {
            "request_id": ids.to_numpy().repeat(2),
            "model": np.tile(["small", "big"], ids.len()),
            "score": (rng.random(2 * ids.len()) < np.tile([0.4, 0.9], ids.len())).astype(int),
            "task": np.array(["edit", "ask"])[rng.integers(0, 2, ids.len())].repeat(2),
        }
    )
    table.write_csv(tmp_path / "labels.csv")
    return table


def test_predictions_of_every_request_on_every_model_are_written(agentctl, table, tmp_path):
    done = agentctl(
        "calibrate", "labels", "weka.trace", "--labels", "labels.csv", "--folds", 3, "--high", 0.8,
        "-o", "p.parquet", "--html", "p.html", "--json", "-q",
    )  # fmt: skip
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["schema"], told["source"], told["folds"]) == ("agentctl/calibrate/1", "labels", 3)
    assert told["accuracy"]["overall"]["n"] == table.height == 310
    assert told["provenance"]["inputs"].keys() == {"labels.csv"}
    found = pl.read_parquet(tmp_path / "p.parquet")
    assert found.columns == [
        "request_id", "model", "task", "score", "accuracy", "accuracy_error", "prompt_tokens",
        "output_tokens", "output_mean_tokens", "output_q50_tokens", "output_q80_tokens",
    ]  # fmt: skip
    joined = table.join(found, on=["request_id", "model"], suffix="_found")
    assert joined.height == 310 and (joined["score"] == joined["score_found"]).all()
    assert (joined["task"] == joined["task_found"]).all()
    page = (tmp_path / "p.html").read_text()
    assert "How well each model answers" in page and "calibrate-labels-remaining" in page


def test_the_same_command_gives_the_same_bytes_and_replaces_nothing_unasked(agentctl, table, tmp_path):
    command = ("calibrate", "labels", "weka.trace", "--labels", "labels.csv", "--folds", 3, "-o", "p.parquet")
    first = agentctl(*command, "--json")
    bytes_of = (tmp_path / "p.parquet").read_bytes()
    again = agentctl(*command)
    assert (again.code, again.out) == (1, "") and "already exists" in again.err
    assert agentctl(*command, "--json", "--force").out == first.out
    assert (tmp_path / "p.parquet").read_bytes() == bytes_of


def test_of_noise_nothing_is_claimed(agentctl, table):
    done = agentctl("calibrate", "labels", "weka.trace", "--labels", "labels.csv", "--folds", 3)
    assert done.code == 0
    assert "no request says more about its score than its task does, as far as we can see" in done.out
    assert "of 310 pairs the answer's length is that of whichever model served it" in done.out


def test_what_is_saved_is_a_share_of_the_squared_error_that_can_be_seen(agentctl, table):
    done = agentctl("calibrate", "labels", "weka.trace", "--labels", "labels.csv", "--folds", 3)
    _, shown, unit = next(line for line in done.out.splitlines() if line.startswith("squared")).split("\t")
    done = agentctl("calibrate", "labels", "weka.trace", "--labels", "labels.csv", "--folds", 3, "--json")
    told = json.loads(done.out)["accuracy"]["overall"]
    assert unit == "ratio" and told["squared_error_saved"] != 0
    assert float(shown) == pytest.approx(told["squared_error_saved"] / told["task_mean_rmse"] ** 2)


def test_means_of_tasks_alone_are_no_evidence_and_unknown_pairs_are_counted(agentctl, table, tmp_path):
    tasks = table.unique("request_id").select("request_id", "task")
    means = pl.DataFrame(
        {"task": ["edit", "ask", "edit"], "model": ["small", "small", "big"], "score": [0, 1, 1]}
    )
    pl.concat([tasks, means], how="diagonal").write_csv(tmp_path / "means.csv")
    done = agentctl("calibrate", "labels", "weka.trace", "--labels", "means.csv", "-o", "p.parquet")
    assert done.code == 0
    assert "3 means of tasks say how well models answer" in done.out
    found = pl.read_parquet(tmp_path / "p.parquet")
    unknown = found.filter(pl.col("accuracy").is_null())
    assert (unknown["task"].unique().to_list(), unknown["model"].unique().to_list()) == (["ask"], ["big"])
    assert f"{unknown.height} pairs of request and model have neither" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--labels", "no.csv"), 1, "no.csv: cannot be opened (No such file or directory)"),
        (("--labels", "labels.csv", "--models", "bigg"), 1, "no label names the model 'bigg'"),
        (("--labels", "labels.csv", "--folds", 90), 1, "14 sessions have labels, for 90 parts"),
        (("--labels", "labels.csv", "--high", 1.5), 2, "--high: is '1.5'; expected at most 0.999"),
        ((), 2, "--labels"),
    ],
)
def test_what_cannot_be_done_is_said(agentctl, table, arguments, code, told):
    done = agentctl("calibrate", "labels", "weka.trace", *arguments)
    assert (done.code, done.out) == (code, "") and told in done.err


def test_hostile_names_do_not_move_the_cursor_nor_leave_a_page(agentctl, table, tmp_path):
    hostile = table.with_columns(pl.col("model").replace("big", "\x1b[2J<script>"))
    hostile.write_csv(tmp_path / "hostile.csv")
    done = agentctl(
        "calibrate", "labels", "weka.trace", "--labels", "hostile.csv", "--folds", 3, "--html", "p.html", "-v"
    )
    assert done.code == 0 and "\x1b" not in done.out and "\\x1b[2J" in done.out
    page = (tmp_path / "p.html").read_text()
    assert "\x1b" not in page and "[2J<script>" not in page
