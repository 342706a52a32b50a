"""GuideLLM, inference-perf and vllm bench serve: clients' reports, in which 0 often means unknown."""

import copy
import json
from math import inf, nan

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles.truth import dataset

from agentctl.errors import AgentctlError, InputError, UnknownFormatError
from agentctl.formats.base import readers
from agentctl.ingest.build import IngestOptions, ingest

FOLDER = "load_tests"
FILES = {
    "guidellm": "guidellm_benchmarks.json",
    "inference_perf": "per_request_lifecycle_metrics.jsonl",
    "vllm_bench": "vllm_bench.json",
}


@pytest.fixture
def records(data):
    """records(format): the objects of its sample."""
    return lambda name: list(map(json.loads, (data / FOLDER / FILES[name]).read_text().splitlines()))


@pytest.mark.parametrize("name", FILES)
def test_a_reader_gives_what_it_says(read, data, records, name):
    rows = records(name)
    if name == "inference_perf":  # what a run of recorded sessions, Anthropic's API and a unary call add
        usage = {"input_tokens": 8, "output_tokens": 3, "cache_creation_input_tokens": 4}
        rows[0]["info"]["response_metrics"]["server_usage"] |= usage
        rows[0] |= {"session_id": "s", "response": '{"choices": [{"finish_reason": "stop"}]}'}
    log = read(rows)
    assert (log.report.format, log.faults) == (name, [])
    assert log.carried == set(readers()[name].CARRIES)


def test_guidellm_gives_times_tokens_sessions_and_how_requests_ended(read, data):
    log = read(data / FOLDER / FILES["guidellm"])
    assert log.report.time_origin == "absolute"
    assert [ns - 1794474012 * 10**9 for ns in log.column("arrival_ns")] == [
        500_000_000, 2_000_000_000, 2_250_000_000, 2_500_000_000, 8_500_000_000
    ]  # fmt: skip
    assert log.column("ttft_s") == [0.125, 0.0625, 0.25, None, 0.25]
    assert log.column("e2e_s") == [1.0, 1.0, 1.0, 0.25, 0.5]
    assert log.column("prompt_tokens") == [40, 72, 30, 40, 40]
    assert log.column("cached_tokens") == [0, 32, None, None, None]
    assert log.column("output_tokens") == [16, 12, 8, None, 3]
    assert log.column("session_id") == ["c1", "c1", "c2", "c3", "c4"]
    assert log.column("turn_number") == [0, 1, 0, 0, 0]
    assert log.column("status") == ["ok", "ok", "ok", "error", "aborted"]
    assert log.column("http_status") == [None, None, None, 503, None]
    assert log.column("model") == ["Qwen/Qwen3-8B", "Qwen/Qwen3-8B", None, None, None]
    assert log.column("join_id")[0] == "00000000-0000-4000-8000-000000000001"
    assert log.report.dropped == {"not_sent": 1}


def test_inference_perf_takes_the_servers_counts_before_the_clients(read, data):
    log = read(data / FOLDER / FILES["inference_perf"])
    assert log.report.time_origin == "relative"
    assert log.column("prompt_tokens") == [40, 72, 9, 39, 39]
    assert log.column("token_source") == ["reported", "reported", "tokenizer", "tokenizer", "tokenizer"]
    assert log.column("output_tokens") == [3, 2, 1, None, None]
    assert log.column("cached_tokens") == [0, 32, None, None, None]
    assert log.column("ttft_s") == [0.125, 0.0625, None, None, None]
    assert log.column("e2e_s") == [1.0, 0.5, 0.25, 0.125, 30.0]
    assert log.column("status") == ["ok", "ok", "ok", "error", "timeout"]
    assert log.column("http_status") == [None, None, None, 503, None]


def test_inference_perf_as_the_tool_writes_it_is_a_document(read, data):
    whole = data / FOLDER / "per_request_lifecycle_metrics.json"
    with pytest.raises(UnknownFormatError) as error:
        read(whole)
    assert error.value.hint is not None and "--json-document" in error.value.hint
    document, lines = read(whole, json_document=True), read(data / FOLDER / FILES["inference_perf"])
    assert document.rows == lines.rows


def test_inference_perf_without_info_has_what_it_computed(read):
    computed = {"time_to_first_token": 0.25, "input_tokens": 9, "output_tokens": 4, "inter_token_latency": 1}
    log = read([{"start_time": 1.0, "end_time": 2.0, "computed_metrics": computed, "error": None}])
    assert (log.column("ttft_s"), log.column("prompt_tokens")) == ([0.25], [9])
    assert (log.column("output_tokens"), log.column("token_source")) == ([4], ["tokenizer"])


def test_a_vllm_run_gives_a_request_for_each_place_of_its_arrays(read, data):
    log = read(data / FOLDER / FILES["vllm_bench"])
    assert log.report.time_origin == "relative"
    assert log.column("request_id")[:2] == ["20261112-090015-81234.5-0", "20261112-090015-81235.0-1"]
    assert len(set(log.column("request_id"))) == 8
    assert log.column("prompt_tokens") == [40, 72, 40, 40] * 2
    assert log.column("output_tokens") == [3, 3, None, None] * 2
    assert log.column("ttft_s") == [0.125, 0.0625, None, None] * 2
    assert log.column("e2e_s") == [1.0, 0.5, None, None] * 2
    assert log.column("status") == ["ok", "ok", "rejected", "timeout"] * 2
    assert log.column("http_status") == [None, None, 429, None] * 2
    assert log.column("arrival_ns")[4] - log.column("arrival_ns")[0] == 600 * 10**9


def test_a_vllm_run_without_latencies_lasts_until_its_last_token(read, records):
    run = records("vllm_bench")[0]
    del run["latencies"]
    assert read([run]).column("e2e_s") == [1.0, 0.5, None, None]


def test_totals_of_a_benchmark_are_no_requests(read, records):
    run = records("vllm_bench")[0]
    for name in ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors"):
        del run[name]
    with pytest.raises(InputError, match="the totals of a benchmark and no requests") as error:
        read([run])
    assert error.value.hint is not None and "--save-detailed" in error.value.hint


@pytest.mark.parametrize("name", ["ttfts", "errors"])
def test_arrays_that_do_not_fit_together_cost_their_run(read, records, name):
    good, bad = records("vllm_bench")
    bad[name] = bad[name][:-1]
    log = read([good, bad])
    assert log.faults == [(2, "array_length", f"$.{name}")]
    assert len(log.rows) == 4


def test_one_bad_value_costs_one_request(read, records):
    (report,), (run, _) = records("guidellm"), records("vllm_bench")
    report["benchmarks"][0]["requests"]["successful"][1]["info"]["timings"]["request_end"] = 1.0
    report["benchmarks"][0]["requests"]["errored"][0]["info"] = None
    place = "$.benchmarks[0].requests"
    assert sorted(read([report]).faults) == [
        (1, "out_of_range", f"{place}.successful[1].info.timings.request_end"),
        (1, "wrong_type", f"{place}.errored[0].info"),
    ]
    run["input_lens"][1], run["itls"][2] = 1.5, "x"
    assert sorted(read([run]).faults) == [
        (1, "wrong_type", "$[1].input_lens"), (1, "wrong_type", "$[2].itls")
    ]  # fmt: skip


def test_a_report_without_requests_is_set_aside(read, records):
    empty = records("guidellm")[0] | {"benchmarks": []}
    log = read([empty, records("guidellm")[0]])
    assert log.faults == [(1, "no_requests", "$.benchmarks")]


def test_a_report_of_requests_never_sent_is_no_fault(read, records):
    report, whole = copy.deepcopy(records("guidellm")[0]), records("guidellm")[0]
    requests = report["benchmarks"][0]["requests"]
    requests |= {"successful": [], "errored": None, "incomplete": requests["incomplete"][1:]}
    log = read([report, whole])
    assert log.faults == [] and log.report.dropped == {"not_sent": 2} and len(log.rows) == 5


@pytest.mark.parametrize("name", ["guidellm", "inference_perf"])
def test_bodies_give_chains_and_no_text_is_kept(data, tmp_path, name):
    ingest([data / FOLDER / FILES[name]], tmp_path / "a.trace", IngestOptions())
    rows = dataset(tmp_path / "a.trace")
    first, second = rows[:2]
    assert second["parent_request_id"] == first["request_id"] and second["session_id"] == first["session_id"]
    assert second["turn_index"] == 1
    for path in (tmp_path / "a.trace").iterdir():
        assert b"ferry" not in path.read_bytes()


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from([0, -1, 1e308, inf, nan, [], {}, [None], [[1]], {"a": []}, "\ud83d", 2**70]),
)  # fmt: skip


def places_of(value, path=()):
    """Paths to all values inside a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places_of(inner, (*path, key))


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_whatever_stands_in_a_report_it_adds_up_and_stops_nothing(read, records, name, draw):
    rows = records(name)
    for _ in range(draw.draw(st.integers(1, 4))):
        *above, last = draw.draw(st.sampled_from(sorted(places_of(rows), key=str)))
        inner = rows
        for key in above:
            inner = inner[key]
        if isinstance(inner, dict) and draw.draw(st.booleans()):
            del inner[last]
        else:
            inner[last] = draw.draw(VALUES)
        if not any(isinstance(row, dict) and row for row in rows):
            return
    try:
        report = read(rows, format=name).report
    except AgentctlError:
        return
    assert report.n_lines == report.n_record_lines + report.n_quarantined_lines + report.n_blank_lines
    assert report.n_records == report.n_rows + report.quarantine.count + sum(report.dropped.values())
