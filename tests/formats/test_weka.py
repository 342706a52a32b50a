"""Weka: sessions unfolded, sub-agents put at their time, one bad request costing itself."""

import gzip
import json
from pathlib import Path

import pytest

SMALL = Path(__file__).parents[2] / "sample_traces" / "weka_small.jsonl.gz"


def request(t: float, blocks: int = 1, **changes) -> dict:
    return {
        "t": t, "type": "n", "model": "m", "in": 64 * blocks + 5, "out": 7, "hash_ids": list(range(blocks)),
        "input_types": ["text"], "stop": "tool_use", "api_time": 2.0, "think_time": 1.0,
    } | changes  # fmt: skip


def sub_agent(t: float, *requests: dict, **changes) -> dict:
    return {"t": t, "type": "subagent", "agent_id": "agent_001", "requests": list(requests)} | changes


def session(*requests: dict, **changes) -> dict:
    return {"id": "s1", "block_size": 64, "hash_id_scope": "local", "requests": list(requests)} | changes


def arrivals(log) -> dict[str, float]:
    return {row["request_id"]: row["arrival_ns"] / 1e9 for row in log.rows}


def test_every_field_finds_its_column(read):
    log = read(
        [
            session(
                request(0.0, think_time=0.0),
                request(9.0, 3, type="s", ttft=0.5, stop="", api_time=None, think_time=None, out=0),
            )
        ]
    )
    first, second = log.rows
    assert (log.report.format, log.report.time_origin, log.report.hash_scope) == (
        "weka",
        "session",
        "session",
    )
    assert first["request_id"] == first["link"] == "s1/0"
    assert (first["session_id"], first["model"], first["finish_reason"]) == ("s1", "m", "tool_use")
    assert (first["prompt_tokens"], first["output_tokens"], first["e2e_s"]) == (69, 7, 2.0)
    assert (first["stream"], first["ttft_s"], first["block_tokens"]) == (False, None, 64)
    assert first["think_s"] is None  # nothing comes before it
    assert (second["stream"], second["ttft_s"], second["finish_reason"]) == (True, 0.5, None)
    assert (second["e2e_s"], second["think_s"], second["output_tokens"]) == (None, None, 0)
    assert second["arrival_ns"] == 9_000_000_000
    assert len(second["chain"]) == 3


def test_ids_of_two_sessions_never_meet(read):
    log = read(
        [session(request(0.0, 4)), session(request(0.0, 4), id="s2"), session(request(0.0, 2), id="s3")]
    )
    one, two, three = (set(chain) for chain in log.column("chain"))
    assert len(one) == len(two) == 4
    assert one.isdisjoint(two) and one.isdisjoint(three)


def test_ids_of_one_session_do_meet_sub_agents_included(read):
    log = read([session(request(0.0, 4), sub_agent(5.0, request(0.0, 3)), request(90.0, 5))])
    main, inner, later = log.column("chain")
    assert inner == main[:3] == later[:3]


def test_ids_of_global_scope_stay_as_they_are(read):
    log = read(
        [session(request(0.0, 2), hash_id_scope="global"), session(request(0.0, 2), hash_id_scope="global")]
    )
    assert log.report.hash_scope == "global"
    assert log.column("chain") == [[0, 1], [0, 1]]


def test_a_completed_sub_agent_starts_when_its_spawner_ends_not_when_its_result_is_back(read, data):
    """Three sub-agents run side by side from 19.47 s; the answer that spawned them ended at 18.78 s."""
    log = read(data / "weka" / "trace_0277.json.gz")
    start = arrivals(log)
    for agent in ("agent_001", "agent_002", "agent_003"):
        assert start[f"trace_0277/{agent}/0"] == pytest.approx(19.47, abs=0.02)
    assert start["trace_0277/agent_004/0"] == pytest.approx(385.6, abs=0.02)
    ends = {
        agent: max(row["arrival_ns"] / 1e9 + row["e2e_s"] for row in log.rows if row["agent_path"] == agent)
        for agent in ("agent_001", "agent_002", "agent_003")
    }
    assert max(ends.values()) < start["trace_0277/1"] == 228.0  # the main line waited for all of them
    spawners = {row["agent_path"]: row["spawn_link"] for row in log.rows if row["agent_path"]}
    assert spawners["agent_001"] == spawners["agent_003"] == "trace_0277/0"
    assert spawners["agent_004"] == "trace_0277/6"


def test_a_sub_agent_in_the_background_starts_at_its_time(read):
    log = read([session(request(0.0), sub_agent(2.5, request(0.0), request(4.0), status="async_launched"))])
    assert arrivals(log) == {"s1/0": 0.0, "s1/agent_001/0": 2.5, "s1/agent_001/1": 6.5}


def test_a_duration_that_does_not_reach_back_to_the_spawner_leaves_the_start_where_it_is(read):
    """Older files: t is when the sub-agent was spawned, whatever it lasted."""
    log = read([session(request(60.0), sub_agent(62.5, request(0.0), duration_ms=30_000.0))])
    assert arrivals(log)["s1/agent_001/0"] == 62.5


def test_inner_times_on_the_session_clock_are_not_moved(read):
    inner = [request(62.0), request(70.0)]
    log = read([session(request(60.0), sub_agent(62.5, *inner))])
    assert [arrivals(log)[f"s1/agent_001/{k}"] for k in (0, 1)] == [62.0, 70.0]
    log = read([session(request(60.0), sub_agent(92.5, *inner, duration_ms=30_000.0))])
    assert [arrivals(log)[f"s1/agent_001/{k}"] for k in (0, 1)] == [62.0, 70.0]


def test_the_clock_is_decided_for_each_sub_agent_alone(read):
    log = read(
        [
            session(
                request(60.0),
                sub_agent(62.5, request(0.0)),
                sub_agent(62.6, request(63.0), agent_id="agent_002"),
                sub_agent(62.7, request(63.0), request(0.0), agent_id="agent_003"),
            )
        ]
    )
    start = arrivals(log)
    assert start["s1/agent_001/0"] == 62.5
    assert start["s1/agent_002/0"] == 63.0
    assert (start["s1/agent_003/0"], start["s1/agent_003/1"]) == (125.7, 62.7)  # one below decides for all


def test_a_sub_agent_of_a_sub_agent_has_a_path_of_both(read):
    inner = sub_agent(3.0, request(0.0), agent_id="b")
    log = read([session(request(0.0), sub_agent(2.0, request(0.0), inner, agent_id="a"))])
    assert arrivals(log) == {"s1/0": 0.0, "s1/a/0": 2.0, "s1/a/b/0": 5.0}
    assert log.column("agent_path") == [None, "a", "a/b"]
    assert log.column("spawn_link") == [None, "s1/0", "s1/a/0"]


def test_a_sub_agent_that_goes_on_keeps_its_line(read):
    """The same agent_id twice is one agent line: ids stay unique, think time counts from its last answer."""
    log = read(
        [session(request(0.0), sub_agent(2.0, request(0.0)), request(9.0), sub_agent(11.0, request(0.0)))]
    )
    assert log.column("request_id") == ["s1/0", "s1/agent_001/0", "s1/1", "s1/agent_001/1"]
    assert log.column("think_s") == [None, None, 1.0, 1.0]


@pytest.mark.parametrize(
    ("first", "resumed"),
    [(["text"], False), (["tool_result"], True), (["text", "tool_result"], True), (None, False)],
)
def test_a_session_that_begins_with_a_tool_result_was_resumed(read, first, resumed):
    log = read([session(request(0.0, input_types=first), request(5.0, input_types=["tool_result"]))])
    assert log.column("is_resumed") == [resumed, False]


@pytest.mark.parametrize(
    ("bad", "reason", "path"),
    [
        (request(5.0, **{"in": -1}), "out_of_range", "$.requests[1].in"),
        (request(5.0, **{"in": 6.5}), "wrong_type", "$.requests[1].in"),
        (request(5.0, hash_ids=[1, -1]), "bad_block_id", "$.requests[1].hash_ids"),
        (request(5.0, api_time=-2), "out_of_range", "$.requests[1].api_time"),
        (request(-5.0), "out_of_range", "$.requests[1].t"),
        (request(5.0, type="x"), "wrong_type", "$.requests[1].type"),
        ({"t": 5.0, "type": "n"}, "missing_field", "$.requests[1]"),
        (7, "wrong_type", "$.requests[1]"),
        (sub_agent(5.0, request(0.0, out=-1)), "out_of_range", "$.requests[1].requests[0].out"),
        (sub_agent(5.0, request(0.0, out="x")), "wrong_type", "$.requests[1].requests[0].out"),
    ],
)
def test_a_bad_request_costs_itself_not_its_session(read, bad, reason, path):
    log = read([session(request(0.0), bad, request(9.0)), session(request(0.0), id="s2")])
    assert log.faults == [(1, reason, path)]
    assert [row["session_id"] for row in log.rows] == ["s1", "s1", "s2"]
    assert log.report.n_records == 4


@pytest.mark.parametrize(
    ("changes", "reason", "path"),
    [
        ({"requests": 4}, "wrong_type", "$.requests"),
        ({"block_size": 0}, "out_of_range", "$.block_size"),
        ({"id": ""}, "missing_field", "$.id"),
        ({"hash_id_scope": "global"}, "mixed_hash_scope", "$.hash_id_scope"),
    ],
)
def test_a_bad_session_costs_its_line(read, changes, reason, path):
    log = read([session(request(0.0)), session(request(0.0), **changes), session(request(0.0), id="s3")])
    assert log.faults == [(2, reason, path)]
    assert log.column("session_id") == ["s1", "s3"]


def test_a_list_that_does_not_fit_the_block_size_of_the_file_is_set_aside(read):
    log = read([session(request(0.0, 4), request(3.0, 4, hash_ids=[0, 1]))])
    assert [fault[1] for fault in log.faults] == ["block_count"]


def test_a_session_without_requests_is_counted_as_dropped(read):
    log = read([session(), session(request(0.0), id="s2"), session(sub_agent(1.0), id="s3")])
    assert log.report.dropped == {"session_without_requests": 2}
    assert log.report.n_records == 3


def test_sub_agents_nested_without_end_are_refused(read):
    deep = sub_agent(1.0, request(0.0))
    for _ in range(12):
        deep = sub_agent(1.0, deep)
    log = read([session(request(0.0), deep)])
    assert [reason for _, reason, _ in log.faults] == ["nested_too_deep"]
    assert len(log.rows) == 1


def test_a_pretty_printed_session_is_read_as_a_document(read):
    text = json.dumps(session(request(0.0), request(5.0)), indent=2)
    log = read(text, json_document=True)
    assert (log.report.format, len(log.rows)) == ("weka", 2)
    both = read(json.dumps([session(request(0.0)), session(request(0.0), id="s2")]), json_document=True)
    assert both.column("session_id") == ["s1", "s2"]


def test_a_session_longer_than_the_sample_is_recognised(read):
    log = read([session(*(request(float(k), 2000) for k in range(60)))])
    assert (log.report.format, len(log.rows)) == ("weka", 60)


def test_the_sample_sessions_are_read_whole(read):
    """Held against a plain walk over the JSON."""
    log = read(SMALL)
    calls = []
    for line in gzip.decompress(SMALL.read_bytes()).splitlines():
        for item in (document := json.loads(line))["requests"]:
            assert item["type"] != "subagent"
            calls.append((document["id"], item["in"], item["out"], item["t"], len(item["hash_ids"])))
    got = [
        (
            row["session_id"],
            row["prompt_tokens"],
            row["output_tokens"],
            row["arrival_ns"] / 1e9,
            row["n_blocks"],
        )
        for row in log.rows
    ]
    assert got == calls
    assert not log.faults
