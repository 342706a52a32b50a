"""Faults that other tools had with such logs, each as the log that shows it."""

import json
from pathlib import Path

import numpy as np
import pytest

from agentctl.analyze import analyze_trace
from agentctl.ingest.build import IngestReport, ingest
from agentctl.ingest.options import IngestOptions


def made(tmp_path: Path, rows: list[dict], **options) -> IngestReport:
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ingest([tmp_path / "log.jsonl"], tmp_path / "a.trace", IngestOptions(**options))


FIELDS = {"arrival_s": "at", "prompt_tokens": "n", "output_tokens": "out", "session_id": "s"}


def dialogues(*, is_cumulative: bool) -> list[dict]:
    """Twelve dialogues of five rounds; a round adds between 20 and 400 tokens and is answered with 50."""
    rng, rows = np.random.default_rng(3), []
    for k in range(12):
        history = 0
        for turn in range(5):
            new = int(rng.integers(20, 400))
            rows.append({"at": 100 * k + 10 * turn, "n": history + new, "out": 50, "s": f"d{k}"})
            history += (new + 50) * is_cumulative
    return rows


@pytest.mark.parametrize("is_cumulative", [True, False])
def test_rounds_that_count_only_their_new_tokens_are_noticed(tmp_path, is_cumulative):
    """microsoft/vidur #73: is a round's prefill the whole dialogue or what the round adds?"""
    found = made(tmp_path, dialogues(is_cumulative=is_cumulative), map=FIELDS).document["warnings"]
    assert [text for text in found if "only the new tokens" in text] == ([] if is_cumulative else found)
    assert bool(found) is not is_cumulative


def test_a_compacted_history_now_and_then_is_not_taken_for_new_tokens(tmp_path):
    rows = dialogues(is_cumulative=True)
    for row in rows[4::10]:  # one turn in ten
        row["n"] = 30
    assert made(tmp_path, rows, map=FIELDS).document["warnings"] == []


def test_a_prefix_that_all_requests_share_is_still_shared_in_the_dataset(tmp_path):
    """inference-sim #829: a trace file lost its prefix groups, and its replay had no hits.

    40 requests share 14,336 tokens, 28 blocks of 512, and have 512 of their own: all but the first find
    14,336 of 14,848 tokens.
    """
    shared = list(range(28))
    rows = [
        {"timestamp": 1000 * k, "input_length": 14_848, "output_length": 1, "hash_ids": [*shared, 100 + k]}
        for k in range(40)
    ]
    trace = made(tmp_path, rows, block_tokens=512).trace
    assert trace.tree.parent.size == 1 + 28 + 40
    reuse = analyze_trace(trace).document["reuse"]
    assert reuse["ideal_token_ratio"] == pytest.approx(39 * 14_336 / (40 * 14_848))


def test_think_time_is_what_lies_between_an_answer_and_the_next_question(tmp_path):
    """inference-sim #1478: start-to-start gaps hold the service time, which a closed loop counts twice."""
    requests = [
        {"t": 20.0 * k, "type": "n", "model": "m", "in": 640 * (k + 1), "out": 9, "api_time": 12.5,
         "think_time": 7.5 if k else 0.0, "hash_ids": list(range(10 * (k + 1))), "stop": "end_turn"}
        for k in range(4)
    ]  # fmt: skip
    trace = made(tmp_path, [{"id": "s", "block_size": 64, "requests": requests}]).trace
    assert trace.requests(["gap_s"])["gap_s"].to_list() == [None, 7.5, 7.5, 7.5]
    assert np.diff(trace.requests(["arrival_s"])["arrival_s"].to_numpy()).tolist() == [20.0] * 3
