"""Mooncake: the columns of the trace, its variants with sessions, and what is set aside."""

import pytest


def row(**changes) -> dict:
    return {"timestamp": 5, "input_length": 20, "output_length": 3, "hash_ids": [7, 8]} | changes


def test_the_rendering_gives_the_truth_that_it_carries(read, data, served):
    log = read(data / "formats" / "mooncake" / "trace_512.jsonl")
    assert log.report.format == "mooncake" and log.report.time_origin == "relative"
    assert log.column("prompt_tokens") == [row["input_tokens"] for row in served]
    assert log.column("output_tokens") == [row["output_tokens"] for row in served]
    start = served[0]["arrival_unix_s"]
    for got, true in zip(log.rows, served, strict=True):
        assert got["arrival_ns"] / 1e9 == pytest.approx(true["arrival_unix_s"] - start, abs=1.01e-3)
        assert len(got["chain"]) == -(-true["input_tokens"] // 512)
    assert log.report.sizes.choose() == 512


def test_the_size_of_a_block_is_found_in_a_trace_that_does_not_say_it(read, data):
    log = read(data / "mooncake" / "dynamo_mooncake_tiny.jsonl")
    assert len(log.rows) == 16
    assert log.report.sizes.choose() == 512
    assert log.column("arrival_ns")[:16:15] == [0, log.rows[-1]["arrival_ns"]]
    assert log.rows[0]["chain"] == list(range(14))


def test_milliseconds_become_nanoseconds_exactly(read):
    log = read([row(timestamp=27482), row(timestamp=27482.5), row(timestamp=0)])
    assert log.column("arrival_ns") == [27_482_000_000, 27_482_500_000, 0]


def test_a_turn_with_a_delay_stands_that_long_after_the_previous_turn_of_its_session(read):
    log = read(
        [
            row(session_id="a", timestamp=1000),
            row(session_id="b", timestamp=1500),
            row(session_id="a", timestamp=None, delay=250),
            row(session_id="a", timestamp=None, delay=10),
            {"session_id": "b", "delay": 4, "input_length": 1, "output_length": 1},
        ]
    )
    assert log.column("arrival_ns") == [n * 1_000_000 for n in (1000, 1500, 1250, 1260, 1504)]
    assert log.column("think_s") == [None, None, 0.25, 0.01, 0.004]
    assert log.column("session_id") == ["a", "b", "a", "a", "b"]


def test_numeric_session_ids_and_turns_are_kept(read):
    log = read([row(session_id=12, turn=0), row(session_id=12, turn=1)])
    assert log.column("session_id") == ["12", "12"]
    assert log.column("turn_number") == [0, 1]


def test_a_first_turn_without_any_time_is_set_aside(read):
    log = read([row(), row(session_id="a", timestamp=None, delay=250), row()])
    assert log.faults == [(2, "missing_field", "$.timestamp")]


def test_unknown_block_ids_are_not_an_empty_chain(read):
    log = read([row(hash_ids=[7, 8]), row(hash_ids=None), row(hash_ids=[]), {**row(), "hash_ids": [7]}])
    assert log.column("chain") == [[7, 8], None, [], [7]]
    del log
    log = read([{key: value for key, value in row().items() if key != "hash_ids"}])
    assert log.column("chain") == [None]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"input_length": 0}, ("out_of_range", "$.input_length")),
        ({"input_length": -1}, ("out_of_range", "$.input_length")),
        ({"input_length": 10**12}, ("out_of_range", "$.input_length")),
        ({"input_length": 10**30}, ("out_of_range", "$.input_length")),
        ({"input_length": None}, ("wrong_type", "$.input_length")),
        ({"output_length": -1}, ("out_of_range", "$.output_length")),
        ({"output_length": 1.5}, ("wrong_type", "$.output_length")),
        ({"output_length": True}, ("wrong_type", "$.output_length")),
        ({"timestamp": -1}, ("out_of_range", "$.timestamp")),
        ({"timestamp": 10**20}, ("out_of_range", "$.timestamp")),
        ({"timestamp": 1e300}, ("out_of_range", "$.timestamp")),
        ({"timestamp": None}, ("missing_field", "$.timestamp")),
        ({"timestamp": "noon"}, ("wrong_type", "$.timestamp")),
        ({"hash_ids": [1, -1]}, ("bad_block_id", "$.hash_ids")),
        ({"hash_ids": {"a": 1}}, ("bad_block_id", "$.hash_ids")),
        ({"session_id": "a", "delay": -1}, ("out_of_range", "$.delay")),
        ({"session_id": "a", "turn": -1}, ("out_of_range", "$.turn")),
    ],
)
def test_a_value_out_of_range_costs_its_record_only(read, changes, fault):
    log = read([row(), row(**changes), row(timestamp=9)])
    assert log.faults == [(2, *fault)]
    assert log.column("arrival_ns") == [5_000_000, 9_000_000]
    assert log.column("chain") == [[7, 8], [7, 8]]


def test_no_output_is_a_fact(read):
    assert read([row(output_length=0)]).column("output_tokens") == [0]
