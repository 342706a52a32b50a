"""vLLM's text log, new and old: what the renderings carry, and everything that makes such logs hard to read.

          arrival  end    status         max_tokens  finish_reason  prompts, so sessions and parents
0.32      1 s      1 s    all three      yes         yes            no
0.10      1 s      aborts ok or aborted  yes         no             yes, lengths estimated
"""

from datetime import UTC, datetime

import pytest
from oracles.renderings import agreeing, answered, plain

from agentctl.errors import InputError, UsageError
from agentctl.formats.base import Sample, readers
from agentctl.ingest.build import IngestOptions, ingest

NEW, OLD = "formats/vllm/vllm_server_v0.32.log.gz", "formats/vllm/vllm_server_old_v0.10_with_prompts.log.gz"
PARAMS = "SamplingParams(n=1, stop=[], max_tokens=31, min_tokens=0)"


def received(id="r", at="11-12 09:00:12", params=PARAMS, prefix="(APIServer pid=1) ", rest="") -> str:
    message = f"Received request {id}: params: {params}, lora_request: None."
    return f"{prefix}INFO {at} [request_logger.py:65] {message}"


def say(message, at="11-12 09:00:13", prefix="(APIServer pid=1) ") -> str:
    return f"{prefix}INFO {at} [async_llm.py:9] {message}"


def old(id="r", prompt="'hi'", ids="None", at="11-12 09:00:12", lora="None") -> str:
    return (
        f"INFO {at} [logger.py:43] Received request {id}: prompt: {prompt}, params: {PARAMS}, "
        f"prompt_token_ids: {ids}, prompt_embeds shape: None, lora_request: {lora}."
    )


def answer(id="r", text="'out'", reason="stop", at="11-12 09:00:15", how=" (streaming complete)") -> str:
    return say(f"Generated response {id}{how}: output: {text}, finish_reason: {reason}", at)


@pytest.fixture
def log(read):
    def _log(*lines, end="\n", **options):
        return read(end.join(lines) + end, format="vllm_text", **{"year": 2026} | options)

    return _log


def times(log) -> list[str]:
    return [
        datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="auto")[:26].replace("+00:00", "")
        for ns in log.column("arrival_ns")
    ]


# What the renderings carry


def test_the_new_log_gives_the_truth_that_it_carries(read, data, truth):
    log = read(data / NEW, year=2026)
    assert (log.report.format, log.report.time_origin) == ("vllm_text", "absolute")
    assert (log.report.tz_assumed, log.report.year_assumed, log.report.resolution_s) == ("UTC", 2026, 1.0)
    for got, true in zip(log.rows, truth, strict=True):
        assert (got["join_id"], got["status"]) == (true["request_id"], true["status"])
        assert got["finish_reason"] == (true["finish_reason"] or None)
        assert abs(got["arrival_ns"] / 1e9 - true["arrival_unix_s"]) <= 1.0
        assert got["max_tokens"] == 32768 - true["input_tokens"]  # as this server limits them
        ended = got["e2e_s"] is not None
        assert ended == (true["status"] != "error")
        assert not ended or abs(got["e2e_s"] - true["e2e_s"]) <= 1.0  # of whole seconds at both ends
    assert log.report.n_lines == 358 * 2 + 344 + 9 + log.report.n_other_lines
    assert log.report.n_quarantined_lines == 0 and log.report.n_events == 69
    (warning,) = log.report.warnings
    assert "5 requests have no response" in warning


def test_the_old_log_knows_only_aborts_and_says_so(read, data, truth):
    log = read(data / OLD, year=2026)
    for got, true in zip(log.rows, truth, strict=True):
        assert got["join_id"] == true["request_id"]
        assert got["status"] == ("aborted" if true["status"] == "aborted" else None)
        assert got["n_assistant"] == true["turn_index"]
    (warning,) = log.report.warnings
    assert "349 requests ended" in warning and "5 POSTs were answered with an error" in warning


@pytest.fixture(scope="module")
def ingested(tmp_path_factory):
    def _ingested(*paths, **options):
        folder = tmp_path_factory.mktemp("engines") / "a.trace"
        return ingest(paths, folder, IngestOptions(year=2026, **options))

    return _ingested


def test_the_new_log_in_a_dataset(ingested, data, truth):
    report = ingested(data / NEW)
    requests, origin = report.trace.requests(), report.document["time_origin_ns"]
    assert {"status", "finish_reason"} <= agreeing(requests, truth, time_origin_ns=origin)
    assert report.document["time"]["year_assumed"] == 2026
    assert requests["prompt_tokens"].null_count() == requests["ttft_s"].null_count() == 358
    (file,) = report.document["files"]
    assert (file["lines"], file["record_lines"], file["other_lines"]) == (1634, 1069, 565)
    events = report.trace.events()
    assert events.height == file["events"] == 69
    assert events["hit_rate"].unique().to_list() == [0.913] and events["instance"].unique().to_list() == [
        "engine-0"
    ]
    assert (
        events["ts_s"].is_sorted()
        and events["ts_s"][0] == -5.0
        and events["kind"].unique().to_list() == ["gauge"]
    )


def test_prompts_of_the_old_log_give_sessions_and_parents(ingested, data, truth):
    report = ingested(data / OLD)
    requests = report.trace.requests()
    assert {"status", "parent_request_id"} <= agreeing(requests, truth, answered)
    names = dict(zip(map(plain, requests["request_id"]), requests["session_id"], strict=True))
    pairs = {(names[row["request_id"]], row["session_id"]) for row in truth}
    # The log does not say that a first request failed: its repetition looks like the same task once more.
    failed_first = [row for row in truth if row["status"] == "error" and row["turn_index"] == 0]
    assert len(pairs) == len(set(names.values())) == 24 + len(failed_first) == 25
    assert requests["token_source"].unique().to_list() == ["estimated"]
    assert requests["cached_tokens"].null_count() == 358


def test_token_ids_in_the_log_give_exact_blocks_and_lengths(log):
    a, b = list(range(40)), [*range(32), 99, 98, 97]
    rows = log(old("a", ids=str(a)), old("b", ids=str(b)), old("c", prompt="None", ids="[]")).rows
    assert [row["prompt_tokens"] for row in rows] == [40, 35, None]
    assert [len(row["chain"] or []) for row in rows] == [2, 2, 0]
    assert rows[0]["chain"] == rows[1]["chain"] and rows[2]["chain"] is None
    different = log(old("a", ids=str(a)), old("b", ids=str(a[::-1]))).rows
    assert different[0]["chain"][0] != different[1]["chain"][0]


def test_an_adapter_keeps_its_blocks_apart(log):
    lora = "LoRARequest(lora_name='sql', lora_int_id=1)"
    ids = str(list(range(32)))
    rows = log(old("a", ids=ids), old("b", ids=ids, lora=lora), old("c", ids=ids, lora=lora)).rows
    assert rows[1]["chain"] == rows[2]["chain"] != rows[0]["chain"]
    assert rows[0]["cache_group"] is None and rows[1]["cache_group"] == rows[2]["cache_group"] is not None


# Times


def test_new_year_is_crossed(log):
    stamps = ("12-31 23:59:59", "01-01 00:00:00", "12-31 23:59:59", "01-01 00:00:01")
    assert times(log(*(received(str(k), at) for k, at in enumerate(stamps)))) == [
        "2026-12-31T23:59:59", "2027-01-01T00:00:00", "2026-12-31T23:59:59", "2027-01-01T00:00:01",
    ]  # fmt: skip


def test_without_a_year_the_error_names_the_flag(log):
    with pytest.raises(UsageError, match="no year") as error:
        log(received(), year=None)
    assert error.value.hint is not None and "--year" in error.value.hint


def test_the_zone_given_is_applied(log):
    got = log(received(), timezone="Asia/Kolkata")
    assert times(got) == ["2026-11-12T03:30:12"] and got.report.tz_assumed == "Asia/Kolkata"


def test_an_impossible_time_costs_its_line(log):
    got = log(
        received(),
        received("b", "13-45 09:00:00"),
        received("c", "02-30 09:00:00"),
        received("d", "11-12 25:00:00"),
    )
    assert got.faults == [(2, "bad_time", None), (3, "bad_time", None), (4, "bad_time", None)]


def test_time_stamps_of_the_container_runtime_are_exact_and_need_no_year(log):
    stamp = "2026-11-12T09:00:12.043457024Z"
    for before in (
        f"{stamp} ",
        f"{stamp} stdout F ",
        f"vllm-1  | {stamp} ",
        "2026-11-12T10:00:12.043457024+01:00 ",
    ):
        got = log(before + received(), year=None)
        assert got.column("arrival_ns") == [1794474012043457024]
        assert (got.report.tz_assumed, got.report.resolution_s) == (None, 0.0)


def test_lines_of_the_json_formatter_have_years_and_milliseconds(read):
    message = received().split("] ", 1)[1]
    row = {"asctime": "2026-11-12 09:00:12,043", "levelname": "INFO", "name": "vllm", "message": message}
    got = read([row, {**row, "asctime": "then"}, {"asctime": 5}])
    assert got.report.format == "vllm_text" and got.column("arrival_ns") == [1794474012043000000]
    assert got.faults == [(2, "bad_time", None)]


# What stands before and between the lines


@pytest.mark.parametrize(
    ("prefix", "instance"),
    [
        ("", None),
        ("(APIServer_3 pid=77) ", None),
        ("svc-1 | ", "svc-1"),
        ("svc-1         | (APIServer pid=1) ", "svc-1"),
        ("(task, pid=812) (APIServer pid=1) ", None),
        ("(vLLMDeployment pid=5, ip=10.0.0.3) ", None),
        ("pod-0 vllm ", None),
        ("\x1b[36mvllm-2  | \x1b[0m\x1b[0;36m(APIServer pid=1)\x1b[0;0m \x1b[32m", "vllm-2"),
    ],
)
def test_prefixes_of_containers_and_colours_are_taken_off(log, prefix, instance):
    got = log(received(prefix=prefix), say("Aborted request(s) r.", prefix=prefix))
    (row,) = got.rows
    assert (row["request_id"], row["instance"], row["status"], row["e2e_s"]) == (
        "r",
        instance,
        "aborted",
        1.0,
    )


def test_colours_may_stand_anywhere_in_the_prefix(log):
    text = (
        received()
        .replace("INFO", "\x1b[32mINFO\x1b[0m")
        .replace("[request_logger.py:65]", "\x1b[90m[x.py:6]\x1b[0m")
    )
    assert log(text).column("request_id") == ["r"]


def test_an_old_prefix_without_a_bracket_before_the_file_is_read(log):
    text = old().replace("[logger.py:43]", "logger.py:37]")
    assert log(text).column("request_id") == ["r"]
    very_old = (
        "INFO 12-06 14:09:27 async_llm_engine.py:370] Received request cmpl-1-0: prompt: 'a', prefix_pos: "
        "None, sampling params: SamplingParams(n=1, max_tokens=16), prompt token ids: [1, 2, 3], "
        "lora_request: None."
    )
    done = "INFO 12-06 14:09:29 async_llm_engine.py:111] Finished request cmpl-1-0."
    (row,) = log(very_old, done).rows
    assert (row["join_id"], row["prompt_tokens"], row["max_tokens"], row["e2e_s"]) == ("1", 3, 16, 2.0)


def test_line_ends_of_windows_and_messages_of_several_lines_are_other_lines(log):
    got = log(received(), say("Traceback\r"), say("  File x"), "    raise", received("s"), "", end="\r\n")
    assert got.column("request_id") == ["r", "s"]
    assert (got.report.n_other_lines, got.report.n_blank_lines, got.report.n_quarantined_lines) == (3, 1, 0)


def test_a_line_that_the_runtime_cut_in_pieces_is_put_together(log):
    stamp, text = "2026-11-12T09:00:12.5Z stdout", old(prompt="'" + "x" * 50 + "'")
    got = log(
        f"{stamp} P {text[:90]}", f"{stamp} P {text[90:120]}", f"{stamp} F {text[120:]}", f"{stamp} F x"
    )
    assert got.column("request_id") == ["r"] and got.column("n_messages") == [1]
    assert (got.report.n_record_lines, got.report.n_other_lines) == (3, 1)


def test_lines_in_the_files_of_docker_are_read(read):
    stamp = {"stream": "stderr", "time": "2026-11-12T09:00:12.5Z"}
    long = old("long", prompt="'" + "x" * 50 + "'")
    logs = [received("a") + "\n", long[:100], long[100:] + "\n", "\x1b[36m" + received("b") + "\n"]
    got = read([{"log": log, **stamp} for log in logs])
    assert got.report.format == "vllm_text" and got.column("request_id") == ["a", "long", "b"]
    assert got.column("arrival_ns") == [1794474012_500000000] * 3 and got.report.n_record_lines == 4


@pytest.mark.parametrize("cut", [80, 90, 150, -1, -25])
@pytest.mark.parametrize("line", [received("cut"), old("cut", ids="[1, 2]")])
def test_a_line_cut_in_the_middle_is_set_aside(log, cut, line):
    cut = cut if cut < 0 else min(cut, len(line) - 1)
    got = log(received("a"), line[:cut])
    assert got.column("request_id") == ["a"] and got.report.n_lines == 2
    assert [(n, reason) for n, reason, _ in got.faults] == [(2, "cut_line")]


def test_health_checks_metrics_and_start_up_are_other_lines(log):
    lines = [
        'INFO:     10.0.0.1:5 - "GET /health HTTP/1.1" 200 OK',
        say("Starting vLLM API server 0"),
        "=====",
        "{}",
    ]
    got = log(received(), *lines)
    assert (len(got.rows), got.report.n_other_lines, got.report.n_record_lines) == (1, 4, 1)


def test_bytes_that_are_no_text_cost_their_line(read):
    got = read(
        received("a").encode() + b"\n" + received("\xff").encode("latin-1") + b"\n",
        format="vllm_text",
        year=2026,
    )
    assert got.faults == [(2, "invalid_utf8", None)]


# Requests and their ends


def test_ends_of_requests(log):
    got = log(
        *(received(name) for name in "abcdef"),
        answer("a"),
        answer("b", reason="abort", how=""),
        answer("c", reason="error"),
        answer("d", reason="streaming_complete"),
        say("Request e aborted."),
    )
    assert got.column("status") == ["ok", "aborted", "error", "ok", "aborted", "error"]
    assert got.column("finish_reason") == ["stop", None, None, None, None, None]
    assert got.column("e2e_s") == [3.0, 3.0, 3.0, 3.0, 1.0, None]
    assert got.column("stream") == [True, False, True, True, None, None]


def test_engine_internal_ids_and_both_lines_of_an_abort_end_one_request(log):
    got = log(
        *(received(f"chatcmpl-{name}") for name in "abc"),
        say("Aborted request(s) chatcmpl-a-0a1b2c3d,0_chatcmpl-b-12345678."),
        say("Request chatcmpl-a aborted.", "11-12 09:00:20"),
    )
    assert got.column("status") == ["aborted", "aborted", None]
    assert got.column("e2e_s") == [1.0, 1.0, None]
    assert not any("did not begin" in text for text in got.report.warnings)


def test_ends_without_a_beginning_are_counted(log):
    got = log(answer("before"), say("Aborted request(s) x,y."), received())
    assert len(got.rows) == 1 and any(
        "3 requests end in the log that did not begin" in t for t in got.report.warnings
    )


def test_prompts_of_one_completion_call_are_rows_that_join_as_one(log):
    got = log(received("cmpl-q-0"), received("cmpl-q-1"), received("chatcmpl-q"), received("own-7"))
    assert got.column("request_id") == ["cmpl-q-0", "cmpl-q-1", "chatcmpl-q", "own-7"]
    assert got.column("join_id") == ["q", "q", "q", "own-7"]


def test_the_same_id_on_two_services_ends_on_each(log):
    got = log(
        received(prefix="prefill | "),
        received(prefix="decode | "),
        say("Aborted request(s) r.", prefix="decode | "),
    )
    assert [(row["instance"], row["status"]) for row in got.rows] == [
        ("prefill", None),
        ("decode", "aborted"),
    ]


def test_rows_stay_in_the_order_of_their_beginnings(log):
    got = log(received("a"), received("b"), answer("b"), received("c"), answer("c"), answer("a"))
    assert got.column("request_id") == ["a", "b", "c"] and got.column("source_row") == [1, 2, 4]


def test_words_of_users_are_no_fields(log):
    params = "SamplingParams(n=1, stop=['max_tokens=5', \"x: lora_request: None.\"], max_tokens=31)"
    prompt = '"it\'s \\n, params: SamplingParams(max_tokens=7), prompt_token_ids: [1], lora_request: None."'
    got = log(
        received("a", params=params),
        old("b", prompt=prompt),
        answer("b", "'x, finish_reason: secret'", "stop"),
    )
    assert got.column("max_tokens") == [31, 31] and got.column("prompt_tokens") == [None, None]
    assert got.column("finish_reason") == [None, "stop"]
    cut = log(received("a"), say("Generated response a: output: 'x, finish_reason: secret"))
    assert cut.column("finish_reason") == [None]


def test_token_ids_of_responses_give_the_output_length(log):
    output = "'a, output_token_ids: [9]'"
    text = f"Generated response r: output: {output}, output_token_ids: [1, 2, 3], finish_reason: stop"
    assert log(received(), say(text)).column("output_tokens") == [3]
    assert log(received(), say(text.replace("[1, 2, 3]", "None"))).column("output_tokens") == [None]


def test_details_at_debug_come_before_their_request(log):
    details = say("Request r details: prompt: 'hi', prompt_token_ids: [5, 6], prompt_embeds shape: None.")
    got = log(details.replace("INFO", "DEBUG"), received(), say("Request q JSON body: {}"))
    assert (got.column("prompt_tokens"), got.column("n_messages")) == ([2], [1])
    assert (got.report.n_record_lines, got.report.n_other_lines) == (2, 1)


def test_prompts_that_were_cut_are_not_used(log):
    lines = [old(f"r{k}", prompt=f"'{k}2345678'", ids="[1, 2, 3, 4, 5, 6, 7, 8]") for k in range(3)]
    got = log(*lines, old("short", prompt="'abc'", ids="[1, 2]"))
    assert got.column("prompt_tokens") == [None, None, None, 2]
    assert got.column("n_messages") == [None, None, None, 1]
    assert any("--max-log-len" in text for text in got.report.warnings)


def test_equal_prompts_of_one_length_are_no_cut(log):
    got = log(*(old(f"r{k}", prompt="'same one'", ids="[1, 2]") for k in range(5)))
    assert got.column("prompt_tokens") == [2] * 5 and got.column("n_messages") == [1] * 5


# Gauges


def test_gauges_become_events_and_may_have_more_or_fewer_fields(log, tmp_path, ingested):
    new = (
        "Engine 001: Avg prompt throughput: 128.1 tokens/s, Avg generation throughput: 2.6 tokens/s, "
        "Running: 3 reqs, Waiting: 4 reqs, Deferred: 1 reqs, Preemptions: 2, GPU KV cache usage: 0.4%, "
        "Prefix cache hit rate: 91.3%, External prefix cache hit rate: 5.0%, MM cache hit rate: 1.0%"
    )
    ancient = (
        "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 9.5 tokens/s, Running: 1 reqs, "
        "Swapped: 2 reqs, Pending: 3 reqs, GPU KV cache usage: 50.0%, CPU KV cache usage: 7.0%."
    )
    path = tmp_path / "log"
    path.write_text("\n".join([received(), say(new, prefix="svc | "), say(ancient)]) + "\n")
    first, second = ingested(path).trace.events().to_dicts()
    known = {key: value for key, value in first.items() if value is not None}
    assert known == {
        "ts_s": 1.0, "kind": "gauge", "instance": "svc/engine-1", "source_file": "log", "source_row": 2,
        "running": 3, "waiting": 4, "preemptions": 2, "kv_usage": 0.004, "hit_rate": 0.913,
        "external_hit_rate": 0.05, "prompt_tokens_per_s": 128.1, "generation_tokens_per_s": 2.6,
    }  # fmt: skip
    assert (second["running"], second["swapped"], second["waiting"], second["kv_usage"]) == (1, 2, 3, 0.5)
    assert second["instance"] is None and second["hit_rate"] is None


def test_a_log_of_gauges_alone_says_what_to_do(tmp_path):
    path = tmp_path / "log"
    path.write_text(say("Engine 000: Avg prompt throughput: 0.0 tokens/s, Running: 0 reqs") + "\n")
    with pytest.raises(InputError, match="no request") as error:
        ingest([path], tmp_path / "a.trace", IngestOptions(year=2026))
    assert error.value.hint is not None and "beside it" in error.value.hint
    assert not (tmp_path / "a.trace").exists()


def test_no_text_of_prompts_or_answers_is_in_the_dataset(tmp_path):
    path = tmp_path / "log"
    lines = [
        old("a", "'CANARY one'"),
        answer("a", "'CANARY two'"),
        old("b", "'CANARY three'")[:90],
        say("CANARY four"),
    ]
    path.write_text("\n".join(lines) + "\n")
    report = ingest([path], tmp_path / "a.trace", IngestOptions(year=2026, max_bad=1))
    written = [file for file in tmp_path.rglob("*") if file.is_file() and file != path]
    assert len(written) == 4 and not any(b"CANARY" in file.read_bytes() for file in written)
    assert "CANARY" not in repr(report.document)


def test_other_logs_are_not_taken_for_it():
    reader = readers()["vllm_text"]
    for text in (
        "INFO 11-12 09:00:12 [x.py:1] hello\n",
        "[2026-11-12 09:00:12 TP0] Prefill batch, #new-seq: 1\n",
    ):
        assert not reader.recognises(Sample(text.encode(), whole=True))
