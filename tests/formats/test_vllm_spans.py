"""vLLM's spans: the truth that they carry, n > 1, and spans of other kinds."""

import pytest

# What a span can say, and where truth.csv has it. Errors and aborts have no span.
COLUMNS = {
    "join_id": "request_id",
    "prompt_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "status": "status",
}
SECONDS = {"ttft_s": "ttft_s", "e2e_s": "e2e_s", "queue_s": "queue_s"}


def attribute(name, kind, value):
    return {"key": f"gen_ai.{name}", "value": {f"{kind}Value": value}}


def span(id="chatcmpl-r", n=None, **changes) -> dict:
    attributes = [
        attribute("latency.time_to_first_token", "double", 0.25),
        attribute("latency.e2e", "double", 1.5),
        attribute("usage.prompt_tokens", "int", "100"),
        attribute("usage.completion_tokens", "int", "7"),
        attribute("request.id", "string", id),
        *([attribute("request.n", "int", str(n))] if n else []),
    ]
    return {
        "traceId": "t", "spanId": "s1", "name": "llm_request", "kind": 2, "attributes": attributes,
        "startTimeUnixNano": "1794474012043457024", "endTimeUnixNano": "1794474013643457024", "status": {},
    } | changes  # fmt: skip


def export(*spans, resource=()) -> dict:
    return {"resourceSpans": [{"resource": {"attributes": list(resource)}, "scopeSpans": [{"spans": spans}]}]}


def test_the_rendering_gives_the_truth_that_it_carries(read, data, truth):
    log = read(data / "formats" / "vllm" / "vllm_otel_spans.otlp.jsonl.gz")
    assert (log.report.format, log.report.time_origin) == ("vllm_spans", "absolute")
    finished = [row for row in truth if row["status"] == "ok"]
    rows = sorted(log.rows, key=lambda row: row["arrival_ns"])
    assert len(rows) == len(finished) == 344
    for name, true in COLUMNS.items():
        assert [row[name] for row in rows] == [row[true] for row in finished], name
    for name, true in SECONDS.items():
        assert [row[name] for row in rows] == pytest.approx([row[true] for row in finished], abs=1e-6), name
    for row, true in zip(rows, finished, strict=True):
        assert row["request_id"] == "chatcmpl-" + true["request_id"]
        assert row["arrival_ns"] == pytest.approx(true["arrival_unix_s"] * 1e9, abs=1e3)
        assert row["queue_s"] + row["prefill_s"] == pytest.approx(true["ttft_s"], abs=1e-6)
        assert row["ttft_s"] + row["decode_s"] == pytest.approx(true["e2e_s"], abs=1e-6)
        assert row["instance"] == "vllm-server-0" and row["max_tokens"] > 0


def test_what_was_not_set_is_unknown(read):
    (row,) = read([export(span())]).rows
    assert (row["max_tokens"], row["instance"], row["model"], row["queue_s"]) == (None, None, None, None)


def test_a_span_without_its_latency_lasts_from_start_to_end(read):
    bare = span(attributes=[attribute("request.id", "string", "r")])
    first, second = read([export(bare), export(span())]).rows
    assert (first["e2e_s"], first["ttft_s"]) == (pytest.approx(1.6), None)
    assert second["e2e_s"] == 1.5


def test_each_answer_of_a_request_with_several_is_a_row_of_its_own(read):
    log = read([export(span(n=2), span(n=2, spanId="s2"), span(id="cmpl-q-1", spanId="s3", n=1))])
    assert log.column("request_id") == ["chatcmpl-r/s1", "chatcmpl-r/s2", "cmpl-q-1"]
    assert log.column("join_id") == ["r", "r", "q"]


def test_other_spans_are_dropped_and_counted(read):
    other = {"name": "Overall Loading", "startTimeUnixNano": "1", "attributes": []}
    log = read([export(other), export(span(), other), export(other)])
    assert len(log.rows) == 1 and log.report.dropped == {"other_span": 3}
    assert (log.report.n_lines, log.report.n_record_lines) == (3, 3)


def test_the_resource_names_the_server_and_the_span_may_name_the_model(read):
    resource = [{"key": "k8s.pod.name", "value": {"stringValue": "pod-3"}}]
    named = span()
    named["attributes"].append(attribute("response.model", "string", "m"))
    (row,) = read([export(named, resource=resource)]).rows
    assert (row["instance"], row["model"]) == ("pod-3", "m")


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"startTimeUnixNano": None}, ("missing_field", "$.startTimeUnixNano")),
        ({"startTimeUnixNano": "soon"}, ("wrong_type", "$.startTimeUnixNano")),
        (
            {"attributes": [attribute("latency.e2e", "double", -1)]},
            ("out_of_range", "$.attributes.gen_ai.latency.e2e"),
        ),
        (
            {
                "attributes": [
                    attribute("latency.e2e", "double", 1),
                    attribute("usage.prompt_tokens", "int", "0"),
                ]
            },
            ("out_of_range", "$.attributes.gen_ai.usage.prompt_tokens"),
        ),
        (
            {"attributes": [attribute("latency.e2e", "string", "SECRET")]},
            ("wrong_type", "$.attributes.gen_ai.latency.e2e"),
        ),
    ],
)
def test_a_bad_value_costs_its_span_only(read, changes, fault):
    log = read([export(span(), span(**changes)), export(span())], format="vllm_spans")
    path = "$.resourceSpans[0].scopeSpans[0].spans[1]" + fault[1].removeprefix("$")
    assert len(log.rows) == 2 and log.faults == [(1, fault[0], path)]
