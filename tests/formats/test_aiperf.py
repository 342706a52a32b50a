"""AIPerf: the client's view of a benchmark, units as they are written, warm-up left out."""

import json

import pytest
from oracles.truth import dataset, differences, expected

from agentctl.formats import aiperf
from agentctl.ingest.build import ingest

LOG = "aiperf/profile_export.jsonl.gz"

# What the rendering can say of requests that were answered, and of all, with the error that they allow.
ANSWERED = {
    "prompt_tokens": 0, "output_tokens": 0, "cached_tokens": 0, "ttft_s": 6e-7, "e2e_s": 6e-7,
}  # fmt: skip
ALL = {
    "e2e_s": 6e-7,
    "status": 0,
    "arrival_unix_s": 1e-6,
    "turn_index": 0,
    "attempt": 0,
}


def metric(value: float, unit: str = "tokens") -> dict:
    return {"value": value, "unit": unit}


def row(name: str = "r1", error: dict | None = None, metrics: dict | None = None, **changes) -> dict:
    about = {
        "session_num": 0, "x_request_id": name, "x_correlation_id": "c1", "conversation_id": "d1",
        "turn_index": 0, "request_start_ns": 10**18 + 123, "request_end_ns": 10**18 + 10**9 + 123,
        "benchmark_phase": "profiling", "was_cancelled": False, "worker_id": "w",
    } | changes  # fmt: skip
    return {"metadata": about, "metrics": metrics or {}, "error": error}


def as_in_truth(rows: list[dict]) -> list[dict]:
    """Ids without the dashes that AIPerf puts in."""
    names = ("request_id", "parent_request_id")
    return [old | {name: (old.get(name) or "").replace("-", "") or None for name in names} for old in rows]


def test_the_rendering_gives_the_truth_that_it_carries(read, data, truth):
    log = read(data / "formats" / LOG)
    assert (log.report.format, log.report.time_origin, log.faults) == ("aiperf", "absolute", [])
    want = expected(truth)
    rows = as_in_truth(log.rows)
    assert len(rows) == 358
    assert differences(rows, want, {"status": 0, "http_status": 0} | {"e2e_s": 6e-7}) == [
        (name, "http_status", None, 200) for name, true in want.items() if true["status"] == "ok"
    ]
    answered = {name: true for name, true in want.items() if true["status"] == "ok"}
    assert differences([row for row in rows if row["status"] == "ok"], answered, ANSWERED) == []
    assert {row["prompt_tokens"] for row in rows if row["status"] != "ok"} == {None}
    assert {row["token_source"] for row in rows if row["status"] == "ok"} == {"reported"}


def test_a_whole_ingest_finds_sessions_turns_and_attempts(data, tmp_path, truth):
    ingest([data / "formats" / LOG], tmp_path / "a.trace")
    rows, want = as_in_truth(dataset(tmp_path / "a.trace")), expected(truth)
    assert differences(rows, want, ALL) == []
    sessions = {(row["session_id"], want[row["request_id"]]["session_id"]) for row in rows}
    assert len(sessions) == 24 == len(dict(sessions))  # the same sessions under other names
    # A prompt of unknown length has no known parent; no finish reason says whether a tool or the user made
    # the gap, an earlier attempt does.
    for row in rows:
        true = want[row["request_id"]]
        assert row["parent_request_id"] == (true["parent_request_id"] if row["prompt_tokens"] else None)
        kind = true["gap_kind"] if true["gap_kind"] in ("retry", None) else "unknown"
        assert row["gap_kind"] == kind
        assert row["gap_s"] == pytest.approx(true["gap_s"], abs=1e-5)


def test_a_reader_gives_what_it_says(read, data):
    metrics = {
        "time_to_first_token": metric(1, "ms"), "usage_prompt_tokens": metric(5),
        "usage_completion_tokens": metric(3), "usage_prompt_cache_read_tokens": metric(2),
        "usage_prompt_cache_write_tokens": metric(1), "usage_reasoning_tokens": metric(1),
    }  # fmt: skip
    log = read([row(metrics=metrics), row("r2", {"code": 500}, parent_correlation_id="c0")])
    made = {"agent_line": "session_id", "parent_agent_line": "agent_path"}
    assert {made.get(name, name) for name in log.carried} == set(aiperf.CARRIES)


@pytest.mark.parametrize(
    ("value", "unit"), [(191.5, "ms"), (0.1915, "s"), (0.1915, "sec"), (191_500, "us"), (191_500_000, "ns")]
)
def test_a_latency_has_the_unit_that_it_says(read, value, unit):
    log = read(
        [row(metrics={"time_to_first_token": metric(value, unit), "request_latency": metric(1, unit)})]
    )
    assert log.column("ttft_s") == [pytest.approx(0.1915)]
    assert log.column("e2e_s") == [pytest.approx(0.1915 / value)]


@pytest.mark.parametrize(
    ("name", "unit"),
    [("time_to_first_token", "min"), ("request_latency", "tokens"), ("usage_prompt_tokens", "ms")],
)
def test_an_unknown_unit_is_never_assumed(read, name, unit):
    log = read([row(metrics={name: metric(5, unit)}), row("r2")])
    assert log.faults == [(1, "unknown_unit", f"$.metrics.{name}.unit")]


def test_times_are_exact_to_the_nanosecond_and_a_request_without_latency_lasts_until_its_end(read):
    log = read([row()])
    assert log.column("arrival_ns") == [10**18 + 123]
    assert log.column("e2e_s") == [1.0]


def test_the_servers_counts_come_before_the_clients(read):
    client = {"input_sequence_length": metric(7), "output_sequence_length": metric(2)}
    server = {"usage_prompt_tokens": metric(9), "usage_completion_tokens": metric(4)}
    log = read(
        [
            row(metrics=client),
            row("r2", metrics=client | server),
            row("r3", {"code": 500}, {"error_isl": metric(8)}),
            row("r4", {"code": 500}),
        ]
    )
    assert log.column("prompt_tokens") == [7, 9, 8, None]
    assert log.column("output_tokens") == [2, 4, None, None]
    assert log.column("token_source") == ["tokenizer", "reported", "tokenizer", None]


def test_warm_up_is_left_out_and_counted(read):
    log = read([row(benchmark_phase="warmup"), row("r2"), row("r3", benchmark_phase="warmup")])
    assert log.column("request_id") == ["r2"] and log.column("source_row") == [2]
    assert log.report.dropped == {"warm_up": 2}


@pytest.mark.parametrize(
    ("error", "cancelled", "status", "code"),
    [
        (None, False, "ok", None),
        ({"code": 499, "type": "RequestCancellationError"}, True, "aborted", 499),
        ({"code": 500, "message": "SECRET"}, True, "aborted", 500),
        ({"code": 500}, False, "error", 500),
        ({"code": 429}, False, "rejected", 429),
        ({"code": 504}, False, "timeout", 504),
        ({"code": None, "type": "X"}, False, "error", None),
        ({"code": -7}, False, "error", None),
        ({"code": 12029}, False, "error", None),
    ],
)
def test_errors_and_cancellations(read, error, cancelled, status, code):
    log = read([row(error=error, was_cancelled=cancelled)])
    assert (log.column("status"), log.column("http_status")) == ([status], [code])


def test_a_conversation_that_is_played_twice_is_two_sessions(tmp_path):
    later = {"request_start_ns": 10**18 + 5 * 10**9, "request_end_ns": 10**18 + 6 * 10**9}
    rows = [
        row("r1"),
        row("r2", x_correlation_id="c2"),
        row("r3", x_correlation_id="c2", turn_index=1, **later),
        row("r4", x_correlation_id="fork", parent_correlation_id="c1", **later),
    ]
    (tmp_path / "log").write_text("".join(json.dumps(line) + "\n" for line in rows))
    ingest([tmp_path / "log"], tmp_path / "a.trace")
    found = [(line["session_id"], line["agent_path"]) for line in dataset(tmp_path / "a.trace")]
    assert found == [("c1", None), ("c2", None), ("c2", None), ("c1", "fork")]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"metadata": {}}, ("missing_field", "$.metadata")),
        ({"metrics": {"usage_prompt_tokens": metric(0)}}, ("out_of_range", "$.metrics.usage_prompt_tokens")),
        ({"metrics": {"usage_prompt_tokens": metric(1.5)}}, ("wrong_type", "$.metrics.usage_prompt_tokens")),
        ({"metrics": {"usage_prompt_tokens": 5}}, ("wrong_type", "$.metrics.usage_prompt_tokens")),
        ({"metrics": {"request_latency": metric(-1, "ms")}}, ("out_of_range", "$.metrics.request_latency")),
    ],
)
def test_a_bad_value_costs_its_record_only(read, changes, fault):
    log = read([row("r0"), row() | changes, row("r2")], format="aiperf")
    assert log.faults == [(2, *fault)]
    assert log.column("request_id") == ["r0", "r2"]
