"""TraceLab: rounds of coding agents, the same calls as the session files give that they were made from."""

import pytest
from oracles.truth import dataset

from agentctl.formats import tracelab
from agentctl.ingest.build import ingest

ROUNDS = "coding_agents/tracelab_round_trace.jsonl"
SOURCES = {"claude": "coding_agents/claude_code_session.jsonl", "codex": "coding_agents/codex_rollout.jsonl"}
COUNTS = ("prompt_tokens", "output_tokens", "cached_tokens", "n_tool_calls_out", "model")


def event(kind: str, second: int) -> dict:
    return {"event_type": kind, "timestamp": f"2026-06-01T05:40:{second:02d}.151Z", "content_chars": 7}


def row(**changes) -> dict:
    return {
        "provider": "claude", "session_id": "s", "round_index": 0, "round_id": "m", "model": "c",
        "input_tokens_total": 30, "prefix_tokens": 20, "newly_append_tokens": 10, "output_tokens": 5,
        "timing_events": [event("user_message", 20), event("text", 29)], "tools": [],
    } | changes  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_the_rounds_are_the_calls_that_the_session_file_gives(read, data, source):
    """Two independent readings of one file: TraceLab's and ours."""
    rounds = [row for row in read(data / ROUNDS).rows if row["session_id"].startswith(source)]
    calls = read(data / SOURCES[source]).rows
    assert len(rounds) == len(calls) > 8
    for ours, theirs in zip(calls, rounds, strict=True):
        assert {name: ours[name] for name in COUNTS} == {name: theirs[name] for name in COUNTS}
        # what Claude Code attaches to a tool's result is input here and none there
        assert 0 <= ours["arrival_ns"] - theirs["arrival_ns"] <= 4_000_000
        # some of their rounds of Codex end with the last output, not with the usage report behind it
        assert ours["e2e_s"] == pytest.approx(theirs["e2e_s"], abs=0.02)


def test_a_whole_ingest_makes_two_sessions(data, tmp_path):
    ingest([data / ROUNDS], tmp_path / "a.trace")
    rows = dataset(tmp_path / "a.trace")
    assert sorted({row["session_id"].split(":")[0] for row in rows}) == ["claude", "codex"]
    for name, n in (("claude", 10), ("codex", 9)):
        mine = [row for row in rows if row["session_id"].startswith(name)]
        assert [row["turn_index"] for row in mine] == list(range(n))
        assert [row["gap_kind"] for row in mine][1:] == [
            "tool" if row["n_tool_calls_out"] else "user" for row in mine[:-1]
        ]


def test_a_reader_gives_what_it_says(read):
    full = row(claude_cache_creation_input_tokens=4, reasoning_output_tokens=1)
    assert read([full]).carried == set(tracelab.CARRIES)


def test_the_call_begins_with_its_last_input(read):
    events = [
        event("tool_result", 20),
        event("tool_result", 25),
        event("text", 29),
        event("usage_report", 31),
    ]
    log = read([row(timing_events=events), row(round_index=1, timing_events=[event("tool_result", 40)])])
    assert [ns // 10**9 % 60 for ns in log.column("arrival_ns")] == [25, 40]
    assert log.column("e2e_s") == [6.0, None]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"newly_append_tokens": 11}, ("total_differs", "$.input_tokens_total")),
        ({"timing_events": []}, ("missing_field", "$.timing_events")),
        ({"timing_events": [event("text", 29)]}, ("missing_field", "$.timing_events")),
        (
            {"timing_events": [event("user_message", 29) | {"timestamp": "x"}]},
            ("wrong_type", "$.timing_events"),
        ),
        ({"output_tokens": -1}, ("out_of_range", "$.output_tokens")),
        ({"session_id": None}, ("wrong_type", "$.session_id")),
    ],
)
def test_a_bad_value_costs_its_round_only(read, changes, fault):
    log = read([row(), row(round_index=1) | changes, row(round_index=2)])
    assert log.faults == [(2, *fault)]
    assert log.column("turn_number") == [0, 2]
