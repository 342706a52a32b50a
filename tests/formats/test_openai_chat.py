"""Chat bodies: the truth that they carry, the shapes in use, and what their counts mean.

| column | carried | |
| --- | --- | --- |
| arrival, ttft, e2e, status, http_status, model, tenant | yes | all 358 |
| request_id, session, turn, attempt, parent, gap | yes | all 358 |
| prompt | yes | as reported, and of the 14 failures as their retry reports: the text is the same |
| output, cached tokens, finish_reason | of the 344 that ended well | |
| n_messages | yes | all 358 |
| block chains | yes | to 0.05 points of the exact reuse |
| queue, instance | no | |
"""

from itertools import pairwise

import polars as pl
import pytest
from oracles.renderings import agreeing, answered, first_attempt

from agentctl.formats.base import Reading, ReadOptions, reader_named
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.ingest.quarantine import Quarantine
from agentctl.ingest.source import Source
from agentctl.ingest.texts import split

LOG = "formats/openai/chat_completions.jsonl.gz"
EXACT_REUSE = (
    0.931912  # of the tokens, 16-token blocks, full ones, without errors (from the tokens themselves)
)
BODY = {
    "model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [{"a": 1}, {"b": 2}],
    "max_completion_tokens": 9, "stream": True, "prompt_cache_key": "s", "user": "t", "priority": -3,
    "cache_salt": "group",
}  # fmt: skip
ANSWER = {
    "id": "chatcmpl-1", "created": 1794474012, "model": "served",
    "choices": [{"message": {"role": "assistant", "tool_calls": [{}, {}]}, "finish_reason": "tool_calls"}],
    "usage": {
        "prompt_tokens": 20, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 16},
        "completion_tokens_details": {"reasoning_tokens": 2}, "cache_creation_input_tokens": 1,
    },
}  # fmt: skip
CALL = {
    "request_id": "r", "timestamp": 1794474012.25, "end_timestamp": 1794474012.75, "ttft_ms": 125.0,
    "status_code": 200, "request": BODY, "response": ANSWER,
}  # fmt: skip


@pytest.fixture
def dataset(data, tmp_path):
    return ingest([data / LOG], tmp_path / "a.trace").trace


def prompts(path):
    """What the reader hands over to be hashed."""
    source = Source(str(path))
    reading = Reading(source, Quarantine(source.name), ReadOptions())
    return [prompt for batch in reader_named("openai_chat").read(reading) for prompt in batch.prompts]


def test_the_rendering_gives_the_truth_that_it_carries(dataset, truth):
    table, origin = dataset.requests(), dataset.meta["time_origin_ns"]
    everywhere = {
        "arrival_s", "e2e_s", "ttft_s", "status", "http_status", "model", "tenant", "session_id",
        "turn_index", "attempt", "prompt_tokens",
    }  # fmt: skip
    assert everywhere <= agreeing(table, truth, time_origin_ns=origin)
    of_answered = everywhere | {"output_tokens", "cached_tokens", "finish_reason"}
    assert of_answered <= agreeing(table, truth, answered, origin)
    of_first = of_answered | {"gap_s", "gap_kind", "parent_request_id"}
    assert of_first <= agreeing(table, truth, first_attempt, origin)
    n_messages = dict(table.select("request_id", "n_messages").iter_rows())
    assert all(n_messages[true["request_id"]] == int(true["n_messages"]) for true in truth)


def test_failed_calls_have_the_tokens_of_their_retry_and_say_that_they_are_estimated(dataset, truth):
    sources = dict(dataset.requests().select("request_id", "token_source").iter_rows())
    for true in truth:
        expected = "reported" if true["status"] == "ok" else "estimated"
        assert sources[true["request_id"]] == expected


@pytest.mark.parametrize("options", [{}, {"blocks": "message"}, {"tools_order": "after-system"}])
def test_reuse_is_that_of_the_tokens(data, tmp_path, options):
    trace = ingest([data / LOG], tmp_path / "a.trace", IngestOptions(**options)).trace
    assert reuse(trace) == pytest.approx(EXACT_REUSE, abs=5e-4)


def test_the_hit_of_every_call_is_within_a_few_blocks_of_what_the_engine_reports(dataset):
    rows = dataset.requests().filter(pl.col("status") != "error")
    close = [
        abs(hit - cached) <= 16
        for hit, cached in zip(hits(dataset, rows), rows["cached_tokens"], strict=True)
        if cached is not None
    ]
    assert sum(close) / len(close) > 0.9


def hits(trace, rows):
    """Tokens that an infinite cache would have had, full blocks."""
    parent, seen, found = trace.tree.parent, set(), []
    for tip in rows["tip_node"]:
        path = set()
        while tip:
            path.add(tip)
            tip = int(parent[tip])
        found.append(16 * len(path & seen))
        seen |= path
    return found


def reuse(trace):
    rows = trace.requests().filter(pl.col("status") != "error")
    return sum(hits(trace, rows)) / rows["prompt_tokens"].sum()


FLAT = BODY | {"id": "r", "timestamp": 1794474012.25, "usage": ANSWER["usage"]}
BATCH = {
    "id": "x", "custom_id": "r", "method": "POST", "url": "/v1/chat/completions", "body": BODY,
    "response": {"status_code": 200, "request_id": "y", "body": ANSWER}, "error": None,
}  # fmt: skip


@pytest.mark.parametrize("call", [CALL, FLAT, BATCH], ids=["request and response", "flat", "batch"])
def test_a_call_is_the_same_in_every_shape(read, tmp_path, call):
    log = read([call])
    assert log.report.format == "openai_chat" and log.faults == []
    (row,) = log.rows
    names = (
        "request_id", "session_id", "tenant", "model", "prompt_tokens", "output_tokens", "cached_tokens",
        "cache_write_tokens", "reasoning_tokens", "max_tokens", "status", "stream", "priority",
    )  # fmt: skip
    assert [row[name] for name in names] == ["r", "s", "t", "m", 20, 3, 16, 1, 2, 9, "ok", True, -3]
    assert (row["n_messages"], row["n_assistant"], row["n_tools"]) == (1, 0, 2)
    (prompt,) = prompts(tmp_path / "log")
    assert split(prompt.messages) == [b'{"role": "user", "content": "hi"}']
    assert (prompt.tools, prompt.group) == (b'[{"a": 1}, {"b": 2}]', "group")


def test_times_and_outcomes(read):
    row = read([CALL]).rows[0]
    assert row["arrival_ns"] == 1794474012_250000000
    assert (row["e2e_s"], row["ttft_s"], row["http_status"]) == (0.5, 0.125, 200)
    assert (row["finish_reason"], row["n_tool_calls_out"]) == ("tool_calls", 2)
    dated = read([CALL | {"timestamp": "2026-11-12T09:00:12.25Z", "end_timestamp": None}]).rows[0]
    assert dated["arrival_ns"] == 1794474012_250000000 and dated["e2e_s"] is None
    assert read([{"request": BODY, "response": ANSWER}]).rows[0]["arrival_ns"] == 1794474012_000000000
    at_its_end = read([BODY | {"timestamp": 1794474012.75, "latency_sec": 0.5, "response": ANSWER}]).rows[0]
    assert (at_its_end["arrival_ns"], at_its_end["e2e_s"]) == (1794474012_250000000, 0.5)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"status_code": 499, "response": None}, "aborted"),
        ({"status_code": 500, "response": None}, "error"),
        ({"status_code": None, "response": None, "error": {"message": "no"}}, "error"),
        ({"status_code": None, "error": None}, "ok"),
    ],
)
def test_failures_are_known_by_code_or_error(read, changes, status):
    assert read([CALL | changes]).rows[0]["status"] == status


def test_anthropics_three_input_counts_are_added_and_the_system_prompt_is_a_message(read, tmp_path):
    call = {
        "timestamp": 1794474012,
        "request": {"system": "be kind", "messages": BODY["messages"], "max_tokens": 5},
        "response": {
            "id": "msg_1", "stop_reason": "tool_use", "content": [{"type": "text"}, {"type": "tool_use"}],
            "usage": {
                "input_tokens": 3, "cache_read_input_tokens": 16, "cache_creation_input_tokens": 1,
                "output_tokens": 7,
            },
        },
    }  # fmt: skip
    row = read([call]).rows[0]
    names = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "max_tokens")
    assert [row[name] for name in names] == [20, 16, 1, 7, 5]
    assert (row["finish_reason"], row["n_tool_calls_out"], row["request_id"]) == ("tool_use", 1, "msg_1")
    (prompt,) = prompts(tmp_path / "log")
    assert (prompt.system, bytes(prompt.messages)) == (b'"be kind"', b'[{"role": "user", "content": "hi"}]')


def test_a_call_without_messages_or_with_impossible_counts_is_set_aside(read):
    bad = [
        CALL | {"request": {"model": "m"}},
        CALL | {"response": ANSWER | {"usage": {"prompt_tokens": -1}}},
        CALL | {"request": BODY | {"priority": 1 << 31}},
        {**CALL, "timestamp": None, "response": None},
    ]
    log = read([CALL, CALL, CALL, CALL, CALL, *bad])
    assert log.faults == [
        (6, "missing_field", "$.messages"),
        (7, "out_of_range", "$.usage"),
        (8, "out_of_range", "$.priority"),
        (9, "missing_field", "$.timestamp"),
    ]


def test_calls_of_openhands_have_their_tools_beside_the_messages_and_their_time_at_the_end(read, data):
    logs = [read(path) for path in sorted((data / "openhands").glob("*.gz"))]
    rows = [log.rows[0] for log in logs]
    assert [row["n_tools"] for row in rows] == [3] * 6
    assert rows[0]["prompt_tokens"] == 4812 and rows[0]["n_tool_calls_out"] == 1
    assert rows[0]["arrival_ns"] / 1e9 + rows[0]["e2e_s"] == pytest.approx(1757015025.9723232, abs=1e-5)
    assert all(a["arrival_ns"] < b["arrival_ns"] for a, b in pairwise(rows))
