"""LiteLLM SpendLogs and callbacks: the truth that they carry, and what their rows hide.

| column | carried | |
| --- | --- | --- |
| arrival, e2e, ttft | yes | to the ms; no ttft of failures, whose completionStartTime is their end |
| request_id, model, tenant, status, turns, attempts | yes | all 358 |
| session | yes | but not as the proxy writes them by default: one per request |
| prompt, output, cached tokens | yes | of the 344 that ended well |
| http_status | of failures | |
| finish_reason, prompts | with messages | stored on request only |
| instance | yes | the router's address, as the proxy saw it: not the engine |
| queue, prefill | no | |
"""

import csv
import io
import json

import pytest
from oracles.renderings import agreeing, answered, first_attempt, plain

from agentctl.formats.base import Reading, ReadOptions, reader_named
from agentctl.ingest.build import ingest
from agentctl.ingest.quarantine import Quarantine
from agentctl.ingest.source import Source
from agentctl.ingest.texts import split

FOLDER = "formats/litellm/"
TABLE, DEFAULTS = FOLDER + "LiteLLM_SpendLogs.csv.gz", FOLDER + "LiteLLM_SpendLogs_default_session_ids.csv.gz"
STORED = FOLDER + "spendlogs_with_messages.jsonl.gz"
ROW = {
    "request_id": "chatcmpl-1", "call_type": "acompletion", "prompt_tokens": 20, "completion_tokens": 3,
    "startTime": "2026-11-12 09:00:12.043", "endTime": "2026-11-12 09:00:12.543",
    "completionStartTime": "2026-11-12 09:00:12.143", "model": "hosted_vllm/Qwen/Qwen3",
    "custom_llm_provider": "hosted_vllm", "api_base": "http://user:key@vllm:8000/v1", "team_id": "t",
    "session_id": "s", "status": "success", "cache_hit": "False", "messages": {}, "response": {},
    "metadata": {"user_api_key_team_alias": "acme"},
}  # fmt: skip
PAYLOAD = {
    "id": "chatcmpl-1", "trace_id": "trace", "call_type": "acompletion", "stream": True, "status": "success",
    "prompt_tokens": 20, "completion_tokens": 3, "startTime": 1794474012.043457, "endTime": 1794474012.543457,
    "completionStartTime": 1794474012.143457, "model": "Qwen3", "api_base": "http://vllm:8000/v1",
    "cache_hit": None, "metadata": {"user_api_key_team_alias": "acme", "usage_object": {
        "prompt_tokens_details": {"cached_tokens": 16}, "cache_creation_input_tokens": 4,
        "completion_tokens_details": {"reasoning_tokens": 2}}},
    "messages": [{"role": "user", "content": "hi"}],
    "model_parameters": {"max_tokens": 9, "tools": [{"a": 1}]},
    "response": {"choices": [{"message": {"role": "assistant"}, "finish_reason": "stop"}]},
}  # fmt: skip


def table(rows):
    out = io.StringIO()
    writer = csv.DictWriter(out, list(ROW))
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {key: json.dumps(value) if isinstance(value, dict) else value for key, value in row.items()}
        )
    return out.getvalue()


def prompts(path):
    """What the reader hands over to be hashed."""
    source = Source(str(path))
    reading = Reading(source, Quarantine(source.name), ReadOptions())
    return [prompt for batch in reader_named("litellm").read(reading) for prompt in batch.prompts or ()]


@pytest.mark.parametrize("name", [TABLE, DEFAULTS, STORED])
def test_the_renderings_give_the_truth_that_they_carry(read, data, truth, name):
    log = read(data / name)
    assert (log.report.format, log.report.time_origin) == ("litellm", "absolute")
    assert log.report.tz_assumed is None and len(log.rows) == 358
    ids = {plain(row["request_id"]): row for row in log.rows}
    for true in truth:
        row, ok = ids[true["request_id"]], true["status"] == "ok"
        assert row["arrival_ns"] / 1e9 == pytest.approx(true["arrival_unix_s"], abs=1.1e-3)
        assert row["e2e_s"] == pytest.approx(true["e2e_s"], abs=1.1e-3)
        assert row["ttft_s"] == (pytest.approx(true["ttft_s"], abs=1.1e-3) if ok else None)
        assert (row["model"], row["tenant"], row["status"]) == (true["model"], true["tenant"], true["status"])
        assert row["http_status"] == (None if ok else true["http_status"])
        tokens = [row[key] for key in ("prompt_tokens", "output_tokens", "cached_tokens")]
        want = [true[key] for key in ("input_tokens", "output_tokens", "cached_tokens")]
        assert tokens == (want if ok else [None] * 3)
        assert row["instance"] == "vllm-router.llm.svc:8000"
        assert row["finish_reason"] == ((true["finish_reason"] or None) if name == STORED else None)
        assert name != TABLE or row["session_id"] == true["session_id"]


def test_the_dataset_agrees_with_the_truth_in_whatever_the_table_carries(data, truth, tmp_path):
    trace = ingest([data / TABLE], tmp_path / "a.trace").trace
    requests, origin = trace.requests(), trace.meta["time_origin_ns"]
    everywhere = {"session_id", "turn_index", "attempt", "status", "model", "tenant", "arrival_s", "e2e_s"}
    assert agreeing(requests, truth, time_origin_ns=origin) == everywhere
    everywhere |= {"ttft_s", "prompt_tokens", "output_tokens", "cached_tokens", "parent_request_id"}
    assert agreeing(requests, truth, answered, origin) == everywhere
    assert agreeing(requests, truth, first_attempt, origin) == everywhere | {"gap_s"}


def test_stored_messages_are_handed_over_as_they_stand(data):
    given = prompts(data / STORED)
    assert len(given) == 358 and all(given)
    for prompt in given:
        messages = [json.loads(piece) for piece in split(prompt.messages)]
        assert messages[0]["role"] == "system" and all("role" in message for message in messages)
    assert sum(prompt.reply is not None for prompt in given) == 344


def test_a_table_without_messages_hands_over_nothing(data):
    assert prompts(data / TABLE) == []


def test_the_callbacks_payload_gives_the_same_columns(read, tmp_path):
    log = read([PAYLOAD])
    row = log.rows[0]
    assert log.report.format == "litellm" and log.report.tz_assumed is None
    assert row["arrival_ns"] == 1794474012_043457000 and row["session_id"] == "trace"
    assert (row["e2e_s"], row["ttft_s"], row["tenant"]) == (pytest.approx(0.5), pytest.approx(0.1), "acme")
    names = (
        "cached_tokens",
        "cache_write_tokens",
        "reasoning_tokens",
        "max_tokens",
        "stream",
        "finish_reason",
    )
    assert [row[name] for name in names] == [16, 4, 2, 9, True, "stop"]
    (prompt,) = prompts(tmp_path / "log")
    assert split(prompt.messages) == [b'{"role": "user", "content": "hi"}'] and prompt.tools == b'[{"a": 1}]'


def test_the_columns_are_those_that_the_reader_names(read, tmp_path):
    error = {"metadata": PAYLOAD["metadata"] | {"error_information": {"error_code": "500"}}}
    given = read([PAYLOAD | error]).carried | {"prompts" for prompt in prompts(tmp_path / "log") if prompt}
    assert given == set(reader_named("litellm").CARRIES)


def test_csv_and_json_lines_give_the_same_rows(read):
    rows = [ROW, ROW | {"request_id": "b", "metadata": {"usage_object": {"cache_read_input_tokens": 7}}}]
    as_csv, as_json = read(table(rows)), read(rows)
    text = read([row | {"metadata": json.dumps(row["metadata"])} for row in rows])
    assert [row | {"source_row": 0} for row in as_csv.rows] == [
        row | {"source_row": 0} for row in as_json.rows
    ]
    assert text.rows == as_json.rows
    assert as_csv.column("cached_tokens") == [None, 7]


def test_a_cell_beyond_128_kib_is_read(read):
    big = json.dumps([{"role": "user", "content": "x" * 300_000}])
    log = read(table([ROW | {"messages": big}, ROW]))
    assert len(log.rows) == 2 and log.faults == []


def test_times_without_a_zone_are_utc_and_say_so(read):
    log = read([ROW])
    assert log.column("arrival_ns") == [1794474012_043000000] and log.report.tz_assumed == "UTC"
    log = read([ROW | {"startTime": "2026-11-12T10:00:12.043+01:00", "endTime": "2026-11-12T09:00:12.543Z"}])
    assert log.column("arrival_ns") == [1794474012_043000000] and log.report.tz_assumed is None


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "ok"),
        ({"status": None}, "ok"),
        ({"cache_hit": "True"}, "proxy_cache"),
        ({"status": "failure"}, "error"),
        *(
            ({"status": "failure", "metadata": {"error_information": {"error_code": code}}}, status)
            for code, status in [("499", "aborted"), ("500", "error"), (429, "rejected"), ("504", "timeout")]
        ),
        ({"metadata": {"error_information": {"error_code": "", "error_class": ""}}}, "ok"),
        ({"metadata": {"error_information": {"error_code": "499"}}}, "aborted"),
        ({"status": "failure", "metadata": {"error_information": {"error_class": "Timeout"}}}, "timeout"),
        ({"status": "failure", "error_information": {"error_class": "RateLimitError"}}, "rejected"),
    ],
)
def test_status_is_read_from_the_cache_the_code_and_the_class(read, changes, status):
    assert read([ROW | changes]).column("status") == [status]


def test_a_failure_has_no_tokens_and_no_duration_unless_they_were_measured(read):
    failure = {"status": "failure", "prompt_tokens": 0, "completion_tokens": 0}
    names = ("prompt_tokens", "output_tokens", "e2e_s", "ttft_s")
    once = failure | {"endTime": ROW["startTime"], "completionStartTime": ROW["startTime"]}
    log = read([ROW | once, ROW | failure | {"prompt_tokens": 20, "completion_tokens": 2}])
    assert [log.rows[0][name] for name in names] == [None] * 4
    assert [log.rows[1][name] for name in names] == [20, 2, 0.5, pytest.approx(0.1)]


def test_no_output_is_a_fact_and_no_prompt_is_none(read):
    log = read([ROW | {"prompt_tokens": 0, "completion_tokens": 0}])
    assert (log.rows[0]["prompt_tokens"], log.rows[0]["output_tokens"]) == (None, 0)


def test_an_answer_in_one_piece_has_no_first_token_time(read):
    assert read([ROW | {"completionStartTime": ROW["endTime"]}]).column("ttft_s") == [None]


def test_what_no_engine_generates_is_counted(read):
    other = [ROW | {"call_type": name} for name in ("aembedding", "aimage_generation", "call_mcp_tool")]
    probes = [ROW | {"team_id": "litellm-internal-health-check"}]
    probes.append(ROW | {"metadata": {"user_api_key_alias": "litellm-internal-health-check"}})
    log = read([*other, *probes, ROW])
    assert log.report.dropped == {"embedding": 1, "not_a_completion": 2, "health_check": 2}
    assert len(log.rows) == 1


@pytest.mark.parametrize(
    ("changes", "n"),
    [
        ({"messages": [{"role": "user", "content": "a... (litellm_truncated 9 chars) ...b"}]}, 0),
        ({"messages": {}, "proxy_server_request": {"messages": [{"role": "user"}], "tools": [{}]}}, 1),
        ({"messages": '[{"role": "user"}]'}, 1),
        ({"messages": "now is the time"}, 1),
        ({"messages": []}, 0),
        ({"messages": None}, 0),
        ({"messages": [{"role": "user", "content": "redacted-by-litellm"}]}, 0),
    ],
)
def test_a_prompt_is_known_when_all_of_it_was_stored(read, tmp_path, changes, n):
    read([ROW | changes])
    given = [prompt for prompt in prompts(tmp_path / "log") if prompt]
    assert [len(split(prompt.messages)) for prompt in given] == [1] * n


def test_a_system_prompt_kept_apart_comes_first(read, tmp_path):
    body = {"system": "be kind", "messages": [{"role": "user"}]}
    read([ROW | {"proxy_server_request": body}])
    (prompt,) = prompts(tmp_path / "log")
    assert json.loads(prompt.system) == {"role": "system", "content": "be kind"}
    assert [json.loads(piece) for piece in split(prompt.messages)] == [{"role": "user"}]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"startTime": "noon"}, ("wrong_type", "startTime")),
        ({"startTime": None}, ("missing_field", "startTime")),
        ({"startTime": True}, ("wrong_type", "startTime")),
        ({"endTime": "2026-11-12 09:00:11"}, ("out_of_range", "endTime")),
        ({"prompt_tokens": -1}, ("out_of_range", "prompt_tokens")),
        ({"completion_tokens": 1.5}, ("wrong_type", "completion_tokens")),
        ({"status": "SECRET"}, ("unknown_status", "status")),
        ({"metadata": ["SECRET"]}, ("wrong_type", "metadata")),
        ({"metadata": {"usage_object": {"cache_read_input_tokens": "SECRET"}}},
         ("wrong_type", "metadata.prompt_tokens_details.cached_tokens")),
        ({"request_id": {"SECRET": 1}}, ("wrong_type", "request_id")),
    ],
)  # fmt: skip
def test_a_bad_value_costs_its_record(read, changes, fault):
    log = read([ROW, ROW | changes, ROW])
    assert log.faults == [(2, *fault)] and len(log.rows) == 2


def test_keys_users_and_addresses_stay_out(read):
    secret = dict.fromkeys(("api_key", "user", "end_user", "requester_ip_address", "request_tags"), "SECRET")
    log = read([ROW | secret | {"metadata": {"user_api_key": "SECRET", "requester_ip_address": "SECRET"}}])
    assert "SECRET" not in json.dumps(log.rows) and log.column("instance") == ["vllm:8000"]
