"""Langfuse: what its generations say, which buckets make a prompt, and what is left out.

Of the truth an export carries: arrival, TTFT and end (to the ms), status, model, tenant, session, and the
tokens of requests that did not fail; not the finish reason (but the calls in the answer) and not the queue.
"""

import json

import pytest

from agentctl.formats.langfuse import CARRIES
from agentctl.ingest.build import ingest

LOG = "formats/langfuse/observations.jsonl.gz"


def row(**changes) -> dict:
    return {
        "id": "a", "traceId": "t", "type": "GENERATION", "startTime": "2026-11-12T09:00:12.043Z",
        "endTime": "2026-11-12T09:00:12.518Z", "usageDetails": {"input": 7, "output": 3, "total": 10},
        "input": [{"role": "user", "content": "hi"}], "output": None,
    } | changes  # fmt: skip


def test_the_rendering_gives_the_truth_that_it_carries(read, data, truth):
    log = read(data / LOG)
    assert log.report.format == "langfuse" and log.report.time_origin == "absolute"
    assert log.report.tz_assumed is None and log.report.warnings == []
    assert log.column("request_id") == [true["request_id"][:16] for true in truth]
    for column in ("status", "tenant", "model", "session_id"):
        assert log.column(column) == [true[column] for true in truth]
    for got, true in zip(log.rows, truth, strict=True):
        is_ok = true["status"] == "ok"
        assert got["arrival_ns"] / 1e9 == pytest.approx(true["arrival_unix_s"], abs=1.01e-3)
        assert got["e2e_s"] == pytest.approx(true["e2e_s"], abs=1.01e-3)
        assert got["http_status"] == (None if is_ok else true["http_status"])
        for column, name in (
            ("prompt_tokens", "input_tokens"),
            ("cached_tokens", "cached_tokens"),
            ("output_tokens", "output_tokens"),
        ):
            assert got[column] == (int(true[name]) if is_ok else None)
        if is_ok:
            assert got["ttft_s"] == pytest.approx(true["ttft_s"], abs=1.01e-3)
            assert got["n_tool_calls_out"] == int(true["finish_reason"] == "tool_calls")
        else:
            assert got["ttft_s"] is got["n_tool_calls_out"] is None


def test_the_sessions_of_the_log_become_those_of_the_dataset(data, truth, tmp_path):
    trace = ingest([data / LOG], tmp_path / "a.trace").trace
    rows = trace.requests(["request_id", "session_id", "session_source"])
    assert rows["session_id"].to_list() == [true["session_id"] for true in truth]
    assert set(rows["session_source"].to_list()) == {"explicit"}


def test_a_trace_is_read_with_its_generations_and_the_rest_is_counted(read, data):
    log = read(data / "langfuse/langgraph-python-2025-08-22.trace.json.gz", json_document=True)
    assert log.report.format == "langfuse"
    assert log.report.dropped == {"other_span": 7}
    assert log.column("prompt_tokens") == [60, 108]
    assert log.column("output_tokens") == [15, 51]
    assert log.column("n_tool_calls_out") == [1, 0]
    assert log.column("model") == ["gpt-4o-2024-08-06"] * 2


def test_durations_come_from_dates_because_latency_is_in_seconds_or_in_milliseconds(read, data):
    """The first export says 0.848, the second 2362."""
    for name, shortest in (("langgraph-python-2025-08-22", 0.848), ("pydantic-ai-tools-2025-12-04", 1.283)):
        log = read(data / f"langfuse/{name}.trace.json.gz", json_document=True)
        assert min(log.column("e2e_s")) == shortest
    assert log.report.dropped == {"other_span": 5, "tool_span": 3}
    assert sorted(log.column("prompt_tokens")) == [131, 265, 417, 502]
    assert sorted(log.column("finish_reason")) == ["stop", "stop", "tool_call", "tool_call"]


def test_observations_get_the_session_and_user_of_their_trace(read):
    log = read(
        [
            {"trace": {"sessionId": "s", "userId": "u"}, "observations": [row(), row(id="b", userId="v")]},
            {"id": "t2", "sessionId": "s2", "userId": "u2", "observations": [row(id="c", sessionId="own")]},
        ]
    )
    assert log.column("session_id") == ["s", "s", "own"]
    assert log.column("tenant") == ["u", "v", "u2"]
    assert log.report.n_lines == log.report.n_record_lines == 2


@pytest.mark.parametrize(
    ("usage", "prompt"),
    [
        # disjoint buckets, by the names of several SDKs
        ({"input": 61, "input_cached_tokens": 1248, "output": 39, "total": 1348}, 1309),
        ({"input": 5, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 80, "output": 1}, 985),
        ({"input": 2, "input_cache_read": 47105, "input_cache_creation": 0, "input_cache_creation_1h": 1076,
          "output": 714}, 48183),
        ({"input": 2457, "input_cached_tokens": 2064, "output": 52, "total": 4573}, 4521),
        ({"input": 40, "input_audio": 10, "input_cache_read": 0, "output": 1, "total": 51}, 50),
        # langfuse #12306: 5 + 128,955 + 1,253 sent as the input, and a total that Langfuse added up
        ({"input": 130213, "input_cache_read": 128955, "input_cache_creation": 1253, "output": 9,
          "total": 260430}, 130213),
        # langfuse #10592
        ({"input": 17903, "input_cached_tokens": 17817, "output": 80, "total": 35800}, 17903),
        # a client's own total of input and output
        ({"input": 100, "input_cached_tokens": 30, "output": 5, "total": 105}, 100),
        ({"input": 7, "output": 3}, 7),
        ({"output": 3}, None),
        ({}, None),
        (None, None),
    ],
)  # fmt: skip
def test_buckets_make_a_whole_prompt_that_counts_cached_tokens_once(read, usage, prompt):
    assert read([row(usageDetails=usage)]).column("prompt_tokens") == [prompt]


def test_what_one_request_shows_holds_for_the_others_of_its_sdk(read):
    """30 cached tokens fit into an input of 100 and beside it; the other request settles it."""
    unclear = {"input": 100, "input_cached_tokens": 30, "output": 5, "total": 135}
    apart = {"input": 10, "input_cached_tokens": 130, "output": 5, "total": 145}
    inside = {"input": 131, "input_cached_tokens": 130, "output": 5, "total": 266}
    for settles, prompts in ((apart, [130, 140]), (inside, [100, 131])):
        log = read([row(usageDetails=unclear), row(id="b", usageDetails=settles)])
        assert log.column("prompt_tokens") == prompts
    assert log.report.warnings == [
        "2 of 2 requests with cached tokens hold them in the input count, although the format keeps them "
        "apart: they are not added again"
    ]
    other_sdk = {"input": 100, "input_cache_read": 30, "output": 5, "total": 135}
    log = read([row(usageDetails=other_sdk), row(id="b", usageDetails=inside)])
    assert log.column("prompt_tokens") == [130, 131]


def test_reasoning_is_part_of_the_output_once(read):
    apart = {"input": 10, "output": 5, "output_reasoning": 20, "total": 35}
    inside = {"input": 10, "output": 25, "output_reasoning_tokens": 20, "total": 35}
    log = read([row(usageDetails=apart), row(id="b", usageDetails=inside)])
    assert log.column("output_tokens") == [25, 25]
    assert log.column("reasoning_tokens") == [20, 20]


@pytest.mark.parametrize(
    ("message", "http_status", "status"),
    [
        (None, None, "error"),
        ("Error code: 400 - {'error': SECRET}", 400, "error"),
        ("HTTP 499", 499, "aborted"),
        ("429 Too Many Requests", 429, "rejected"),
        ("the user wrote 500 pages", None, "error"),
    ],
)
def test_a_failure_has_a_status_where_its_message_begins_with_one(read, message, http_status, status):
    log = read([row(level="ERROR", statusMessage=message, usageDetails={})])
    assert log.column("status") == [status]
    assert log.column("http_status") == [http_status]


def test_a_generation_inside_a_generation_is_one_call(read):
    inner = row(id="in", parentObservationId="a", startTime="2026-11-12T09:00:12.100Z")
    later = row(id="later", parentObservationId="in", startTime="2026-11-12T09:00:13.100Z", endTime=None)
    log = read([row(), inner, later])
    assert log.column("request_id") == ["in", "later"]
    assert log.report.dropped == {"enclosing_span": 1}
    log = read([{"trace": {}, "observations": [row(), inner]}])
    assert log.column("request_id") == ["in"]


@pytest.mark.parametrize(
    "output",
    [
        '{"finish_reason": "SECRET", "answer": 42}',  # the model was asked for JSON
        {"role": "assistant", "content": "a", "finish_reason": "SECRET"},
        [{"role": "user", "finish_reason": "stop"}],
        "SECRET",
    ],
)
def test_no_word_of_an_answer_becomes_a_finish_reason(read, output):
    assert read([row(output=output)]).column("finish_reason") == [None]


def test_a_warning_is_no_failure(read):
    assert read([row(level="WARNING", statusMessage="HTTP 500")]).column("status") == ["ok"]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"startTime": None}, ("missing_field", "$.startTime")),
        ({"startTime": "noon"}, ("wrong_type", "$.startTime")),
        ({"endTime": "2026-11-12T09:00:11Z"}, ("out_of_range", "$.endTime")),
        ({"completionStartTime": "2026-11-12T09:00:11Z"}, ("out_of_range", "$.completionStartTime")),
        ({"type": None}, ("missing_field", "$.type")),
        ({"usageDetails": {"input": -1, "output": 1}}, ("out_of_range", "$.usageDetails.input")),
        ({"usageDetails": {"input": 1.5, "output": 1}}, ("wrong_type", "$.usageDetails")),
        ({"usageDetails": {"input": -1, "input_cached_tokens": 9}}, ("out_of_range", "$.usageDetails.input")),
        ({"usageDetails": [1]}, ("wrong_type", "$.usageDetails")),
    ],
)
def test_a_value_out_of_range_costs_its_record_only(read, changes, fault):
    log = read([row(), row(**changes), row(id="c")])
    assert log.faults == [(2, *fault)]
    assert log.column("request_id") == ["a", "c"]
    log = read([{"trace": {}, "observations": [row(), row(**changes)]}])
    assert log.faults == [(1, fault[0], "$.observations[1]" + fault[1].removeprefix("$"))]


def test_parameters_are_whatever_the_app_sent(read):
    given = [
        {"max_tokens": 500},
        {"max_tokens": "500"},
        {"max_tokens": -1},
        {"max_tokens": [1]},
        "text",
        None,
    ]
    log = read([row(id=str(n), modelParameters=parameters) for n, parameters in enumerate(given)])
    assert log.faults == []
    assert log.column("max_tokens") == [500, 500, None, None, None, None]


def test_an_answer_without_a_finish_reason_says_by_its_calls_what_comes_next(data, truth, tmp_path):
    trace = ingest([data / LOG], tmp_path / "a.trace").trace
    rows = trace.requests(["after_request_id", "gap_kind", "gap_s"])
    of = {true["request_id"][:16]: true for true in truth}
    for after, kind in zip(rows["after_request_id"], rows["gap_kind"], strict=True):
        if after is not None and of[after]["status"] == "ok":
            assert kind == ("tool" if of[after]["finish_reason"] == "tool_calls" else "user")


def test_it_carries_what_it_says(read):
    usage = {
        "input": 7,
        "output": 3,
        "input_cached_tokens": 8,
        "input_cache_creation": 9,
        "output_reasoning": 1,
    }
    answer = {"role": "assistant", "content": "a", "finish_reason": "stop"}
    full = {
        "completionStartTime": "2026-11-12T09:00:12.143Z", "model": "m", "modelParameters": {"max_tokens": 5},
        "usageDetails": usage, "output": answer, "sessionId": "s", "userId": "u",
    }  # fmt: skip
    log = read([row(**full), row(id="b", level="ERROR", statusMessage="HTTP 500")])
    assert log.carried == set(CARRIES)


def test_tools_that_langchain_appends_to_the_messages_break_no_chain(sent, data):
    first, second = sent(
        data / "langfuse/langgraph-python-2025-08-22.trace.json.gz", "langfuse", json_document=True
    )
    assert (len(first.messages), len(second.messages)) == (2, 4)
    assert second.messages[:2] == first.messages
    assert second.tools == first.tools != b""


def test_content_is_read_in_all_its_encodings(sent):
    messages = [{"role": "user", "content": 'hé "quoted"'}]
    body = {"system": "Be brief.", "messages": messages, "tools": [{"name": "f"}]}
    inputs = [messages, json.dumps(messages), json.dumps(json.dumps(messages)), body, json.dumps(body), "hi"]
    prompts = sent([row(input=content) for content in inputs], "langfuse")
    assert [json.loads(prompt.messages[-1]) for prompt in prompts[:5]] == messages * 5
    for prompt in prompts[3:5]:
        assert json.loads(prompt.messages[0]) == {"role": "system", "content": "Be brief."}
        assert json.loads(prompt.tools) == [{"name": "f"}]
    assert prompts[5].messages == [b"hi"]
