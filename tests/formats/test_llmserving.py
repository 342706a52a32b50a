"""LLMServingSim's files: measured vLLM runs, workloads with token ids, and sessions of calls and tools.

| column | measured run | workload |
| --- | --- | --- |
| request_id, queue, prefill, decode, ttft, e2e | yes | no |
| arrival | wall clock | from the start |
| prompt, output tokens | yes | yes |
| block chains | no | exact, of any block size, where token ids are given |
| session, turn, gap | no | where calls are sub_requests |
"""

import gzip
import json

import numpy as np
import pytest

from agentctl.ingest.build import IngestOptions, ingest

FOLDER = "llmserving/"


def lines(path):
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


@pytest.mark.parametrize(
    ("name", "ttft_ms"), [("llama", (7097, 9443, 16853)), ("qwen", (1086.0, 138.8, 5182.6))]
)
def test_a_measured_run_has_the_latencies_that_its_authors_report(read, data, name, ttft_ms):
    path = data / FOLDER / f"measured_{name}.jsonl.gz"
    log = read(path)
    assert (log.report.format, log.report.time_origin) == ("llmserving", "absolute")
    assert len(log.rows) == 300 and log.faults == []
    ttft = np.array(log.column("ttft_s")) * 1e3
    got = (ttft.mean(), np.median(ttft), np.quantile(ttft, 0.9))
    assert got == pytest.approx(ttft_ms, rel=1e-3)
    raw = lines(path)
    assert log.column("request_id") == [row["request_id"] for row in raw]
    for row, true in zip(log.rows, raw, strict=True):
        assert row["arrival_ns"] / 1e9 == pytest.approx(true["arrival_time"], abs=1e-6)
        assert (row["prompt_tokens"], row["output_tokens"]) == (true["input_toks"], true["output_toks"])
        assert row["queue_s"] + row["prefill_s"] == pytest.approx(row["ttft_s"])
        assert row["ttft_s"] + row["decode_s"] == pytest.approx(row["e2e_s"])


def test_the_llama_run_has_the_time_per_token_that_its_authors_report(read, data):
    rows = read(data / FOLDER / "measured_llama.jsonl.gz").rows
    assert np.mean([row["decode_s"] / (row["output_tokens"] - 1) for row in rows]) == pytest.approx(
        0.0325, abs=5e-5
    )


@pytest.mark.parametrize("block", [None, 16, 64])
def test_token_ids_give_exactly_the_blocks_that_their_prefixes_have(data, tmp_path, block):
    path = data / FOLDER / "workload_llama_60.jsonl.gz"
    trace = ingest([path], tmp_path / "a.trace", IngestOptions(block_tokens=block, sessions="none")).trace
    size = block or 16
    assert trace.meta["block_tokens"] == size
    assert trace.meta["hash"]["kind"] == "token" and trace.meta["hash"]["salt"] == "ephemeral"
    parent, node_of = trace.tree.parent, {}
    rows = trace.requests().sort("source_row")
    for tip, true in zip(rows["tip_node"], lines(path), strict=True):
        ids, path_ = true["input_tok_ids"], []
        while tip:
            path_.append(tip)
            tip = int(parent[tip])
        for k, node in enumerate(reversed(path_), start=1):
            assert node_of.setdefault(node, tuple(ids[: k * size])) == tuple(ids[: k * size])
        assert len(path_) == len(ids) // size
    assert len(set(node_of.values())) == len(node_of) == trace.tree.parent.size - 1


def test_calls_of_a_session_wait_for_their_tools(read, tmp_path):
    call = {"input_toks": 32, "output_toks": 4, "tool_duration_ns": 2_000_000_000}
    log = [
        {
            "session_id": "s", "arrival_time_ns": 10**9,
            "sub_requests": [call, {**call, "input_toks": 48}, {**call, "tool_duration_ns": 0}],
        },
        {"arrival_time_ns": 0, "sub_requests": [call]},
        {"arrival_time_ns": 0, **call},
    ]  # fmt: skip
    rows = read(log).rows
    assert [row["arrival_ns"] for row in rows] == [10**9, 3 * 10**9, 5 * 10**9, 0, 0]
    assert [row["session_id"] for row in rows] == ["s", "s", "s", "2", None]
    assert [row["turn_number"] for row in rows] == [0, 1, 2, 0, None]
    assert [row["think_s"] for row in rows] == [None, 2.0, 2.0, None, None]
    assert [row["request_id"] for row in rows] == ["s:0", "s:1", "s:2", "2:0", None]


def test_what_is_wrong_is_set_aside_with_its_place(read):
    good = {"input_toks": 2, "output_toks": 1, "arrival_time_ns": 0, "input_tok_ids": [1, 2]}
    log = read(
        [
            good, good, good, good, good,
            {**good, "input_tok_ids": [1, -2]},
            {**good, "input_tok_ids": [1, 1 << 32]},
            {**good, "input_toks": 40},
            {**good, "input_toks": None},
            {**good, "arrival_time_ns": -1},
            {"arrival_time_ns": 0, "sub_requests": []},
            {"arrival_time_ns": 0, "sub_requests": [{"input_toks": 2, "output_toks": 1}, {"input_toks": 2}]},
        ]
    )  # fmt: skip
    assert sorted(log.faults) == [
        (6, "bad_token_id", "$.input_tok_ids"),
        (7, "bad_token_id", "$.input_tok_ids"),
        (8, "token_count", "$.input_tok_ids"),
        (9, "missing_field", "$.input_toks"),
        (10, "out_of_range", "$.arrival_time_ns"),
        (11, "missing_field", "$.sub_requests"),
        (12, "missing_field", "$.sub_requests[1].output_toks"),
    ]
    assert len(log.rows) == 6
