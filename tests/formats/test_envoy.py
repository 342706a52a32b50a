"""Envoy AI Gateway access log: the truth that it carries, fields named by the user, and what is no request.

| column | carried | |
| --- | --- | --- |
| arrival, e2e | yes | to the ms |
| request_id, session, model, instance, status | yes | all 358 |
| prompt, output, cached tokens | yes | of the 344 that ended well |
| http_status | yes | but of the aborts, which have none (499 is the truth's word) |
| ttft | by --map | x-envoy-upstream-service-time, to the ms |
| sessions, turns, attempts | yes | all 358 |
| parents, gaps | of first attempts | failed ones have no tokens; a gap after one starts at its end |
| tenant, finish_reason, queue, prompts | no | |
"""

import json

import pytest
from oracles.renderings import agreeing, answered, first_attempt

from agentctl.ingest.build import IngestOptions, ingest

LOG = "formats/envoy/access.log.jsonl.gz"
ROW = {
    "start_time": "2026-11-12T09:00:12.043Z", "duration": 474, "method": "POST", "response_code": 200,
    "response_flags": "-", "x-envoy-origin-path": "/v1/chat/completions", "upstream_host": "10.42.7.4:8000",
    "gen_ai.request.model": "asked", "gen_ai.response.model": "served", "gen_ai.usage.input_tokens": 20,
    "gen_ai.usage.output_tokens": 3, "gen_ai.usage.cached_input_tokens": 16, "x-request-id": "r",
    "session.id": "s",
}  # fmt: skip


def test_the_rendering_gives_the_truth_that_it_carries(read, data, truth):
    log = read(data / LOG)
    assert log.report.format == "envoy" and log.report.time_origin == "absolute"
    assert log.report.dropped == {"not_a_completion": 23, "embedding": 6} and log.report.tz_assumed is None
    assert len(log.rows) == len(truth) == 358
    ids = {row["request_id"].replace("-", ""): row for row in log.rows}
    for true in truth:
        row, ok = ids[true["request_id"]], true["status"] == "ok"
        assert row["arrival_ns"] / 1e9 == pytest.approx(true["arrival_unix_s"], abs=1.1e-3)
        assert row["e2e_s"] == pytest.approx(true["e2e_s"], abs=1.1e-3)
        assert (row["session_id"], row["model"]) == (true["session_id"], true["model"])
        assert row["status"] == true["status"]
        assert row["http_status"] == (None if true["status"] == "aborted" else true["http_status"])
        tokens = [row[name] for name in ("prompt_tokens", "output_tokens", "cached_tokens")]
        want = [true[name] for name in ("input_tokens", "output_tokens", "cached_tokens")]
        assert tokens == (want if ok else [None, None, None])
        assert row["instance"].startswith("10.42.7.") and row["ttft_s"] is None


def test_the_dataset_agrees_with_the_truth_in_whatever_the_log_carries(data, truth, tmp_path):
    trace = ingest([data / LOG], tmp_path / "a.trace").trace
    table, origin = trace.requests(), trace.meta["time_origin_ns"]
    everywhere = {"session_id", "turn_index", "attempt", "status", "model", "arrival_s", "e2e_s"}
    assert agreeing(table, truth, time_origin_ns=origin) == everywhere
    everywhere |= {"http_status", "prompt_tokens", "output_tokens", "cached_tokens", "parent_request_id"}
    assert agreeing(table, truth, answered, origin) == everywhere
    assert agreeing(table, truth, first_attempt, origin) == everywhere | {"gap_s"}


def test_a_column_may_be_taken_from_another_field(read, data, truth):
    log = read(data / LOG, column_map={"ttft_ms": "x-envoy-upstream-service-time"})
    assert log.report.format == "envoy"
    ttft = {row["request_id"].replace("-", ""): row["ttft_s"] for row in log.rows}
    for true in truth:
        want = true["ttft_s"] and pytest.approx(true["ttft_s"], abs=1.1e-3)
        assert ttft[true["request_id"]] == want


def test_an_operators_own_names_are_mapped(read):
    row = {"t": "2026-11-12T09:00:12.043Z", "took": 0.5, "code": 200, "who": "acme", "in": 20, "sid": "s"}
    options = {"arrival": "t", "e2e_s": "took", "tenant": "who", "input_tokens": "in", "session_id": "sid"}
    log = read([row], format="envoy", column_map=options | {"http_status": "code"}, join="sid")
    assert log.rows[0]["arrival_ns"] == 1794474012_043000000
    got = {name: log.rows[0][name] for name in ("e2e_s", "tenant", "prompt_tokens", "status", "join_id")}
    assert got == {"e2e_s": 0.5, "tenant": "acme", "prompt_tokens": 20, "status": "ok", "join_id": "s"}


@pytest.mark.parametrize(
    ("changes", "status", "http_status"),
    [
        ({}, "ok", 200),
        ({"response_code": 0, "response_flags": "DC"}, "aborted", None),
        ({"response_flags": "DC"}, "aborted", 200),
        ({"response_code": 504, "response_flags": "UT"}, "timeout", 504),
        ({"response_code": 200, "response_flags": "SI"}, "timeout", 200),
        ({"response_code": 429, "response_flags": "RL"}, "rejected", 429),
        ({"response_code": 503, "response_flags": "UO,URX"}, "rejected", 503),
        ({"response_code": 503, "response_flags": "UF,URX"}, "error", 503),
        ({"response_code": 429}, "rejected", 429),
        ({"response_code": 500}, "error", 500),
        ({"response_code": "200", "response_flags": None}, "ok", 200),
        ({"response_code": None}, None, None),
    ],
)
def test_flags_come_before_the_code(read, changes, status, http_status):
    row = read([ROW | changes], format="envoy").rows[0]
    assert (row["status"], row["http_status"]) == (status, http_status)


def test_unknown_is_null_however_it_is_written(read):
    names = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.cached_input_tokens")
    for unknown in ("-", None, ""):
        row = read([ROW | dict.fromkeys(names, unknown)]).rows[0]
        assert [row[name] for name in ("prompt_tokens", "output_tokens", "cached_tokens")] == [None] * 3
    row = read([{**ROW, "gen_ai.usage.input_tokens": 0, "gen_ai.usage.output_tokens": 0}]).rows[0]
    assert (row["prompt_tokens"], row["output_tokens"]) == (None, 0)


def test_the_model_that_answered_comes_before_the_one_that_was_asked_for(read):
    log = read([ROW, ROW | {"gen_ai.response.model": None}])
    assert log.column("model") == ["served", "asked"]


def test_what_is_no_generation_is_counted(read):
    others = [
        ROW | {"method": "GET", "x-envoy-origin-path": "/v1/models"},
        ROW | {"x-envoy-origin-path": "/v1/embeddings"},
        ROW | {"x-envoy-origin-path": "/mcp"},
        ROW | {"x-envoy-origin-path": "/v1/messages/count_tokens"},
    ]
    log = read([*others, ROW, ROW | {"x-envoy-origin-path": "/v1/messages?beta=true"}])
    assert log.report.dropped == {"not_a_completion": 3, "embedding": 1} and len(log.rows) == 2


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"start_time": "yesterday"}, ("wrong_type", "start_time")),
        ({"start_time": None}, ("missing_field", "start_time")),
        ({"duration": -1}, ("out_of_range", "duration")),
        ({"duration": "long"}, ("wrong_type", "duration")),
        ({"response_code": 99}, ("out_of_range", "response_code")),
        ({"gen_ai.usage.input_tokens": 1.5}, ("wrong_type", "gen_ai.usage.input_tokens")),
        ({"gen_ai.usage.output_tokens": -1}, ("out_of_range", "gen_ai.usage.output_tokens")),
    ],
)
def test_a_bad_value_costs_its_record(read, changes, fault):
    log = read([ROW, ROW | changes, ROW])
    assert log.faults == [(2, *fault)] and len(log.rows) == 2


def test_headers_and_addresses_of_clients_stay_out(read):
    secret = {"x-forwarded-for": "SECRET", "user-agent": "SECRET", "authorization": "SECRET"}
    assert "SECRET" not in json.dumps(read([ROW | secret]).rows)


def test_a_mapping_that_no_column_has_is_a_usage_error(data, tmp_path):
    with pytest.raises(Exception, match="no column that can be mapped"):
        ingest([data / LOG], tmp_path / "a.trace", IngestOptions(map={"tokenz": "x"}))
