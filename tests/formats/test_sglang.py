"""SGLang's request log, exported metrics and server lines: what they carry, levels, and missing ends.

             requests    sessions  tokens, times   status              finish_reason, gap_kind
request log  all         header    of finished     errors by absence   "stop" for tool calls, too: so no
metrics      finished    none      all             ok or aborted       tool gap is told from a user's
"""

import json

import pytest
from oracles.renderings import agreeing, answered, first_attempt

from agentctl.engines.forked import Spawned
from agentctl.errors import InputError
from agentctl.formats._repr import to_json
from agentctl.ingest.build import IngestOptions, ingest

LOG = "formats/sglang/sglang_requests_level1_json.log.gz"
METRICS = "formats/sglang/sglang-request-metrics-20261112_09.log.gz"
SERVER = "formats/sglang/sglang_server.log.gz"
MEASURED = {
    "arrival_s",
    "ttft_s",
    "e2e_s",
    "queue_s",
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
    "status",
}

RECEIVED_S = 1794474012.5
META = {
    "id": "r", "finish_reason": {"type": "stop", "matched": 7}, "prompt_tokens": 40, "completion_tokens": 2,
    "cached_tokens": 16, "e2e_latency": 2.0, "request_received_ts": RECEIVED_S,
}  # fmt: skip


def event(name="finished", rid="r", meta=(), at="2026-11-12T09:00:20.250000", **sent) -> str:
    row = {"timestamp": at, "event": f"request.{name}", "rid": rid, "obj": {"rid": rid, **sent}}
    if name == "finished":
        row["out"] = {"meta_info": META | {"id": rid} | dict(meta)}
    return f"[2026-11-12 09:00:20] {json.dumps(row)}"


@pytest.fixture
def log(read):
    def _log(*lines, format="sglang_requests", **options):
        return read("\n".join(lines) + "\n", format=format, **options)

    return _log


@pytest.fixture(scope="module")
def ingested(tmp_path_factory):
    def _ingested(*paths, **options):
        return ingest(paths, tmp_path_factory.mktemp("engines") / "a.trace", IngestOptions(**options))

    return _ingested


# What the renderings carry


def test_the_request_log_in_a_dataset(ingested, data, truth):
    report = ingested(data / LOG)
    requests, origin = report.trace.requests(), report.document["time_origin_ns"]
    assert requests.height == 358 and report.document["time"]["tz_assumed"] is None
    everyone = {"arrival_s", "session_id", "turn_index", "attempt", "status", "ttft_s"}
    right = agreeing(requests, truth, time_origin_ns=origin)
    assert everyone <= right
    assert MEASURED | {"parent_request_id"} <= agreeing(requests, truth, answered, origin)
    assert "gap_s" in agreeing(requests, truth, first_attempt, origin)
    errors = requests.filter(requests["status"] == "error")
    assert errors["prompt_tokens"].null_count() == errors["e2e_s"].null_count() == errors.height == 5
    (warning,) = report.document["warnings"]
    assert "5 requests were received and have no end" in warning
    assert requests["session_source"].unique().to_list() == ["header"]
    assert set(requests["gap_kind"].drop_nulls()) == {"unknown", "retry"}  # "stop" ends tool calls, too


def test_exported_metrics_in_a_dataset(ingested, data, served):
    report = ingested(data / METRICS)
    requests, origin = report.trace.requests(), report.document["time_origin_ns"]
    assert requests.height == len(served) == 353
    right = agreeing(requests, served, time_origin_ns=origin)
    assert right >= MEASURED
    assert requests["instance"].unique().to_list() == ["dp0"]
    both = requests.filter(requests["prefill_s"].is_not_null() & requests["decode_s"].is_not_null())
    assert both.height == 353
    assert (both["queue_s"] + both["prefill_s"] - both["ttft_s"]).abs().max() < 1e-4
    assert (both["ttft_s"] + both["decode_s"] - both["e2e_s"]).abs().max() < 1e-4


def test_both_logs_say_the_same_of_the_requests_that_they_share(read, data):
    log, metrics = read(data / LOG), read(data / METRICS)
    of = {row["request_id"]: row for row in log.rows}
    same = set(metrics.rows[0]) - {"source_row", "session_id", "session_header", "chain"}
    for row in metrics.rows:
        assert {name: row[name] for name in same} == {name: of[row["request_id"]][name] for name in same}


def test_server_lines_become_events_beside_a_request_log(ingested, data):
    report = ingested(data / SERVER, data / LOG)
    events = report.trace.events()
    assert events.height == 706 and events["ts_s"].is_sorted()
    prefill = events.filter(events["kind"] == "prefill")
    assert prefill.height + events.filter(events["kind"] == "decode").height == 706
    cached, new = prefill["cached_tokens"].sum(), prefill["new_tokens"].sum()
    requests = report.trace.requests()
    reported = requests["cached_tokens"].sum() / requests["prompt_tokens"].sum()
    assert cached / (cached + new) == pytest.approx(reported, abs=1e-12)
    first = {key: value for key, value in prefill.row(0, named=True).items() if value is not None}
    first.pop("source_file")
    assert first == {
        "ts_s": pytest.approx(-0.043457), "kind": "prefill", "source_row": 1, "running": 0, "waiting": 0,
        "kv_usage": 0.31, "hit_rate": 0.0, "prompt_tokens_per_s": 1000.0, "new_requests": 1,
        "new_tokens": 1281, "cached_tokens": 0, "pending_tokens": 0,
    }  # fmt: skip
    assert [file["events"] for file in report.document["files"] if file["events"]] == [706]


def test_the_dataset_does_not_depend_on_the_order_of_files_or_on_workers(tmp_path, data):
    one, two = (
        ingest(files, tmp_path / f"{k}.trace", engine=Spawned(workers)).trace
        for k, (files, workers) in enumerate(
            [([data / SERVER, data / LOG], 1), ([data / LOG, data / SERVER], 2)]
        )
    )
    assert one.digest == two.digest
    assert (one.path / "events.parquet").read_bytes() == (two.path / "events.parquet").read_bytes()


def test_server_lines_alone_are_no_trace_and_the_error_says_what_is_missing(tmp_path, data):
    with pytest.raises(InputError, match="no request") as error:
        ingest([data / SERVER], tmp_path / "a.trace")
    assert error.value.hint is not None and "beside it" in error.value.hint


# Beginnings and ends


def test_a_finished_line_tells_everything(log):
    (row,) = log(event(stream=True, sampling_params={"max_new_tokens": 9})).rows
    assert row["arrival_ns"] == 1794474012_500000000
    assert (row["prompt_tokens"], row["output_tokens"], row["cached_tokens"], row["max_tokens"]) == (
        40,
        2,
        16,
        9,
    )
    assert (row["stream"], row["status"], row["finish_reason"], row["ttft_s"]) == (True, "ok", "stop", None)


def test_rows_stay_in_the_order_of_their_beginnings(log):
    names = [("received", "a"), ("received", "b"), ("finished", "b"), ("received", "c"), ("finished", "a")]
    got = log(*(event(name, rid) for name, rid in names))
    assert got.column("request_id") == ["a", "b", "c"] and got.column("source_row") == [1, 2, 4]
    assert (got.report.n_record_lines, got.report.n_lines) == (5, 5)


def test_the_unix_times_of_a_line_win_over_its_local_ones(log):
    unix = log(event("received", received_time=RECEIVED_S), timezone="Asia/Tokyo")
    assert (unix.column("arrival_ns"), unix.report.tz_assumed) == ([1794474012500000000], None)
    meta = {"request_received_ts": None}
    local = log(event("received", "a"), event("finished", "b", meta), timezone="+09:00")
    at = 1794474020_250000000 - 9 * 3600 * 10**9
    assert local.column("arrival_ns") == [at, at - 2 * 10**9] and local.report.tz_assumed == "+09:00"
    monotonic = log(event("received", received_time=812.5))
    assert monotonic.column("arrival_ns") == [1794474020_250000000]


def test_a_zone_and_a_year_that_no_time_needed_are_mentioned(ingested, data):
    warnings = ingested(data / METRICS, timezone="Asia/Tokyo", year=2026).document["warnings"]
    assert [text.split()[0] for text in warnings] == ["--timezone", "--year"]


def test_few_requests_without_an_end_are_errors(log):
    lines = [event(name, str(k)) for k in range(20) for name in ("received", "finished")]
    got = log(event("received", "lost"), *lines)
    assert got.column("status") == ["error"] + ["ok"] * 20
    assert got.rows[0]["prompt_tokens"] is None
    assert "1 requests were received and have no end" in got.report.warnings[0]


def test_many_requests_without_an_end_are_fast_ones_that_were_filtered(log):
    lines = [event("received", str(k)) for k in range(20)] + [event("finished", "3"), event("finished", "4")]
    got = log(*lines)
    assert got.column("status") == [None, None, None, "ok", "ok"] + [None] * 15
    assert "SGLANG_LOG_REQUEST_EXCEEDED_MS" in got.report.warnings[0]


@pytest.mark.parametrize(
    ("reason", "status", "code", "said"),
    [
        ({"type": "length", "length": 5}, "ok", None, "length"),
        ({"type": "abort", "message": "SECRET"}, "aborted", None, None),
        ({"type": "abort", "status_code": 400}, "rejected", 400, None),
        ({"type": "abort", "status_code": 503}, "rejected", 503, None),
        ({"type": "abort", "status_code": 500}, "error", 500, None),
        (None, None, None, None),
    ],
)
def test_reasons_of_ends(log, reason, status, code, said):
    (row,) = log(event(meta={"finish_reason": reason})).rows
    assert (row["status"], row["http_status"], row["finish_reason"]) == (status, code, said)


def test_health_checks_and_openai_copies_and_batch_beginnings_are_left_out(log):
    lines = [
        event("received", "HEALTH_CHECK_1"),
        event("finished", "HEALTH_CHECK_1"),
        event("received.openai"),
        event("received", ["a", "b"]),
        event("finished", "a"),
    ]
    got = log(*lines)
    assert got.column("request_id") == ["a"]
    assert got.report.dropped == {"health_check": 2} and got.report.n_other_lines == 2
    metrics = [
        {**META, "id": "HEALTH_CHECK_1", "request_parameters": "{}"},
        {**META, "request_parameters": "{}"},
    ]
    got = log(*map(json.dumps, metrics), format=None)
    assert got.report.format == "sglang_metrics" and got.report.dropped == {"health_check": 1}


@pytest.mark.parametrize(
    "sent",
    [
        {"session_params": {"id": "s"}, "session_id": "x"},
        {"session_id": "s", "conversation_id": "x"},
        {"conversation_id": "s", "routing_key": "x"},
        {"routing_key": "s"},
        {"session_params": None, "routing_key": "s"},
    ],
)
def test_sessions_go_by_several_names(log, sent):
    assert log(event(**sent)).column("session_id") == ["s"]


def test_a_routing_header_names_the_session_last(log):
    line = event().replace('"obj"', '"headers": {"x-smg-routing-key": "s", "authorization": "SECRET"}, "obj"')
    assert log(line).column("session_id") == ["s"]
    assert log(line.replace('"rid": "r"}', '"rid": "r", "session_id": "own"}')).column("session_id") == [
        "own"
    ]


# Prompts


def test_whole_token_ids_give_exact_blocks(log):
    a, b = list(range(40)), [*range(32), 7]
    b_meta = {"prompt_tokens": 33}
    rows = log(event(input_ids=a), event(rid="q", meta=b_meta, input_ids=b), event(rid="p")).rows
    assert rows[0]["chain"] == rows[1]["chain"] and len(rows[0]["chain"]) == 2
    assert rows[2]["chain"] is None and rows[0]["block_tokens"] == 16


def test_token_ids_without_the_images_of_the_prompt_are_not_used(log):
    (row,) = log(event(input_ids=list(range(16)))).rows
    assert (row["prompt_tokens"], row["chain"]) == (40, None)


def test_a_request_without_an_end_has_the_length_of_its_token_ids(log):
    assert log(event("received", input_ids=[1, 2, 3])).column("prompt_tokens") == [3]


def test_cache_salts_keep_blocks_apart(log):
    lines = [
        event(rid=str(k), input_ids=list(range(40)), extra_key=key) for k, key in enumerate((None, "g", "g"))
    ]
    a, b, c = log(*lines).column("chain")
    assert b == c != a


def test_texts_and_lists_that_level_2_shortened_are_not_used(log):
    half = "x" * 1024
    cut = event(rid="a", text=half + "..." + half, input_ids=[*range(1024), "...", *range(1024)])
    got = log(cut, event(rid="b", text="<|user|>whole"), event(rid="c", text=half + "-.." + half))
    assert got.column("n_messages") == [None, 1, 1] and got.column("chain") == [None, None, None]
    metrics = {**META, "request_parameters": json.dumps({"text": half + "..." + half})}
    assert log(json.dumps(metrics), format="sglang_metrics").column("n_messages") == [1]


def test_no_text_is_in_the_dataset(tmp_path):
    path = tmp_path / "log"
    lines = [
        event(text="CANARY one", extra_key="CANARY two"),
        event(rid="q", meta={"finish_reason": {"type": "abort", "message": "CANARY three"}}),
        event(rid="x", text="CANARY four")[:-9],
        "CANARY five",
    ]
    path.write_text("\n".join(lines) + "\n")
    report = ingest([path], tmp_path / "a.trace", IngestOptions(max_bad=1))
    written = [file for file in tmp_path.rglob("*") if file.is_file() and file != path]
    assert len(written) == 4 and not any(b"CANARY" in file.read_bytes() for file in written)
    assert "CANARY" not in repr(report.document)


# Text form, prefixes, bad lines


def test_the_text_form_says_the_same(log):
    sent = (
        "GenerateReqInput(rid='r', text='it\\'s \"prompt_tokens\": 9, out={', stream=True, image_data=None, "
        "sampling_params={'max_new_tokens': 9}, session_params=None, time_stats=<obj at 0x1>, "
        "input_ids=[1, 2, 3])"
    )
    out = "{'text': \"it's out\", 'meta_info': " + str(META | {"request_received_ts": None}) + "}"
    headers = "{'x-smg-routing-key': 's'}"
    lines = [
        f"[2026-11-12 09:00:18] Receive: obj={sent}, headers={headers}",
        f"[2026-11-12 09:00:20] Finish: obj={sent}, headers={headers}, out={out}",
        "[2026-11-12 09:00:20] Receive OpenAI: obj={'messages': [{'content': 'x'}]}",
    ]
    got = log(*lines, format=None)
    assert got.report.format == "sglang_requests" and (
        got.report.n_record_lines,
        got.report.n_other_lines,
    ) == (2, 1)
    (row,) = got.rows
    assert (row["request_id"], row["session_id"], row["max_tokens"], row["prompt_tokens"]) == (
        "r",
        "s",
        9,
        40,
    )
    assert (row["arrival_ns"], row["e2e_s"], row["status"]) == (1794474018 * 10**9, 2.0, "ok")
    assert row["n_messages"] == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{'a': None, 'b': True, 'c': [1, -3e-05], 'd': ()}", {"a": None, "b": True, "c": [1, -3e-5],
                                                                "d": []}),
        ("Req(a='x', b=(1,), c={'k': \"it's\"})", {"a": "x", "b": [1], "c": {"k": "it's"}}),
        ("{'a': nan, 'b': <Enum.x: 1>, 'c': datetime(2026, 1), 'd': array([1, 2])}", dict.fromkeys("abcd")),
        ("{'a': 'head' ... 'tail', 'b': [1, 2] ... [3], 'c': 'x'}", {"a": None, "b": None, "c": "x"}),
        ("{'a': 'ü\\u20ac\\n\\x00\\\\'}", {"a": "ü€\n\0\\"}),
        ("Req()", {}),
    ],
)  # fmt: skip
def test_what_python_printed_becomes_json(text, expected):
    assert json.loads(to_json(text.encode())) == expected


@pytest.mark.parametrize(
    "text", ["{'a': 'x", "{'a': [1, 2}", "}", "{'a': $}", "f(1, 2", "... 'a'", "{'a': '\\ud800'}"]
)
def test_what_python_did_not_print_whole_is_an_error(text):
    with pytest.raises(ValueError):
        json.loads(to_json(text.encode()))


@pytest.mark.parametrize("prefix", ["", "sglang-1  | ", "(worker, pid=3) ", "\x1b[32m"])
def test_prefixes_are_taken_off_and_old_lines_have_none(log, prefix):
    assert log(prefix + event()).column("request_id") == ["r"]
    assert log(event().split("] ", 1)[1]).column("request_id") == ["r"]


def test_bad_lines_are_set_aside_with_the_place(log):
    lines = [
        event()[:-5],
        event(priority="high"),
        event(meta={"prompt_tokens": "many"}),
        event(meta={"prompt_tokens": 0}),
        event(meta={"e2e_latency": -1}),
        event(meta={"request_received_ts": None}).replace("2026-11-12T09:00:20.250000", "then"),
        "[2026-11-12 09:00:18] Receive: obj=GenerateReqInput(rid='r', te",
        event(rid="good"),
    ]
    got = log(*lines)
    assert got.column("request_id") == ["good"]
    assert sorted(got.faults) == [
        (1, "not_json", None),
        (2, "wrong_type", "$.obj.priority"),
        (3, "wrong_type", "$.out.meta_info.prompt_tokens"),
        (4, "out_of_range", "$.prompt_tokens"),
        (5, "out_of_range", "$.e2e_latency"),
        (6, "missing_field", "$.request_received_ts"),
        (7, "cut_line", None),
    ]


def test_bad_exported_lines_are_set_aside_with_the_place(log):
    rows = [
        {**META, "request_parameters": "{"},
        {**META, "request_parameters": '{"rid": 5}'},
        {**META, "request_parameters": "{}", "request_received_ts": None},
        {**META, "request_parameters": "{}"},
    ]
    got = log(*map(json.dumps, rows), format="sglang_metrics")
    assert len(got.rows) == 1
    assert sorted(got.faults) == [
        (1, "not_json", "$.request_parameters"),
        (2, "wrong_type", "$.request_parameters.rid"),
        (3, "missing_field", "$.request_received_ts"),
    ]


# Server lines


def batch(text, ranks=" TP0") -> str:
    return f"[2026-11-12 09:00:12{ranks}] {text}"


def test_requests_and_batches_in_one_file_are_both_read(log):
    got = log(batch("Prefill batch, #new-seq: 1, #new-token: 3, #cached-token: 1"), event(), format=None)
    assert (got.report.format, got.report.n_events, len(got.rows)) == ("sglang_requests", 1, 1)
    assert log(event(), batch("Decode batch, #running-req: 1"), format="sglang_server").report.n_events == 1


def test_batches_of_all_versions_and_ranks(tmp_path, ingested):
    lines = [
        batch("Prefill batch [12], #new-seq: 2, #new-token: 30, #cached-token: 10, full token usage: 0.25, "
              "swa token usage: 0.75, #running-req: 1, #queue-req: 4, "),
        batch("Decode batch. #running-req: 2, #token: 1307, token usage: 0.42, gen throughput (token/s): "
              "81.5, #queue-req: 3", " DP1 TP0"),
        batch("Decode batch, #running-req: 9", " DP1 TP1"),
        batch("Decode batch, #running-req: 9", " TP0 PP1"),
        batch("Decode batch, #running-req: 5, #full token: 7, #swa token: 9, accept len: 1.2", ""),
        batch("server is fired up and ready to roll"),
        event(),
    ]  # fmt: skip
    path = tmp_path / "log"
    path.write_text("\n".join(lines) + "\n")
    report = ingested(path)
    first, second, third = report.trace.events().to_dicts()
    assert (first["kind"], first["new_requests"], first["hit_rate"], first["kv_usage"]) == (
        "prefill",
        2,
        0.25,
        0.25,
    )
    assert (first["waiting"], first["instance"]) == (4, None)
    assert (second["kind"], second["instance"], second["kv_tokens"]) == ("decode", "dp1", 1307)
    assert (second["generation_tokens_per_s"], second["hit_rate"]) == (81.5, None)
    assert (third["running"], third["kv_tokens"]) == (5, 7)
    (file,) = report.document["files"]
    assert (file["other_lines"], file["record_lines"], file["events"]) == (6, 1, 3)


def test_a_request_that_runs_while_the_log_is_rotated_is_one_with_its_end(tmp_path):
    meta = {"id": "both"}
    begun = [event(name, str(k)) for k in range(9) for name in ("received", "finished")]
    (tmp_path / "09").write_text(
        "\n".join([*begun, event("received", "both", received_time=RECEIVED_S)]) + "\n"
    )
    (tmp_path / "10").write_text("\n".join([event("finished", "both", meta)]) + "\n")
    for k, files in enumerate((("09", "10"), ("10", "09"))):
        report = ingest([tmp_path / name for name in files], tmp_path / f"{k}.trace")
        requests = report.trace.requests()
        (row,) = requests.filter(requests["request_id"] == "both").to_dicts()
        assert (row["status"], row["e2e_s"], row["prompt_tokens"]) == ("ok", 2.0, 40)
        assert report.document["records"]["dropped"] == {"duplicate_request_id": 1}
