"""--join: logs of the same requests become one row a request, the same whatever the order of the files."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.joining import Log
from oracles.joining import join as join_by_hand
from oracles.renderings import SAME, TIMES, agreeing, answered, first_attempt, read_truth

from agentctl.engines.forked import Spawned
from agentctl.errors import InputError, UsageError
from agentctl.formats._names import shared_id
from agentctl.formats.base import ReadOptions, readers
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.ingest.join import join_files
from agentctl.ingest.merging import ROLES
from agentctl.ingest.read import FileReport, read_file
from agentctl.ingest.spool import column_type
from agentctl.ingest.trie import Trie

DATA = Path(__file__).parents[1] / "data" / "formats"
ROUTER = DATA / "production_stack/router.log.gz"
ENGINES = DATA / "vllm/vllm_otel_spans.otlp.jsonl.gz"
PROXY = DATA / "litellm/LiteLLM_SpendLogs.csv.gz"
STORED = DATA / "litellm/spendlogs_with_messages.jsonl.gz"
GATEWAY = DATA / "envoy/access.log.jsonl.gz"
FILES = ("dataset.json", "requests.parquet", "prefix_nodes.parquet")
BY_ID = IngestOptions(join="x-request-id")

COLUMNS = ["ttft_s", "prompt_tokens", "instance", "session_id", "e2e_s", "model", "status"]
COMPARED = {"prompt_tokens", "session_id", "model", "status"}
FORMATS = {
    "client": ("mooncake",), "gateway": ("envoy", "litellm"), "router": ("production_stack",),
    "engine": ("vllm_spans",),
}  # fmt: skip


@pytest.fixture(scope="module")
def truth() -> list[dict]:
    return read_truth()


@cache
def empty_report() -> FileReport:
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.write_text('{"timestamp": 1, "input_length": 1, "output_length": 1}\n')
        return read_file(str(log), "mooncake", ReadOptions(), Trie(), Path(folder) / "spool")


def report_of(log: Log, folder: Path) -> FileReport:
    """A report with the rows of `log`, as read_file leaves it."""
    report = replace(
        empty_report(), name=log.name, sha256=log.name, format=log.format, time_origin="absolute",
        spool=folder / f"{log.name}.arrow",
    )  # fmt: skip
    rows = [{"source_row": number, "request_id": None} | row for number, row in enumerate(log.rows, start=1)]
    schema = pa.schema(
        [
            (name, column_type(name))
            for name in ("source_row", "request_id", "join_id", "arrival_ns", *COLUMNS)
        ]
    )
    with pa.ipc.new_file(str(report.spool), schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return report


def rows_of(reports: list[FileReport]) -> list[dict]:
    rows = []
    for report in reports:
        with pa.OSFile(str(report.spool)) as file:
            rows += [row | {"log": report.name} for row in pa.ipc.open_file(file).read_all().to_pylist()]
    return rows


def values(low: int, high: int):
    return st.none() | st.integers(low, high)


@st.composite
def some_logs(draw) -> list[Log]:
    logs = []
    for number in range(draw(st.integers(2, 4))):
        role = draw(st.sampled_from(ROLES))
        rows = draw(
            st.lists(
                st.fixed_dictionaries(
                    {
                        "join_id": st.none() | st.sampled_from("abc"),
                        "arrival_ns": st.integers(0, 3),
                        "ttft_s": st.sampled_from([None, 0.0, 0.5]),
                        "e2e_s": st.sampled_from([None, 0.0, 0.5]),
                        "prompt_tokens": values(1, 2),
                        "instance": values(1, 2).map(lambda n: n and str(n)),
                        "session_id": values(1, 2).map(lambda n: n and str(n)),
                        "model": values(1, 2).map(lambda n: n and str(n)),
                        "status": st.sampled_from([None, "ok", "aborted"]),
                    }
                ),
                max_size=6,
            )
        )
        logs.append(Log(f"log{number}", role, draw(st.sampled_from(FORMATS[role])), rows))
    return logs


def comparable(rows: list[dict]) -> list[str]:
    return sorted(json.dumps({key: row.get(key) for key in ("log", "arrival_ns", *COLUMNS)}) for row in rows)


@given(some_logs())
def test_the_rows_are_those_of_joining_by_hand(tmp_path_factory, logs):
    folder = tmp_path_factory.mktemp("join")
    want, differ, only_in = join_by_hand(logs, COLUMNS)
    n_rows = sum(len(log.rows) for log in logs)
    reports = [report_of(log, folder) for log in logs]
    try:
        joined = join_files(reports, "id", keep_unmatched=True)
    except UsageError:
        assert len({log.format for log in logs}) == 1
        return
    except InputError:
        assert len(want) == sum(only_in.values())  # nothing to join
        return
    assert comparable(rows_of(reports)) == comparable(want)
    assert joined.document["conflicts"] == {name: n for name, n in differ.items() if name in COMPARED}
    assert joined.document["only_in"] == only_in
    assert joined.document["requests"] == len(want) == n_rows - joined.n_joined


@settings(max_examples=40)
@given(some_logs(), st.randoms(use_true_random=False))
def test_the_order_of_the_files_does_not_matter(tmp_path_factory, logs, random):
    folder = tmp_path_factory.mktemp("join")
    results = []
    for _ in range(2):
        reports = [report_of(log, folder) for log in logs]
        random.shuffle(reports)
        try:
            results.append((join_files(reports, "id", True).document, comparable(rows_of(reports))))
        except (InputError, UsageError) as error:
            results.append(str(error))
    assert results[0] == results[1]


def test_dropped_rows_are_counted(tmp_path):
    row = {"join_id": "a", "arrival_ns": 1}
    logs = [
        Log("g", "gateway", "envoy", [row, {**row, "join_id": "b"}]),
        Log("r", "router", "production_stack", [row, row | {"join_id": None}, row | {"join_id": "c"}]),
    ]
    reports = [report_of(log, tmp_path) for log in logs]
    joined = join_files(reports, "id", keep_unmatched=False)
    assert joined.dropped == {"unmatched": 3} and joined.n_joined == 1 and len(rows_of(reports)) == 1
    assert joined.document["only_in"] == {"g": 1, "r": 2} and joined.document["without_key"] == {"r": 1}
    assert joined.document["requests"] == 1


def test_further_attempts_keep_names_of_their_own(tmp_path):
    tries = [{"join_id": "a", "request_id": "a", "arrival_ns": at, "status": "ok"} for at in (1, 5, 9)]
    logs = [
        Log("g", "gateway", "envoy", tries[1:]),
        Log("e", "engine", "vllm_spans", [row | {"request_id": f"cmpl-{k}"} for k, row in enumerate(tries)]),
    ]
    reports = [report_of(log, tmp_path) for log in logs]
    joined = join_files(reports, "id", keep_unmatched=True)
    ids = {row["arrival_ns"]: row["request_id"] for row in rows_of(reports)}
    assert ids == {1: "cmpl-0", 5: "a", 9: "a#3"}  # the engine's first attempt is in no other log
    assert joined.document["further_attempts"] == 2


def test_a_record_that_is_in_a_log_twice_stays_a_duplicate(tmp_path):
    twice = {"join_id": "a", "request_id": "a", "arrival_ns": 1}
    logs = [Log("g", "gateway", "envoy", [twice, twice]), Log("e", "engine", "vllm_spans", [twice])]
    reports = [report_of(log, tmp_path) for log in logs]
    join_files(reports, "id", keep_unmatched=True)
    assert [row["request_id"] for row in rows_of(reports)] == ["a", "a"]  # --duplicates decides


def test_a_clock_that_is_behind_is_reported_and_shifts_nothing(tmp_path):
    second = 1_000_000_000
    outer = [{"join_id": str(k), "arrival_ns": (100 + k) * second} for k in range(21)]
    inner = [
        row | {"arrival_ns": row["arrival_ns"] - 2 * second + k * second // 20} for k, row in enumerate(outer)
    ]
    logs = [Log("g", "gateway", "envoy", outer), Log("e", "engine", "vllm_spans", inner)]
    reports = [report_of(log, tmp_path) for log in logs]
    joined = join_files(reports, "id", keep_unmatched=True)
    (offset,) = joined.document["clock_offset_s"]
    assert offset == {
        "outer": "g", "inner": "e", "requests": 21, "before": 21, "median": -1.5, "p5": -1.95, "p95": -1.05,
    }  # fmt: skip
    assert "21 of 21 requests arrive in e before they do in g, by 1.5 s" in joined.warnings[0]
    coarse = [replace(report, resolution_s=1.5) for report in (report_of(log, tmp_path) for log in logs)]
    assert join_files(coarse, "id", keep_unmatched=True).warnings == []  # no more than whole seconds do
    assert {row["arrival_ns"] for row in rows_of(reports)} == {row["arrival_ns"] for row in outer}


def test_a_clock_of_another_zone_is_reported_though_it_is_late(tmp_path):
    outer = [{"join_id": str(k), "arrival_ns": (100 + k) * 10**9} for k in range(5)]
    for late_s, warned in ((30, []), (18_000, ["5 requests arrive in e 18,000 s after they do in g"])):
        inner = [row | {"arrival_ns": row["arrival_ns"] + late_s * 10**9} for row in outer]
        logs = [Log("g", "gateway", "envoy", outer), Log("e", "engine", "vllm_text", inner)]
        warnings = join_files([report_of(log, tmp_path) for log in logs], "id", keep_unmatched=True).warnings
        assert [text.split(", in the median")[0] for text in warnings] == warned


def test_ids_that_hardly_ever_come_twice_are_no_sessions_while_another_log_has_them(tmp_path):
    rows = [{"join_id": str(k), "arrival_ns": k} for k in range(20)]
    made_up = [row | {"session_id": f"made-up-{k}"} for k, row in enumerate(rows)]
    real = [row | {"session_id": f"real-{k // 5}" if k < 15 else None} for k, row in enumerate(rows)]
    logs = [Log("g", "gateway", "litellm", made_up), Log("r", "router", "production_stack", real)]
    reports = [report_of(log, tmp_path) for log in logs]
    joined = join_files(reports, "id", keep_unmatched=True)
    sessions = [row["session_id"] for row in sorted(rows_of(reports), key=lambda row: row["arrival_ns"])]
    assert sessions == [row["session_id"] or f"made-up-{k}" for k, row in enumerate(real)]
    assert joined.document["conflicts"] == {"session_id": 15}


def test_models_are_compared_without_what_providers_put_before_them(tmp_path):
    row = {"join_id": "a", "arrival_ns": 1, "model": "Qwen/Qwen3"}
    logs = [Log("g", "gateway", "envoy", [row]), Log("e", "engine", "vllm_spans", [row | {"model": "Qwen3"}])]
    reports = [report_of(log, tmp_path) for log in logs]
    assert join_files(reports, "id", keep_unmatched=True).document["conflicts"] == {}
    assert rows_of(reports)[0]["model"] == "Qwen/Qwen3"


@pytest.mark.parametrize(
    "spelling",
    [
        "698d51a1-9d8a-121c-e581-499d7b701668", "698D51A1-9D8A-121C-E581-499D7B701668",
        "chatcmpl-698d51a1-9d8a-121c-e581-499d7b701668", "chatcmpl-698d51a19d8a121ce581499d7b701668",
        "chatcmpl-698d51a1-9d8a-121c-e581-499d7b701668-9f86d081",
        "cmpl-698d51a1-9d8a-121c-e581-499d7b701668-0",
    ],
)  # fmt: skip
def test_ids_are_the_same_in_all_their_spellings(spelling):
    assert shared_id(spelling) == "698d51a19d8a121ce581499d7b701668"


@pytest.mark.parametrize(
    ("engine", "caller"),
    [("chatcmpl-req-12", "req-12"), ("cmpl-req-12-0", "req-12"), ("req-12", "req-12"), ("embd-a-3", "a")],
)
def test_an_engines_id_holds_the_callers(engine, caller):
    assert shared_id(engine) == caller == shared_id(caller)


def test_hidden_names_join_as_well_as_plain_ones(tmp_path):
    options = IngestOptions(join="x-request-id", hash_ids=True)
    join = ingest([PROXY, ENGINES, ROUTER], tmp_path / "a.trace", options).trace.meta["join"]
    assert (join["matched"], join["only_in"], join["conflicts"]) == (358, {}, {})


@pytest.mark.parametrize("name", ["vllm_text", "vllm_spans", "sglang_requests", "sglang_metrics"])
def test_engines_logs_are_the_innermost(name):
    assert ROLES[-1] == readers()[name].ROLE


def test_every_role_that_a_reader_says_is_known():
    assert {getattr(reader, "ROLE", "client") for reader in readers().values()} <= set(ROLES)


@pytest.mark.parametrize("engines", ["vllm_spans", "vllm_spans and vllm_text", "sglang_metrics"])
def test_any_engines_logs_do(tmp_path, truth, engines):
    logs = {
        "vllm_spans": [ENGINES],
        "vllm_spans and vllm_text": [ENGINES, DATA / "vllm/vllm_server_v0.32.log.gz"],
        "sglang_metrics": [DATA / "sglang/sglang-request-metrics-20261112_09.log.gz"],
    }[engines]
    options = IngestOptions(join="x-request-id", year=2026)
    trace = ingest([PROXY, ROUTER, *logs], tmp_path / "a.trace", options).trace
    table, origin = trace.requests(), trace.meta["time_origin_ns"]
    carried = {"arrival_s", "ttft_s", "e2e_s", "queue_s", "prompt_tokens", "output_tokens", "cached_tokens"}
    carried |= {"session_id", "turn_index", "attempt", "parent_request_id", "gap_s", "status", "tenant"}
    assert carried <= agreeing(table, truth, first_attempt, origin)
    assert trace.meta["records"]["rows"] == 358 and trace.meta["join"]["conflicts"] == {}


@pytest.mark.parametrize("outer", [PROXY, GATEWAY], ids=["litellm", "envoy"])
def test_router_engines_and_a_gateway_together_give_the_whole_truth(tmp_path, truth, outer):
    """Placement from the router, times from the engines, tokens from the gateway, sessions from both."""
    trace = ingest([outer, ENGINES, ROUTER], tmp_path / "a.trace", BY_ID).trace
    table, origin = trace.requests(), trace.meta["time_origin_ns"]
    join, records = trace.meta["join"], trace.meta["records"]
    assert (join["matched"], join["requests"], join["only_in"], join["conflicts"]) == (358, 358, {}, {})
    dropped = sum(records["dropped"].values())
    assert records["read"] == records["rows"] + records["quarantined"] + dropped + records["joined"]

    carried = {"session_id", "turn_index", "attempt", "status", "model", "arrival_s", "e2e_s"}
    carried |= {"tenant"} if outer == PROXY else set()
    assert agreeing(table, truth, time_origin_ns=origin) == carried
    carried |= {"ttft_s", "queue_s", "prompt_tokens", "output_tokens", "cached_tokens", "parent_request_id"}
    carried |= {"http_status"} if outer == GATEWAY else set()
    assert agreeing(table, truth, answered, origin) == carried
    assert agreeing(table, truth, first_attempt, origin) == carried | {"gap_s"}
    assert set(table["instance"]) == {f"10.42.7.{k}:8000" for k in (4, 5, 6, 7)}
    assert table.filter(table["status"] == "ok")["decode_s"].null_count() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_stored_messages_bring_their_chains_and_the_router_its_sessions(tmp_path, truth, workers):
    """A proxy's own session ids are one per request; finish reasons come from the answers that it stored."""
    trace = ingest([STORED, ROUTER, ENGINES], tmp_path / "a.trace", BY_ID, engine=Spawned(workers)).trace
    table, origin = trace.requests(), trace.meta["time_origin_ns"]
    everything = {*SAME, *TIMES, "gap_s", "parent_request_id"}
    assert agreeing(table, truth, first_attempt, origin) == everything - {"http_status"}
    everywhere = {"session_id", "turn_index", "attempt", "parent_request_id", "arrival_s", "e2e_s", "status"}
    assert everywhere <= agreeing(table, truth, time_origin_ns=origin)
    assert trace.meta["join"]["conflicts"] == {"session_id": 358}
    assert set(table["hash_kind"]) == {"bytes"} and table["tip_node"].null_count() == 0


def test_times_of_the_engine_are_exact_though_the_gateways_are_rounded(tmp_path, truth):
    trace = ingest([GATEWAY, ENGINES], tmp_path / "a.trace", BY_ID).trace
    times = dict(zip(trace.requests()["request_id"], trace.requests()["ttft_s"], strict=True))
    for true in filter(answered, truth):
        plain = true["request_id"]
        uuid = "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))
        assert times[uuid] == pytest.approx(true["ttft_s"], abs=1e-6)


def test_the_bytes_do_not_depend_on_order_or_workers(tmp_path):
    files = [ROUTER, ENGINES, PROXY]
    ingest(files, tmp_path / "a.trace", BY_ID)
    ingest(files[::-1], tmp_path / "b.trace", BY_ID)
    ingest(files, tmp_path / "c.trace", BY_ID, engine=Spawned(2))
    for name in FILES:
        content = {(tmp_path / folder / name).read_bytes() for folder in ("a.trace", "b.trace", "c.trace")}
        assert len(content) == 1


@pytest.mark.parametrize("unmatched", ["keep", "drop"])
def test_what_only_the_router_saw_is_kept_or_dropped_and_counted(tmp_path, unmatched):
    options = IngestOptions(join="x-request-id", unmatched=unmatched)
    trace = ingest([ROUTER, ENGINES], tmp_path / "a.trace", options).trace
    records, join = trace.meta["records"], trace.meta["join"]
    assert join["only_in"] == {"router.log.gz": 14} and join["matched"] == 344
    assert records["rows"] == join["requests"] == (358 if unmatched == "keep" else 344)
    assert records["dropped"] == ({} if unmatched == "keep" else {"unmatched": 14})
    assert records["read"] == records["rows"] + records["joined"] + sum(records["dropped"].values())


def test_logs_without_a_time_of_day_cannot_be_joined(tmp_path):
    with pytest.raises(InputError, match="has relative times"):
        ingest([DATA / "bailian/trace_blksz_16.jsonl.gz", ROUTER], tmp_path / "a.trace", BY_ID)


def test_gauges_of_the_engines_may_lie_beside(tmp_path):
    gauges = DATA / "sglang/sglang_server.log.gz"
    trace = ingest([ROUTER, ENGINES, gauges], tmp_path / "a.trace", BY_ID).trace
    assert trace.meta["join"]["matched"] == 344 and (tmp_path / "a.trace" / "events.parquet").exists()


def test_without_a_join_nothing_is_joined(tmp_path):
    trace = ingest([ROUTER], tmp_path / "a.trace").trace
    assert trace.meta["join"] is None and trace.meta["records"]["joined"] == 0
    assert not any("--join" in text for text in trace.meta["warnings"])


def test_requests_that_count_twice_for_want_of_a_join_are_told_of(tmp_path):
    trace = ingest([ROUTER, ENGINES], tmp_path / "a.trace").trace
    assert [text for text in trace.meta["warnings"] if "--join" in text] == [
        "344 requests are in logs of several formats and count once in each: --join x-request-id makes "
        "one row of them"
    ]


def test_a_users_own_table_joins_by_the_field_that_the_key_names(tmp_path, truth):
    table = tmp_path / "clients.jsonl"
    lines = [
        {"when": true["arrival_unix_s"], "who": true["tenant"], "trace": true["request_id"]} for true in truth
    ]
    table.write_text("\n".join(map(json.dumps, lines)) + "\n")
    options = IngestOptions(join="trace", map={"arrival": "when", "tenant": "who"})
    trace = ingest([table, ENGINES], tmp_path / "a.trace", options).trace
    assert trace.meta["join"]["matched"] == 344 and trace.meta["join"]["requests"] == 358
    rows = trace.requests().filter(trace.requests()["ttft_s"].is_not_null())
    want = [true for true in truth if true["status"] == "ok"]
    assert list(rows["tenant"]) == [true["tenant"] for true in want]
    assert list(rows["ttft_s"]) == pytest.approx([true["ttft_s"] for true in want], abs=1e-6)
    assert [file["format"] for file in trace.meta["files"]] in (
        ["generic", "vllm_spans"],
        ["vllm_spans", "generic"],
    )


def test_a_mapping_is_for_the_log_whose_operator_chose_the_fields(tmp_path, truth):
    options = IngestOptions(join="x-request-id", map={"ttft_ms": "x-envoy-upstream-service-time"})
    trace = ingest([GATEWAY, ROUTER], tmp_path / "a.trace", options).trace
    assert {file["format"] for file in trace.meta["files"]} == {"envoy", "production_stack"}
    table, origin = trace.requests(), trace.meta["time_origin_ns"]
    assert "ttft_s" in agreeing(table, truth, time_origin_ns=origin)


def test_logs_that_share_no_id_are_an_error_that_says_so(tmp_path):
    other = tmp_path / "access.log"
    row = {"start_time": "2026-11-12T09:00:12Z", "response_code": 200, "x-request-id": "x", "gen_ai.a": 1}
    other.write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match="no request of one log is in another by x-request-id"):
        ingest([other, ROUTER], tmp_path / "a.trace", BY_ID)


def test_logs_of_one_kind_are_shards_and_not_joined(tmp_path):
    lines = ROUTER.read_bytes()
    (tmp_path / "a.log.gz").write_bytes(lines)
    with pytest.raises(UsageError, match="all files are production_stack logs"):
        ingest([tmp_path / "a.log.gz"], tmp_path / "a.trace", BY_ID)
