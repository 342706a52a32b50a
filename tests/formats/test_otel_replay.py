"""inference-perf's flattened traces: turns by links, agents by services, ids that hold in one trace only."""

import pytest

from agentctl.formats.otel_replay import CARRIES
from agentctl.ingest.build import IngestOptions, ingest

DOCUMENT = IngestOptions(json_document=True)


def span(**changes) -> dict:
    return {
        "span_id": "a", "parent_span_id": None, "start_time": "2026-02-25T10:00:00.000000",
        "end_time": "2026-02-25T10:00:02.500000", "status": {"code": 1, "message": "SECRET"},
        "attributes": {"gen_ai.operation.name": "chat"},
    } | changes  # fmt: skip


def trace(*spans: dict, id: str = "t") -> dict:
    return {"trace_id": id, "span_count": len(spans), "spans": list(spans)}


@pytest.mark.parametrize(
    ("name", "n", "seconds"),
    [
        ("simple_chain", 3, 6.5),
        ("parallel_requests", 5, 10.5),
        ("prefix_sharing_example", 7, 8.8),
        ("customer_support_escalation", 9, 24.0),
    ],
)
def test_the_traces_of_inference_perf_are_read_whole(read, data, name, n, seconds):
    log = read(data / f"otel_replay/inference_perf_{name}.json", json_document=True)
    assert log.report.format == "otel_replay" and log.report.time_origin == "absolute"
    assert log.report.warnings == [] and log.report.dropped == {} and log.faults == []
    assert len(log.rows) == n
    assert sum(log.column("e2e_s")) == pytest.approx(seconds)
    assert len(set(log.column("request_id"))) == n


def test_the_one_that_counts_tokens_says_them(read, data):
    log = read(data / "otel_replay/inference_perf_prefix_sharing_example.json", json_document=True)
    assert log.report.tz_assumed is None
    assert log.column("prompt_tokens")[:5] == [50, 45, 100, 180, 270]
    assert set(log.column("finish_reason")) == {"stop"}
    log = read(data / "otel_replay/inference_perf_simple_chain.json", json_document=True)
    assert log.report.tz_assumed == "UTC"  # dates without a zone
    assert log.column("prompt_tokens") == [None] * 3 and log.column("max_tokens") == [500] * 3


def test_dates_without_a_zone_are_in_the_one_given(read):
    berlin = read([trace(span())], timezone="Europe/Berlin")
    utc = read([trace(span(start_time="2026-02-25T09:00:00Z", end_time="2026-02-25T09:00:02.5Z"))])
    assert berlin.column("arrival_ns") == utc.column("arrival_ns")
    assert (berlin.report.tz_assumed, utc.report.tz_assumed) == ("Europe/Berlin", None)


def test_parents_that_had_ended_are_the_previous_turns(data, tmp_path):
    rows = ingest(
        [data / "otel_replay/inference_perf_prefix_sharing_example.json"], tmp_path / "a.trace", DOCUMENT
    ).trace.requests(["request_id", "session_id", "turn_index", "parent_request_id"])
    turns = rows.filter(rows["request_id"].str.starts_with("conv_"))
    assert turns["turn_index"].to_list() == [0, 1, 2, 3]
    assert turns["session_id"].n_unique() == 1
    assert turns["parent_request_id"].to_list() == [None, "conv_turn1", "conv_turn2", "conv_turn3"]
    assert rows["session_id"].n_unique() == 4


def test_the_services_of_a_trace_are_agents_and_the_first_is_the_main_line(data, tmp_path):
    rows = ingest(
        [data / "otel_replay/inference_perf_customer_support_escalation.json"], tmp_path / "a.trace", DOCUMENT
    ).trace.requests(["session_id", "agent_path", "turn_index", "gap_s"])
    assert rows["session_id"].unique().to_list() == ["session_006"]
    main = rows.filter(rows["agent_path"].is_null())
    assert main["turn_index"].to_list() == [0, 1, 2, 3, 4]
    assert rows["agent_path"].drop_nulls().n_unique() == 4


def test_a_parent_that_still_runs_encloses_the_span_and_is_no_turn(read):
    log = read(
        [
            trace(
                span(),
                span(span_id="in", parent_span_id="a", start_time="2026-02-25T10:00:01Z"),
                span(span_id="next", parent_span_id="a", start_time="2026-02-25T10:00:02.5Z",
                     end_time="2026-02-25T10:00:04Z"),
                span(span_id="gone", parent_span_id="missing"),
            )
        ]
    )  # fmt: skip
    assert log.column("parent_link") == [None, None, "t/a", None]


def test_span_ids_mean_nothing_outside_their_trace(read):
    log = read([trace(span()), trace(span(), id="u")])
    assert log.column("request_id") == ["t/a", "u/a"]
    assert log.report.n_lines == log.report.n_record_lines == 2


def test_other_spans_are_counted(read):
    tool = span(attributes={"gen_ai.operation.name": "execute_tool"})
    log = read([trace(span(), tool), trace(tool, span(attributes={}), id="u"), trace(id="v")])
    assert log.report.dropped == {"tool_span": 2, "other_span": 1, "no_spans": 1}
    assert log.report.n_lines == log.report.n_record_lines == 3


def test_plain_values_are_those_of_the_conventions(read, sent):
    plain = {
        "gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 130213,
        "gen_ai.usage.cache_read.input_tokens": 128955, "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ["tool_calls"], "gen_ai.response.time_to_first_chunk": 0.25,
        "gen_ai.input.messages": [{"role": "user", "content": "hi"}], "user.id": None,
        "gen_ai.output.text": "hello",
    }  # fmt: skip
    lines = [trace(span(attributes=plain))]
    (row,) = read(lines).rows
    assert (row["prompt_tokens"], row["cached_tokens"], row["ttft_s"]) == (130213, 128955, 0.25)
    assert (row["stream"], row["finish_reason"], row["tenant"]) == (True, "tool_calls", None)
    (prompt,) = sent(lines, "otel_replay")
    assert prompt.messages == [b'{"role": "user", "content": "hi"}']
    assert prompt.reply == b'{"role":"assistant","content":"hello"}'


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"start_time": None}, ("wrong_type", "$.spans[1].start_time")),
        ({"start_time": ""}, ("missing_field", "$.spans[1].start_time")),
        ({"start_time": "noon"}, ("wrong_type", "$.spans[1].start_time")),
        ({"end_time": "2026-02-25T09:00:00"}, ("out_of_range", "$.spans[1].end_time")),
        ({"attributes": []}, ("wrong_type", "$.spans[1].attributes")),
    ],
)
def test_a_bad_span_costs_itself_only(read, changes, fault):
    log = read([trace(span(), span(**changes), span(span_id="c"))])
    assert log.faults == [(1, *fault)]
    assert log.column("request_id") == ["t/a", "t/c"]


def test_it_carries_what_it_says(read):
    names = {
        "usage.input_tokens": 9, "usage.output_tokens": 9, "usage.cache_read.input_tokens": 1,
        "usage.cache_creation.input_tokens": 1, "usage.reasoning.output_tokens": 1, "request.max_tokens": 9,
        "request.model": "m", "response.finish_reasons": ["stop"], "response.time_to_first_chunk": 0.5,
        "conversation.id": "s", "input.messages": "[1]", "output.messages": [{"role": "assistant"}],
        "operation.name": "chat",
    }  # fmt: skip
    attributes = {f"gen_ai.{name}": value for name, value in names.items()}
    attributes |= {"user.id": "u", "http.response.status_code": 200}
    later = {"start_time": "2026-02-25T10:00:03Z", "end_time": "2026-02-25T10:00:04Z"}
    turn = span(span_id="b", parent_span_id="a", resource_attributes={"service.name": "x"}, **later)
    assert read([trace(span(attributes=attributes), turn)]).carried == set(CARRIES)
