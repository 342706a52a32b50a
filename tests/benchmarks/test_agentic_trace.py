"""The benchmark trace is what its description says."""

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "make_agentic_trace.py"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    spec = importlib.util.spec_from_file_location("make_agentic_trace", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations of a NamedTuple are looked up there
    spec.loader.exec_module(module)
    path = tmp_path_factory.mktemp("agentic") / "agentic.jsonl"
    module.write_trace(path, 10_000)
    return [json.loads(line) for line in path.read_text().splitlines()]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def test_it_is_as_large_as_it_says(rows):
    assert len(rows) == 10_000
    assert mean(row["input_length"] for row in rows) == pytest.approx(5_700, rel=0.05)
    assert mean(row["output_length"] for row in rows) == pytest.approx(300, rel=0.05)
    assert mean(Counter(row["session_id"] for row in rows).values()) == pytest.approx(6, rel=0.1)
    assert 1e3 * len(rows) / rows[-1]["timestamp"] == pytest.approx(35, rel=0.1)


def test_it_is_in_order_and_starts_every_session_with_its_first_turn(rows):
    times = [row["timestamp"] for row in rows]
    assert times == sorted(times)
    assert times[0] == 0
    turns: dict[str, int] = {}
    for row in rows:
        assert row["turn"] == turns.get(row["session_id"], 0)
        turns[row["session_id"]] = row["turn"] + 1


def test_a_turn_repeats_the_whole_blocks_before_it_and_grows_by_more_than_the_answer(rows):
    last: dict[str, dict] = {}
    for row in rows:
        ids = row["hash_ids"]
        assert len(ids) == -(-row["input_length"] // 512)
        if before := last.get(row["session_id"]):
            whole = before["input_length"] // 512
            assert ids[:whole] == before["hash_ids"][:whole]
            assert row["input_length"] > before["input_length"] + before["output_length"]
        last[row["session_id"]] = row


def test_eight_system_prompts_of_four_blocks_are_all_that_sessions_share(rows):
    sessions: dict[int, set[str]] = {}
    for row in rows:
        for block in row["hash_ids"]:
            sessions.setdefault(block, set()).add(row["session_id"])
    assert sorted(block for block, users in sessions.items() if len(users) > 1) == list(range(32))
