"""Dynamo: every column of the truth that its trace holds, the names of all versions, exact 64-bit hashes."""

import gzip
import json

import pytest
from oracles.truth import dataset, differences, expected

from agentctl.engines.forked import Spawned
from agentctl.formats import dynamo
from agentctl.ingest.build import ingest

# What the two renderings can say, with the error that they allow: arrivals are cut to 1 ms.
READ = {
    "prompt_tokens": 0, "output_tokens": 0, "cached_tokens": 0, "ttft_s": 6e-7, "e2e_s": 6e-7, "model": 0,
    "status": 0,
}  # fmt: skip
INGESTED = READ | {
    "session_id": 0, "turn_index": 0, "attempt": 0, "parent_request_id": 0, "gap_s": 2.1e-3, "gap_kind": 0,
    "arrival_unix_s": 1.1e-3,
}  # fmt: skip
COMPACT = {"prompt_tokens": 0, "output_tokens": 0, "e2e_s": 1.1e-3}

FULL = "dynamo/dynamo-request-trace.000000.jsonl.gz"
FREE = "dynamo/context_free.000000.jsonl.gz"


def event(request_id: str = "r1", context: dict | None = None, **changes) -> dict:
    """One request_end of a request of 100 tokens, which arrived at 1,000 s."""
    request = {"request_id": request_id, "request_received_ms": 10**6, "input_tokens": 100} | changes
    event = {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": 10**6 + 500,
    }
    return event | {"request": request} | ({"agent_context": context} if context else {})


def replay(hashes: list[int], tokens: int = 100, size: int = 64) -> dict:
    return {"trace_block_size": size, "input_length": tokens, "input_sequence_hashes": hashes}


def test_the_rendering_gives_the_truth_that_it_carries(read, data, served):
    log = read(data / "formats" / FULL)
    assert (log.report.format, log.report.time_origin) == ("dynamo", "absolute")
    assert differences(log.rows, expected(served), READ) == []
    assert log.report.dropped == {"tool_event": 135} and log.faults == []
    truth = expected(served)
    for got in log.rows:
        true = truth[got["request_id"]]
        assert 0 <= true["arrival_unix_s"] - got["arrival_ns"] / 1e9 < 1.1e-3  # cut, not rounded
        assert len(got["chain"]) == -(-true["prompt_tokens"] // 64)
        assert got["finish_reason"] == (true["finish_reason"] or "cancelled")
        assert got["join_id"] == f"xr-{got['request_id'][:12]}"


def test_a_whole_ingest_finds_sessions_turns_attempts_and_gaps(data, tmp_path, served):
    ingest([data / "formats" / FULL], tmp_path / "a.trace")
    assert differences(dataset(tmp_path / "a.trace"), expected(served), INGESTED) == []


def test_rows_without_a_session_are_compact(read, data, served):
    log = read(data / "formats" / FREE)
    assert differences(log.rows, expected(served), COMPACT) == []
    assert {row["block_tokens"] for row in log.rows} == {64}
    chains = {row["request_id"]: row["chain"] for row in read(data / "formats" / FULL).rows}
    assert {row["request_id"]: row["chain"] for row in log.rows} == chains


def test_a_reader_gives_what_it_says(read):
    worker = {"prefill_worker_id": 7, "decode_worker_id": 9}
    times = {"ttft_ms": 5, "total_time_ms": 9, "prefill_wait_time_ms": 1, "prefill_time_ms": 4}
    finish = {"finish_reason": "stop"}
    full = event(
        context={"session_id": "s"}, output_tokens=1, cached_tokens=64, model="m", worker=worker, **times,
        finish_reason_metadata=finish, replay=replay([1, 2]),
    )  # fmt: skip
    log = read([full, event("r2", {"session_id": "t", "parent_session_id": "s"})])
    # ingest makes sessions and agents of the lines
    made = {"agent_line": "session_id", "parent_agent_line": "agent_path"}
    assert {made.get(name, name) for name in log.carried} == set(dynamo.CARRIES)


def test_hashes_are_exact_up_to_64_bits(read, data):
    top = [2**64 - 1, 2**63, 2**53 + 1, 2**32 + 5][:2]
    log = read([event(replay=replay(top)), event("r2", replay=replay([5, 2**32 + 5]))])
    assert log.column("chain") == [top, [5, 2**32 + 5]]
    text = gzip.decompress((data / "formats" / FULL).read_bytes()).decode()
    chains = [
        row["request"]["replay"]["input_sequence_hashes"]
        for row in map(json.loads, text.splitlines())
        if row["event_type"] == "request_end"
    ]
    assert read(data / "formats" / FULL).column("chain") == chains
    assert sum(value > 2**63 for chain in chains for value in chain) > 1000


@pytest.mark.parametrize(
    ("child", "main"),
    [
        ({"session_id": "c", "parent_session_id": "m"}, {"session_id": "m"}),
        (
            {"session_id": "run", "trajectory_id": "c", "parent_trajectory_id": "m"},
            {"session_type_id": "x", "session_id": "run", "trajectory_id": "m"},
        ),
        (
            {"workflow_id": "run", "program_id": "c", "parent_program_id": "m"},
            {"workflow_type_id": "x", "workflow_id": "run", "program_id": "m"},
        ),
    ],
)
def test_sub_agents_are_in_the_session_of_the_agent_that_started_them(tmp_path, child, main):
    """In every version's names, and in any order of shards."""
    (tmp_path / "x.000000.jsonl").write_text(json.dumps(event("r1", child)) + "\n")
    (tmp_path / "x.000001.jsonl").write_text(
        json.dumps(event("r2", main, request_received_ms=10**6 + 1)) + "\n"
    )
    ingest(sorted(tmp_path.glob("x.*")), tmp_path / "a.trace")
    rows = dataset(tmp_path / "a.trace")
    session = "run" if "run" in main.values() else "m"
    assert [(row["session_id"], row["agent_path"]) for row in rows] == [(session, "c"), (session, None)]


def test_rows_may_be_wrapped(read):
    plain = [event("r1", {"session_id": "s"}, replay=replay([1, 2])), event("r2", replay=replay([1, 3]))]
    wrapped = [{"timestamp": 17, "event": row} for row in plain]
    log = read(wrapped)
    assert log.report.format == "dynamo"
    assert log.rows == read(plain).rows


def test_a_bad_wrapped_row_says_where(read):
    log = read([{"timestamp": 1, "event": event(cached_tokens=-1)}, {"timestamp": 2, "event": event("r2")}])
    assert log.faults == [(1, "out_of_range", "$.event.request.cached_tokens")]


def test_only_requests_become_rows(read):
    others = [
        {"event_type": "tool_start", "tool": {"tool_call_id": "SECRET"}},
        {"event_type": "tool_error"},
        {"event_type": "request_payload", "payload": {"request": {"messages": ["SECRET"]}}},
        {"event_type": "session_sneezed"},
        {"event_type": "request_end"},
        {},
    ]
    log = read([event(), *({"schema": "dynamo.request.trace.v1", **row} for row in others)], format="dynamo")
    assert log.report.dropped == {"tool_event": 2, "request_payload": 1}
    assert log.faults == [
        (5, "unknown_event", "$.event_type"),
        (6, "missing_field", "$.request"),
        (7, "unknown_event", "$.event_type"),
    ]
    assert log.report.n_records == 7 and len(log.rows) == 1


@pytest.mark.parametrize(
    ("worker", "instance"),
    [
        (None, None),
        ({}, None),
        ({"prefill_worker_id": 2**63 + 7, "decode_worker_id": 9}, str(2**63 + 7)),
        ({"prefill_worker_id": 7, "prefill_dp_rank": 3}, "7.3"),
        ({"decode_worker_id": 9, "decode_dp_rank": 0}, "9.0"),
    ],
)
def test_the_instance_is_the_worker_whose_cache_met_the_prompt(read, worker, instance):
    assert read([event(worker=worker)]).column("instance") == [instance]


@pytest.mark.parametrize(
    ("finish", "status"),
    [
        (None, None),
        ({}, None),
        ({"finish_reason": "length"}, "ok"),
        ({"finish_reason": "cancelled"}, "aborted"),
        ({"finish_reason": "stop", "backend_finish_reason": "cancelled"}, "aborted"),
        ({"backend_finish_reason": "error: out of memory"}, "error"),
    ],
)
def test_finish_reasons_tell_how_it_ended(read, finish, status):
    assert read([event(finish_reason_metadata=finish)]).column("status") == [status]


def test_a_time_that_is_missing_follows_from_the_other_two(read):
    log = read(
        [
            event(total_time_ms=499.5),
            event("r2"),
            event("r3", request_received_ms=None, total_time_ms=250),
            event("r4", request_received_ms=None),
        ]
    )
    assert log.column("arrival_ns") == [10**12, 10**12, 10**12 + 250_000_000]
    assert log.column("e2e_s") == [0.4995, 0.5, 0.25]
    assert log.faults == [(4, "missing_field", "$.request.request_received_ms")]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"input_tokens": 0}, ("out_of_range", "$.request.input_tokens")),
        ({"input_tokens": 99, "replay": replay([1, 2])}, ("total_differs", "$.request.replay.input_length")),
        ({"replay": replay([1, 2, 3])}, ("block_count", None)),
        ({"replay": replay([1, 2], size=0)}, ("out_of_range", "$.request.replay.trace_block_size")),
        ({"replay": replay([1, 2**64])}, ("bad_block_id", "$.request.replay.input_sequence_hashes")),
        ({"replay": replay([1, -1])}, ("bad_block_id", "$.request.replay.input_sequence_hashes")),
        ({"replay": replay([1, 1.5])}, ("bad_block_id", "$.request.replay.input_sequence_hashes")),
        ({"ttft_ms": -1}, ("out_of_range", "$.request.ttft_ms")),
        ({"request_id": None}, ("wrong_type", "$.request.request_id")),
    ],
)
def test_a_bad_value_costs_its_record_only(read, changes, fault):
    log = read([event("r0"), event() | {"request": event()["request"] | changes}, event("r2")])
    assert log.faults == [(2, *fault)]
    assert log.column("request_id") == ["r0", "r2"]


def test_requests_without_hashes_are_kept_and_their_reuse_is_unknown(read):
    log = read([event(replay=replay([1, 2])), event("r2"), event("r3", input_tokens=None)])
    assert log.column("chain") == [[1, 2], None, None]
    assert log.column("prompt_tokens") == [100, 100, None]
    assert log.column("block_tokens") == [64, None, None]


def test_shards_in_any_order_give_the_same_bytes(data, tmp_path):
    lines = gzip.decompress((data / "formats" / FULL).read_bytes()).splitlines(keepends=True)
    shards = []
    for k in range(3):
        shards.append(tmp_path / f"t.00000{k}.jsonl.gz")
        shards[-1].write_bytes(gzip.compress(b"".join(lines[k * 170 : (k + 1) * 170]), mtime=0))
    ingest(shards, tmp_path / "a.trace")
    ingest(shards[::-1], tmp_path / "b.trace", engine=Spawned(3))
    for name in ("dataset.json", "requests.parquet", "prefix_nodes.parquet"):
        assert (tmp_path / "a.trace" / name).read_bytes() == (tmp_path / "b.trace" / name).read_bytes()
