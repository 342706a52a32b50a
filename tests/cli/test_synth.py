"""`agentctl synth` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentctl.trace import open_trace
from agentctl.workload import compile_workload

ROOT = Path(__file__).parents[2]
FEW = ("--sessions", 40, "--rate", 4)


def test_the_frozen_workload_is_written_said_and_read_by_the_other_commands(agentctl, tmp_path):
    done = agentctl("synth", "agentic", *FEW, "--seed", 2, "-o", "a.trace", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert (document["schema"], document["workload"]) == ("agentctl/synth/1", "agentic/1")
    assert document["trace_digest"] == open_trace(tmp_path / "a.trace").digest
    analyzed = json.loads(agentctl("analyze", "a.trace", "--json").out)
    assert analyzed["requests"] == document["requests"]
    assert analyzed["sessions"]["count"] == 40
    shared = agentctl("export", "a.trace", "--anonymize", "-o", "a.jsonl.gz")
    assert shared.code == 0, shared.err
    again = agentctl("ingest", "a.jsonl.gz", "--block-tokens", 64, "-o", "again.trace")
    assert again.code == 0, again.err
    assert open_trace(tmp_path / "again.trace").n_requests == document["requests"]


def test_its_turns_wait_for_each_other_in_a_simulation(agentctl, tmp_path):
    agentctl("synth", "agentic", *FEW, "-o", "a.trace")
    workload = compile_workload(open_trace(tmp_path / "a.trace"))
    assert workload.replay == "thinktime"
    assert not any("fall" in reason and n for reason, n in workload.counts.items()), workload.counts
    later = workload.requests.turn > 0
    assert (workload.requests.release[later] == 1).all()
    assert workload.requests.gap[later].max() > 0


def test_the_same_command_gives_the_same_output(agentctl):
    one, two = (agentctl("synth", "agentic", *FEW, "-o", f"{name}.trace") for name in "ab")
    assert one.out == two.out
    assert "40 sessions" in one.out


def test_a_trace_gives_a_workload_like_it_and_says_what_is_kept(agentctl):
    done = agentctl("synth", ROOT / "sample_traces/weka_80.jsonl.zst", "-o", "like.trace")
    assert done.code == 0, done.err
    assert "of 80 sessions drawn from statistics of a trace" in done.out
    assert "next: agentctl analyze like.trace" in done.err
    explained = agentctl(
        "synth", ROOT / "sample_traces/weka_80.jsonl.zst", "-o", "like.trace", "--force", "-v"
    )
    assert "not kept: ids, hashes, text" in explained.out


def test_a_trace_of_few_sessions_is_refused_with_the_way_out(agentctl, weka, tmp_path):
    done = agentctl("synth", weka, "-o", "like.trace")
    assert done.code == 1
    assert "14 sessions" in done.err
    assert "agentctl export --anonymize" in done.err
    assert not (tmp_path / "like.trace").exists()


@pytest.mark.parametrize("flags", [("--sessions", 0), ("--rate", 0), ("--rate", "nan"), ("--seed", -1)])
def test_numbers_that_make_no_sense_are_wrong_usage(agentctl, tmp_path, flags):
    assert agentctl("synth", "agentic", *flags, "-o", "a.trace").code == 2
    assert not (tmp_path / "a.trace").exists()


def test_an_existing_dataset_is_kept_unless_forced(agentctl):
    agentctl("synth", "agentic", *FEW, "-o", "a.trace")
    assert "already exists" in agentctl("synth", "agentic", *FEW, "-o", "a.trace").err
    assert agentctl("synth", "agentic", *FEW, "-o", "a.trace", "--force").code == 0
