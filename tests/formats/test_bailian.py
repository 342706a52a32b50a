"""Bailian: links between turns, whole prompts, seconds."""

import pytest


def row(**changes) -> dict:
    return {
        "chat_id": 1, "parent_chat_id": -1, "timestamp": 0.25, "input_length": 20, "output_length": 3,
        "type": "text", "turn": 1, "hash_ids": [1, 2],
    } | changes  # fmt: skip


def test_the_rendering_gives_the_truth_that_it_carries(read, data, served):
    log = read(data / "formats" / "bailian" / "trace_blksz_16.jsonl.gz")
    assert log.report.format == "bailian"
    assert log.column("prompt_tokens") == [true["input_tokens"] for true in served]
    assert log.column("output_tokens") == [true["output_tokens"] for true in served]
    start = served[0]["arrival_unix_s"]
    row_of = {row["link"]: n for n, row in enumerate(log.rows)}
    number_of = {true["request_id"]: n for n, true in enumerate(served)}
    for got, true in zip(log.rows, served, strict=True):
        assert got["arrival_ns"] / 1e9 == pytest.approx(true["arrival_unix_s"] - start, abs=1.01e-3)
        assert got["turn_number"] == true["turn_index"]
        assert len(got["chain"]) == -(-true["input_tokens"] // 16)
        if true["parent_request_id"] in number_of:
            parent = served[row_of[got["parent_link"]]]
            assert parent["session_id"] == true["session_id"]
    assert log.report.sizes.choose() == 16


def test_a_root_has_no_parent(read):
    log = read([row(), row(chat_id=2, parent_chat_id=1, turn=2), row(chat_id="x", parent_chat_id="-1")])
    assert log.column("link") == ["1", "2", "x"]
    assert log.column("parent_link") == [None, "1", None]
    assert log.column("turn_number") == [0, 1, 0]


def test_a_follow_up_holds_the_whole_prompt_and_is_not_added_to_its_parent(read):
    """521 + 132 tokens, then 676: in ai-dynamo/aiperf PR 1393 the second became 1,329."""
    log = read(
        [
            row(input_length=521, output_length=132, hash_ids=list(range(33))),
            row(chat_id=2, parent_chat_id=1, turn=2, input_length=676, hash_ids=list(range(43))),
        ]
    )
    assert log.column("prompt_tokens") == [521, 676]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"turn": 0}, ("out_of_range", "$.turn")),
        ({"input_length": 0}, ("out_of_range", "$.input_length")),
        ({"timestamp": -0.5}, ("out_of_range", "$.timestamp")),
        ({"timestamp": None}, ("wrong_type", "$.timestamp")),
        ({"chat_id": None}, ("wrong_type", "$.chat_id")),
        ({"hash_ids": [[1]]}, ("bad_block_id", "$.hash_ids")),
    ],
)
def test_a_value_out_of_range_costs_its_record_only(read, changes, fault):
    log = read([row(), row(**changes), row(chat_id=3)])
    assert log.faults == [(2, *fault)]
    assert log.column("link") == ["1", "3"]


def test_a_row_without_turn_or_blocks_is_read(read):
    bare = {key: value for key, value in row().items() if key not in ("turn", "hash_ids", "type")}
    log = read([bare])
    assert (log.rows[0]["turn_number"], log.rows[0]["chain"]) == (None, None)
