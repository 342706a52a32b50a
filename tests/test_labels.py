"""Tables of labels: three kinds of rows in three formats; what is wrong is told with place and cure."""

from __future__ import annotations

import json

import polars as pl
import pytest

from agentctl.errors import InputError
from agentctl.labels import read_labels

HEAD = "request_id,task,model,score,prompt_tokens,output_tokens,n_sentences\n"
GOOD = HEAD + "r1,alpaca,big,0.5,100,20,3\nr1,alpaca,small,0,90,10,3\nr2,qa,,,,,9\n,alpaca,big,0.8,,,\n"


def read(tmp_path, text: str, name: str = "labels.csv"):
    (tmp_path / name).write_text(text)
    return read_labels(tmp_path / name)


def refused(tmp_path, text: str, name: str = "labels.csv") -> InputError:
    with pytest.raises(InputError) as told:
        read(tmp_path, text, name)
    return told.value


def test_three_kinds_of_rows_are_told_apart(tmp_path):
    found = read(tmp_path, GOOD)
    assert (found.models, found.tasks) == (("big", "small"), ("alpaca", "qa"))
    assert found.features == ("n_sentences",)
    assert found.by_request.rows() == [("r1", "big", 0.5, 100, 20), ("r1", "small", 0, 90, 10)]
    assert found.of_request.rows() == [("r1", "alpaca", 3), ("r2", "qa", 9)]
    assert found.task_means.rows() == [("alpaca", "big", 0.8)]
    assert found.unscored == {} and list(found.inputs) == ["labels.csv"]


def test_csv_json_lines_and_parquet_say_the_same(tmp_path):
    csv = read(tmp_path, GOOD)
    frame = pl.read_csv((tmp_path / "labels.csv").read_bytes())
    frame.write_parquet(tmp_path / "labels.parquet")
    lines = "".join(
        json.dumps({k: v for k, v in row.items() if v is not None}) + "\n" for row in frame.to_dicts()
    )
    for other in (read_labels(tmp_path / "labels.parquet"), read(tmp_path, lines, "labels.jsonl")):
        for name in ("by_request", "of_request", "task_means"):
            assert getattr(other, name).equals(getattr(csv, name))


def test_means_of_tasks_alone_are_labels(tmp_path):
    found = read(tmp_path, "task,model,score\nqa,big,0.9\nqa,small,0.4\n")
    assert found.task_means.height == 2 and found.by_request.height == found.of_request.height == 0


def test_files_add_up_and_requests_without_a_score_are_counted_by_model(tmp_path):
    (tmp_path / "tasks.csv").write_text("request_id,task\nr1,qa\nr2,qa\nr3,qa\n")
    scores = "request_id,model,score\nr1,big,1\nr2,big,1\nr3,big,0\nr1,small,1\n"
    (tmp_path / "scores.csv").write_text(scores)
    found = read_labels(tmp_path / "tasks.csv", tmp_path / "scores.csv")
    assert found.unscored == {"small": 2}
    assert found.of_request["task"].to_list() == ["qa"] * 3 and found.by_request.height == 4


def test_verdicts_numbered_requests_and_missing_numbers_of_pandas_are_read(tmp_path):
    found = read(tmp_path, '{"request_id": 17, "model": "m", "score": true}\n', "a.jsonl")
    assert found.by_request.rows()[0][:3] == ("17", "m", 1.0)
    pl.DataFrame(
        {"request_id": ["a"], "model": ["m"], "score": [0.5], "output_tokens": [float("nan")]}
    ).write_parquet(tmp_path / "a.parquet")
    assert read_labels(tmp_path / "a.parquet").by_request["output_tokens"].to_list() == [None]


SHORT = "request_id,model,score\n"
WRONG = {
    "over 1": (SHORT + "a,m,1\nb,m,83\nc,m,-1\n", "labels.csv: score: is out of range (row 2, 3)", "100"),
    "no number": (SHORT + "a,m,good\n", "labels.csv: score: is no number (row 1)", None),
    "infinite": (SHORT + "a,m,inf\n", "is not finite (row 1)", None),
    "NaN": (SHORT + "a,m,nan\n", "is not finite (row 1)", None),
    "twice": (SHORT + "a,m,1\nb,m,1\na,m,0\n", "labels.csv: row 1 and labels.csv: row 3: a request", "keep"),
    "mean twice": ("task,model,score\nqa,m,1\nqa,m,1\n", "of a task on a model is given twice", "keep"),
    "two tasks": ("request_id,task,model,score\na,x,m,1\na,y,n,1\n", "one request has two tasks", None),
    "two features": (
        "request_id,model,score,size\na,m,1,4\na,n,1,5\n",
        "row 1 and labels.csv: row 2: one request has two values of size", None,
    ),
    "misspelt": (SHORT.replace("score", "scor") + "a,m,1\n", "column 'scor'", "did you mean `score`?"),
    "misspelt tokens": (
        "request_id,model,score,promt_tokens\na,m,1,7\n", "unknown column 'promt_tokens'", "`prompt_tokens`"
    ),
    "a prompt": (
        "request_id,model,score,question\na,m,1,who?\n", "column 'question' does not hold numbers", "leave"
    ),
    "nobody": ("request_id,task,model,score\n,,m,1\n,x,m,1\n", "neither a request nor a task (row 1)", None),
    "no model": (SHORT + "a,,1\nb,m,1\n", "labels.csv: model: is missing (row 1)", None),
    "no score": (SHORT + "a,m,\nb,m,1\n", "labels.csv: score: is missing (row 1)", None),
    "no column": ("request_id,score\na,1\n", "has no column model", None),
    "no key": ("model,score\nm,1\n", "has neither request_id nor task", None),
    "half a token": ("request_id,model,score,output_tokens\na,m,1,2.5\n", "is no count (row 1)", None),
    "tokens of a mean": (
        "task,model,score,output_tokens\nqa,m,1,7\n", "the mean of a task has tokens or features", "empty"
    ),
    "no rows": (SHORT, "holds no rows", None),
    "ragged": (SHORT + "a,m,1,7\n", "is neither CSV nor JSON lines nor Parquet", None),
    "two columns": ("request_id,score,model,score\na,1,m,1\n", "two columns are called 'score'", None),
    "a list": ("[1]", "is one JSON list", "jq"),
    "a name that is a text": (SHORT + f"a,{'x' * 300},1\n", "labels.csv: model: is no name (row 1)", None),
    "many tasks": (
        "task,model,score\n" + "".join(f"t{k},m,1\n" for k in range(201)), "name 201 tasks", "kind of work"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_told_with_its_place_and_its_cure(tmp_path, what):
    text, fact, hint = WRONG[what]
    told = refused(tmp_path, text)
    assert fact in told.message
    assert hint is None or hint in (told.hint or "")
    assert "x" * 250 not in told.message and "who?" not in f"{told.message}{told.hint}"


def test_nested_cells_and_damaged_files_are_refused(tmp_path):
    nested = '{"request_id": "a", "model": {"x": 1}, "score": 1}\n'
    assert "does not hold names" in refused(tmp_path, nested, "a.jsonl").fact
    nested = '{"request_id": "a", "model": "m", "score": [1]}\n'
    assert "does not hold numbers" in refused(tmp_path, nested, "a.jsonl").fact
    assert "is no JSON object" in refused(tmp_path, '{"request_id": "a"\n', "a.jsonl").fact
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(50))
    with pytest.raises(InputError, match="truncated or damaged"):
        read_labels(tmp_path / "a.parquet")


def test_many_bad_rows_are_counted(tmp_path):
    rows = "".join(f"r{k},m,7\n" for k in range(50))
    assert "(row 1, 2, 3 and 47 more)" in refused(tmp_path, SHORT + rows).message
