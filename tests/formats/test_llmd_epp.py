"""llm-d's endpoint picker: lines of a request put together, JSON and console, old and new.

| column | carried | |
| --- | --- | --- |
| arrival, request_id | yes | seconds only where the log has RFC 3339 times |
| e2e | with unix times | as the picker saw it |
| model, instance | at verbosity 3 | the first of the endpoints that it named |
| status | where the end was logged | |
| tokens, sessions, ttft, queue, prompts | no | |

No public log of a whole workload is at hand: the lines here are written by hand after the sources that the
reader names, and one line of kserve's documentation (September 2025).
"""

import json

import pytest
from oracles.renderings import plain, read_truth

from agentctl.formats.base import reader_named
from agentctl.ingest.build import IngestOptions, ingest

ID = "4a3f6247-d02f-4a57-9a90-9b25b2daa18c"


def line(msg, ts=1794474012.0437, id=ID, **more):
    """A line as llm-d-router writes it."""
    return {
        "level": "info",
        "ts": ts,
        "caller": "handlers/server.go:160",
        "msg": msg,
        "x-request-id": id,
    } | more


RECEIVED = line("EPP received request")
HANDLED = line(
    "Request handled", 1794474012.0447, objectiveKey="gold", incomingModelName="asked", targetModel="served",
    endpoint="10.42.7.4:8000,10.42.7.5:8000",
)  # fmt: skip
SENT = line(
    "EPP sent request body response(s) to proxy", 1794474012.0449, modelName="asked", targetModelName="served"
)
DONE = line("EPP sent response body back to proxy", 1794474012.5437)
OLD = (
    '{"level":"Level(-2)","ts":"2025-09-19T08:52:53Z","caller":"requestcontrol/director.go:251",'
    '"msg":"Request handled","x-request-id":"' + ID + '","model":"Qwen/Qwen2.5-0.5B-Instruct",'
    '"resolvedTargetModel":"Qwen/Qwen2.5-0.5B-Instruct","criticality":"Critical",'
    '"model":"Qwen/Qwen2.5-0.5B-Instruct","targetModel":"Qwen/Qwen2.5-0.5B-Instruct",'
    '"endpoint":"{NamespacedName:kserve-test/qwen-6899dd5fb8-tqwn8 Address:10.244.1.234 '
    'Labels:map[app.kubernetes.io/name:qwen-instruct llm-d.ai/role:both]}"}\n'
)


def console(msg, fields, ts="2026-11-12T09:00:12.043Z"):
    return "\t".join((ts, "INFO", "handlers/server.go:160", msg, json.dumps(fields)))


def shown(row):
    return [row[name] for name in ("request_id", "model", "instance", "status", "e2e_s")]


def test_the_lines_of_a_request_become_one_row(read):
    log = read([RECEIVED, HANDLED, SENT, DONE])
    assert log.report.format == "llmd_epp" and log.report.time_origin == "absolute"
    assert [shown(row) for row in log.rows] == [[ID, "served", "10.42.7.4:8000", "ok", pytest.approx(0.5)]]
    assert log.column("arrival_ns") == [1794474012_043700000] and log.column("source_row") == [1]
    assert (log.report.n_lines, log.report.n_record_lines, log.report.resolution_s) == (4, 4, 0.0)
    assert log.carried == set(reader_named("llmd_epp").CARRIES)


def test_requests_may_be_interleaved_and_open_at_the_end(read):
    log = read([RECEIVED, line("EPP received request", 1794474012.2, "b"), HANDLED, DONE])
    assert [row["request_id"] for row in log.rows] == [ID, "b"]
    assert [row["status"] for row in log.rows] == ["ok", None]


def test_without_verbosity_3_there_is_a_model_but_no_placement(read):
    assert [shown(row)[:4] for row in read([RECEIVED, SENT, DONE]).rows] == [[ID, "served", None, "ok"]]


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (line("Failed to process request", 1794474012.1, level="error", error="SECRET"), "error"),
        ({**line("Request evicted by flow control", 1794474012.1), "requestID": ID}, "rejected"),
        (line("EPP skipped response interception, routed request", targetEndpoint="10.42.7.9:8000"), None),
    ],
)
def test_how_a_request_ends(read, last, status):
    log = read([RECEIVED, last])
    assert log.column("status") == [status] and "SECRET" not in json.dumps(log.rows)
    assert log.rows[0]["instance"] == ("10.42.7.9:8000" if status is None else None)


def test_the_console_form_gives_the_same(read):
    fields = {"x-request-id": ID}
    handled = fields | {"objectiveKey": "", "targetModel": "served", "endpoint": "10.42.7.4:8000"}
    lines = [
        console("EPP received request", fields),
        "\x1b[34m" + console("Request handled", handled) + "\x1b[0m",
        console("EPP sent response body back to proxy", fields, "2026-11-12T09:00:12.543Z"),
    ]
    log = read("\n".join(lines) + "\n")
    assert log.report.format == "llmd_epp"
    assert [shown(row) for row in log.rows] == [[ID, "served", "10.42.7.4:8000", "ok", pytest.approx(0.5)]]


def test_opentelemetrys_names_give_the_same(read):
    lines = [
        {"timestamp": "2026-11-12T09:00:12.0437Z", "body": row["msg"], "x-request-id": ID}
        for row in (RECEIVED, DONE)
    ]
    log = read(lines)
    assert log.column("arrival_ns") == [1794474012_043700000] and log.column("status") == ["ok"]


def test_an_old_line_names_the_pod_and_seconds_only(read):
    log = read(OLD)
    assert shown(log.rows[0]) == [ID, "Qwen/Qwen2.5-0.5B-Instruct", "10.244.1.234", None, None]
    assert log.report.resolution_s == 1.0
    whole = [RECEIVED | {"ts": "2026-11-12T09:00:12Z"}, DONE | {"ts": "2026-11-12T09:00:14Z"}]
    assert read(whole).column("e2e_s") == [None]


def test_an_id_that_comes_again_is_another_attempt(read):
    log = read([RECEIVED, HANDLED, RECEIVED | {"ts": 1794474020}, DONE])
    assert log.column("arrival_ns") == [1794474012_043700000, 1794474020_000000000]
    assert log.column("source_row") == [1, 3] and log.column("status") == [None, "ok"]


def test_other_lines_are_counted_and_bad_ones_set_aside(read):
    other = line("Processing") | {"prompt": "SECRET"}
    debug = line("EPP received request", id=None)
    text = "\n".join(json.dumps(row) for row in (RECEIVED, other, debug, RECEIVED | {"id": 1, "ts": "noon"}))
    log = read(
        text + '\n{"msg": "EPP received request", "x-request-id": 5}\nI0101 klog EPP received request\n'
    )
    assert log.faults == [(4, "wrong_type", "$.ts"), (5, "wrong_type", "$.x-request-id")]
    assert (log.report.n_other_lines, len(log.rows)) == (3, 1)


def test_with_the_engines_it_gives_placement_and_the_rest(data, tmp_path):
    """The workload of the renderings, as this log would show it."""
    epp = tmp_path / "epp.log"
    lines = []
    for true in read_truth():
        id_, at = true["request_id"], true["arrival_unix_s"]
        lines.append(line("EPP received request", at, id_))
        lines.append(
            line("Request handled", at + 0.001, id_, targetModel=true["model"], endpoint="10.42.7.4:8000")
        )
        end = (
            "EPP sent response body back to proxy" if true["status"] == "ok" else "Failed to process request"
        )
        lines.append(line(end, true["end_unix_s"], id_))
    lines.sort(key=lambda row: row["ts"])
    epp.write_text("\n".join(map(json.dumps, lines)) + "\n")
    engines = data / "formats/vllm/vllm_otel_spans.otlp.jsonl.gz"
    trace = ingest([epp, engines], tmp_path / "a.trace", IngestOptions(join="x-request-id")).trace
    rows = {plain(row["request_id"]): row for row in trace.requests().to_dicts()}
    assert trace.meta["join"]["matched"] == 344 and trace.meta["join"]["only_in"] == {"epp.log": 14}
    for true in read_truth():
        row = rows[true["request_id"]]
        assert (row["model"], row["instance"]) == (true["model"], "10.42.7.4:8000")
        assert row["e2e_s"] == pytest.approx(true["e2e_s"], abs=1e-5)
        assert (row["status"] == "ok") == (true["status"] == "ok")
        if true["status"] == "ok":
            assert row["ttft_s"] == pytest.approx(true["ttft_s"], abs=1e-5)
            assert (row["prompt_tokens"], row["output_tokens"]) == (
                true["input_tokens"],
                true["output_tokens"],
            )
