"""Claude Code: one call from several rows, its place in the tree, and what is no call."""

import json
import random

import pytest
from oracles.truth import dataset

from agentctl.formats import claude_code
from agentctl.ingest.build import ingest

SESSION = "coding_agents/claude_code_session.jsonl"


def stamp(seconds: float) -> str:
    return f"2026-06-01T00:{int(seconds) // 60:02d}:{int(seconds) % 60:02d}.{round(seconds % 1 * 1000):03d}Z"


def row(kind: str, uuid: str, parent: str | None, at: float, session: str = "s", **changes) -> dict:
    row = {"type": kind, "uuid": uuid, "parentUuid": parent, "timestamp": stamp(at), "sessionId": session}
    return row | {"isSidechain": False} | changes


def user(uuid: str, parent: str | None, at: float, **changes) -> dict:
    return row("user", uuid, parent, at, message={"role": "user", "content": "SECRET"}, **changes)


def answer(
    uuid: str, parent: str | None, at: float, message_id: str, tokens=(5, 10, 20, 7), block="text", **changes
) -> dict:
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    message = {
        "id": message_id, "model": "m", "stop_reason": "end_turn",
        "content": [{"type": block, "text": "SECRET"}],
        "usage": dict(zip(names, tokens, strict=True)),
    }  # fmt: skip
    return row("assistant", uuid, parent, at, **({"message": message} | changes))


TWO_CALLS = [
    user("u1", None, 1),
    answer("a1", "u1", 3, "m1"),
    answer("a2", "a1", 4, "m1", block="tool_use"),
    user("u2", "a2", 6),
    answer("a3", "u2", 9, "m2", (1, 2, 40, 3)),
]


def test_the_known_answers_of_the_sample(read, data):
    log = read(data / SESSION)
    assert (log.report.format, log.report.time_origin, log.faults) == ("claude_code", "absolute", [])
    assert (len(log.rows), log.report.n_lines, log.report.n_record_lines) == (10, 64, 25)
    totals = {name: sum(log.column(name)) for name in claude_code.CARRIES if name.endswith("_tokens")}
    assert totals == {
        "prompt_tokens": 3_039 + 21_086 + 394_068,
        "cache_write_tokens": 21_086,
        "cached_tokens": 394_068,
        "output_tokens": 9_423,
    }
    # row 4 asks at 05:40:20.151, the attachment after it is a millisecond older; blocks at :29.420 to :31.647
    first, second, *_ = log.rows
    assert first["arrival_ns"] == 1_780_292_420_151_000_000
    assert first["e2e_s"] == pytest.approx(11.496)
    assert first["n_tool_calls_out"] == 2 and first["finish_reason"] == "tool_use"
    # two tools ran side by side; the call waited for the later one, :50.938
    assert second["arrival_ns"] - first["arrival_ns"] == 30_787_000_000
    assert second["previous_link"] == first["request_id"] == first["link"]


def test_a_whole_ingest_makes_one_session_of_ten_turns(data, tmp_path):
    ingest([data / SESSION], tmp_path / "a.trace")
    rows = dataset(tmp_path / "a.trace")
    assert [row["turn_index"] for row in rows] == list(range(10)) == [row["n_assistant"] for row in rows]
    assert {row["session_id"] for row in rows} == {"2f8b1c4d-6a73-4e9b-91c0-5d7f3a8e2b46"}
    assert [row["parent_request_id"] for row in rows] == [None, *(row["request_id"] for row in rows[:-1])]
    assert {row["origin"] for row in rows} == {"new"}
    # the user speaks after the only answer that ends its turn
    assert [row["gap_kind"] for row in rows] == [None, *["tool"] * 4, "user", *["tool"] * 4]
    assert rows[5]["gap_s"] == pytest.approx(19.913)
    assert all(row["ttft_s"] is None for row in rows)


def test_a_reader_gives_what_it_says(read):
    log = read([*TWO_CALLS, user("v1", None, 2, agentId="x"), answer("b1", "v1", 3, "m3", agentId="x")])
    assert log.carried == set(claude_code.CARRIES)


def test_a_call_lasts_from_its_complete_input_to_its_last_block(read):
    log = read(TWO_CALLS)
    assert [ns % (60 * 10**9) / 1e9 for ns in log.column("arrival_ns")] == [1.0, 6.0]
    assert log.column("e2e_s") == [3.0, 3.0]
    assert log.column("prompt_tokens") == [35, 43]
    assert log.column("n_tool_calls_out") == [1, 0]
    assert (log.column("source_row"), log.report.n_record_lines) == ([2, 5], 3)


def test_rows_in_any_order_give_the_same_calls(read):
    calls = [{**call, "source_row": 0} for call in read(TWO_CALLS).rows]
    for seed in range(10):
        rows = TWO_CALLS.copy()
        random.Random(seed).shuffle(rows)
        assert [{**call, "source_row": 0} for call in read(rows).rows] == calls


@pytest.mark.parametrize("request_id", [{}, {"requestId": None}, {"requestId": ""}, {"requestId": "r"}])
def test_rows_of_a_message_without_a_request_id_are_counted_once(read, request_id):
    """ccusage #976 and #994: 368 rows of 171 messages were counted 2.3 times."""
    rows, parent = [user("u", None, 0)], "u"
    for k in range(368):
        n = min(k, 170) if k < 200 else k % 171
        rows.append(answer(f"a{k}", parent, 1 + k / 8, f"m{n}", (n, 1, 2, 3), **request_id))
        parent = f"a{k}"
    log = read(rows)
    assert len(log.rows) == 171
    assert sum(log.column("output_tokens")) == 171 * 3
    assert sum(log.column("prompt_tokens")) == sum(range(171)) + 171 * 3


def test_the_largest_output_of_a_calls_rows_is_its_own(read):
    """ccusage #797: early rows hold what was known when they were written."""
    early = answer("a1", "u1", 3, "m1", (0, 0, 0, 1))
    log = read([user("u1", None, 1), early, answer("a2", "a1", 4, "m1", (5, 10, 20, 70))])
    assert (log.column("output_tokens"), log.column("prompt_tokens")) == ([70], [35])


def test_a_constant_message_id_is_not_one_call(read):
    rows = [
        user("u1", None, 1), answer("a1", "u1", 2, "msg"), answer("a2", "a1", 3, "msg"),
        user("u2", "a2", 4), answer("a3", "u2", 5, "msg", (9, 10, 20, 7)),
    ]  # fmt: skip
    log = read(rows)
    assert log.column("request_id") == ["msg", "msg#2"]
    assert log.column("previous_link") == [None, "msg"]
    assert log.column("e2e_s") == [2.0, 1.0]


def test_a_tool_result_between_the_blocks_of_a_call_does_not_split_it(read):
    rows = [
        user("u1", None, 1), answer("a1", "u1", 2, "m1", block="tool_use"), user("t1", "a1", 3),
        answer("a2", "t1", 4, "m1", block="tool_use"), user("t2", "a2", 5), answer("a3", "t2", 7, "m2"),
    ]  # fmt: skip
    log = read(rows)
    assert log.column("request_id") == ["m1", "m2"]
    assert log.column("e2e_s") == [3.0, 2.0]
    assert log.column("n_tool_calls_out") == [2, 0]


def test_an_edited_question_is_a_branch(tmp_path):
    rows = [
        user("u1", None, 1), answer("a1", "u1", 2, "m1"),
        user("u2", "a1", 3), answer("a2", "u2", 4, "m2"),
        user("u3", "a1", 8), answer("a3", "u3", 9, "m3"),
    ]  # fmt: skip
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
    ingest([tmp_path / "s.jsonl"], tmp_path / "a.trace")
    found = dataset(tmp_path / "a.trace")
    assert [row["parent_request_id"] for row in found] == [None, "m1", "m1"]
    assert [row["n_assistant"] for row in found] == [0, 1, 1]


def test_compaction_keeps_the_session_and_its_parent_but_not_its_history(tmp_path):
    boundary = row("system", "b", None, 5, subtype="compact_boundary", logicalParentUuid="a2")
    rows = [
        user("u1", None, 1), answer("a1", "u1", 2, "m1", (0, 0, 90_000, 1)),
        user("u2", "a1", 3), answer("a2", "u2", 4, "m2", (0, 0, 99_000, 1)),
        boundary, user("u3", "b", 6, isCompactSummary=True), user("u4", "u3", 7),
        answer("a3", "u4", 9, "m3", (20_000, 0, 0, 1)),
    ]  # fmt: skip
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
    ingest([tmp_path / "s.jsonl"], tmp_path / "a.trace")
    found = dataset(tmp_path / "a.trace")
    assert [row["origin"] for row in found] == ["new", "new", "compacted"]
    assert [row["turn_index"] for row in found] == [0, 1, 2]
    assert [row["n_assistant"] for row in found] == [0, 1, 0]
    assert found[2]["arrival_s"] - found[0]["arrival_s"] == 6.0


@pytest.mark.parametrize(("agent", "path"), [("a7", "a7"), (None, "v1")])
def test_sub_agents_are_lines_of_the_session_that_started_them(tmp_path, agent, path):
    """In files of their own with an agentId, in old versions without: then the line is called by its root."""
    side = {"isSidechain": True, "agentId": agent}
    rows = [
        user("v1", None, 4, **side), answer("b1", "v1", 5, "m8", **side),
        user("v2", "b1", 7, **side), answer("b2", "v2", 8, "m9", **side),
    ]  # fmt: skip
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in TWO_CALLS))
    (tmp_path / "agent-a7.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
    ingest([tmp_path / "s.jsonl", tmp_path / "agent-a7.jsonl"], tmp_path / "a.trace")
    found = dataset(tmp_path / "a.trace")
    assert [(row["request_id"], row["agent_path"], row["turn_index"]) for row in found] == [
        ("m1", None, 0), ("m8", path, 0), ("m2", None, 1), ("m9", path, 1),
    ]  # fmt: skip
    assert {row["session_id"] for row in found} == {"s"}


@pytest.mark.parametrize("order", [1, -1])
def test_history_copied_into_a_resumed_session_is_counted_once(tmp_path, order):
    resumed = [*TWO_CALLS, user("u3", "a3", 20), answer("a4", "u3", 25, "m3")]
    for name, rows in (("old", TWO_CALLS), ("new", resumed)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in rows))
    report = ingest([tmp_path / "old", tmp_path / "new"][::order], tmp_path / "a.trace")
    rows = dataset(tmp_path / "a.trace")
    assert report.document["records"]["dropped"] == {"duplicate_request_id": 2}
    assert [row["request_id"] for row in rows] == ["m1", "m2", "m3"]
    assert [row["parent_request_id"] for row in rows] == [None, "m1", "m2"]


def test_what_no_engine_served_is_left_out_and_counted(read):
    synthetic = {"id": "x", "model": "<synthetic>", "content": [], "usage": {"input_tokens": 0}}
    rows = [
        *TWO_CALLS,
        row("assistant", "e1", "a3", 10, message=synthetic),
        row("assistant", "e2", "e1", 11, message=synthetic, isApiErrorMessage=True),
        answer("a9", "gone", 12, "m9"),
    ]
    log = read(rows)
    assert log.column("request_id") == ["m1", "m2"]
    assert log.report.dropped == {"synthetic": 1, "api_error": 1, "input_not_in_file": 1}


def test_rows_of_other_kinds_belong_to_the_conversation(read):
    others = [
        {"type": "summary", "summary": "SECRET", "leafUuid": "a3"},
        {"type": "mode", "mode": "normal", "sessionId": "s"},
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
        row("system", "y", "a3", 10, subtype="turn_duration"),
        TWO_CALLS[1],  # the same row again
    ]
    log = read([*others[:3], *TWO_CALLS, *others[3:]])
    assert log.report.format == "claude_code"
    assert (len(log.rows), log.report.n_record_lines, log.report.n_other_lines) == (2, 3, 7)


def used(input_tokens: object) -> dict:
    return {"message": {"id": "m", "usage": {"input_tokens": input_tokens}}}


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        ({"timestamp": "yesterday"}, ("wrong_type", "$.timestamp")),
        ({"timestamp": None}, ("wrong_type", "$.timestamp")),
        ({"type": None}, ("wrong_type", "$.type")),
        ({"message": {"model": "m"}}, ("missing_field", "$.message")),
        (used("x"), ("wrong_type", "$.message.usage.input_tokens")),
        (used(-1), ("out_of_range", "$.message.usage.input_tokens")),
    ],
)
def test_a_bad_row_costs_itself_only(read, bad, fault):
    log = read([*TWO_CALLS, answer("a9", "a3", 30, "m9") | bad])
    assert log.faults == [(6, *fault)]
    assert log.column("request_id") == ["m1", "m2"]


def test_counts_that_a_gateway_leaves_out_are_unknown(read):
    message = {"id": "m9", "content": "SECRET"}
    log = read(
        [
            user("u", None, 0),
            row("assistant", "a", "u", 1, message=message | {"usage": {"input_tokens": 9}}),
            row("assistant", "b", "a", 2, message=message | {"id": "m10"}),
        ]
    )
    assert log.column("prompt_tokens") == [9, None]
    assert log.column("cached_tokens") == [None, None] == log.column("output_tokens")
    # nothing lies between the two: the second waited for the first answer alone
    assert log.column("e2e_s") == [1.0, 1.0]
