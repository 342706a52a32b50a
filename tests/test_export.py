"""An exported trace is the same traffic for whoever reads it, and names nobody."""

from __future__ import annotations

import dataclasses
import gzip
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.datasets import write_dataset

from agentctl.analyzers import reuse
from agentctl.analyzers.base import AnalyzeOptions
from agentctl.analyzers.columns import numbered
from agentctl.analyzers.counted import REACHED_AN_ENGINE
from agentctl.errors import InputError, OutputError, UsageError
from agentctl.export import ExportReport, export_trace
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.schema import STATUSES
from agentctl.trace import Trace

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
LOGS = {
    "mooncake": DATA / "formats/mooncake/trace_512.jsonl",
    "dynamo_mooncake": DATA / "mooncake/dynamo_mooncake_tiny.jsonl",
    "bailian": DATA / "formats/bailian/trace_blksz_16.jsonl.gz",
    "weka": ROOT / "sample_traces/weka_small.jsonl.gz",
    "weka_sub_agents": DATA / "weka/trace_0277.json.gz",
    "azure": DATA / "azure/code_first_200.csv",
    "burstgpt": DATA / "formats/burstgpt/trace.csv",
}
# Only these parts of `analyze`'s reuse depend on the clock, or on what the layouts cannot say.
BY_TIME = ("reuse_interval_s", "reuse_interval_cdf", "working_set")
BY_SCOPE = ("hash_scope", "intra_session", "inter_session", "intra_session_any_holder",
            "inter_session_any_holder")  # fmt: skip
UNSAID = ("chain_conflicts", "excluded_requests")


def lines(path: Path) -> list[dict]:
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    elif path.suffix == ".zst":
        data = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
    return [json.loads(line) for line in data.decode().splitlines()]


def again(trace: Trace, folder: Path, layout=None, **options) -> tuple[ExportReport, Trace]:
    """Export and read in again, the way that the command says."""
    report = export_trace(trace, folder / "shared.jsonl", layout=layout, **options)
    named = report.document["format"] == "mooncake" and report.document["sessions"]
    chosen = IngestOptions(block_tokens=trace.block_tokens, sessions="explicit" if named else "auto")
    read = ingest([folder / "shared.jsonl"], folder / "shared.trace", chosen)
    assert read.document["records"]["quarantined"] == 0
    return report, read.trace


def shareable(trace: Trace):
    rows = trace.requests()
    return rows.filter(rows["status"].cast(str).is_in(REACHED_AN_ENGINE) & (rows["prompt_tokens"] > 0))


def same_traffic(one: Trace, other: Trace, with_sessions: bool) -> None:
    before, after = shareable(one), other.requests()
    names = ["prompt_tokens", "output_tokens", "n_blocks", *(["turn_index"] if with_sessions else [])]
    for name in names:
        assert before[name].to_list() == after[name].to_list(), name
    if with_sessions:
        assert numbered(before["session_id"]).tolist() == numbered(after["session_id"]).tolist()
    said, heard = (dataclasses.asdict(reuse.analyze(trace, AnalyzeOptions())) for trace in (one, other))
    skip = {*BY_TIME, *UNSAID, *(BY_SCOPE if said["hash_scope"] != "global" else ())}
    skip |= {"reason", "block_tokens"} if said["reason"] else set()  # no blocks: unknown either way
    skip |= set() if with_sessions else {"by_turn", *BY_SCOPE}
    assert {k: v for k, v in said.items() if k not in skip} == {
        k: v for k, v in heard.items() if k not in skip
    }


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> dict[str, Trace]:
    folder = tmp_path_factory.mktemp("datasets")
    return {name: ingest([path], folder / f"{name}.trace").trace for name, path in LOGS.items()}


@pytest.mark.parametrize("layout", [None, "bailian", "mooncake"])
@pytest.mark.parametrize("name", LOGS)
def test_read_in_again_requests_sessions_turns_blocks_reuse_and_lru_curve_are_the_same(
    traces, name, layout, tmp_path
):
    report, read = again(traces[name], tmp_path, layout)
    assert report.document["requests"] == read.n_requests == shareable(traces[name]).height
    same_traffic(traces[name], read, report.document["sessions"] is not None)


@pytest.mark.parametrize("name", LOGS)
def test_a_request_keeps_its_parent_unless_the_link_only_holds_the_session_together(traces, name, tmp_path):
    report, read = again(traces[name], tmp_path, "bailian")
    before, after = shareable(traces[name]), read.requests()

    def parents(rows):
        row_of = {id: row for row, id in enumerate(rows["request_id"])}
        return [row_of.get(parent, -1) for parent in rows["parent_request_id"]]

    differ = sum(a != b for a, b in zip(parents(before), parents(after), strict=True))
    assert differ <= report.document["linked_to_keep_the_session"]


def small(folder: Path, **changes) -> Trace:
    """Session a of two turns with an answer of unknown length and a sub-agent, b without blocks, c failed."""
    return write_dataset(
        folder / "a.trace",
        [
            {"arrival_s": 5.25, "session_id": "a", "request_id": "r-a1", "prompt_tokens": 20,
             "blocks": [7, 8], "output_tokens": 5, "tenant": "acme", "model": "m-secret",
             "instance": "10.0.0.1"},
            {"arrival_s": 6.0, "session_id": "c", "request_id": "r-c", "blocks": [7, 9], "status": "error"},
            {"arrival_s": 6.5, "session_id": "b", "request_id": "r-b", "prompt_tokens": 9,
             "output_tokens": 1},
            {"arrival_s": 7.0, "session_id": "a", "request_id": "r-sub", "blocks": [11], "agent_path": "sub",
             "output_tokens": 2},
            {"arrival_s": 7.875, "session_id": "a", "request_id": "r-a2", "blocks": [7, 8, 12],
             "prompt_tokens": 48},
            {"arrival_s": 8.0, "session_id": "d", "request_id": "r-d"},
        ],
        block_tokens=16,
        **changes,
    )  # fmt: skip


def test_every_field_of_a_small_trace_as_it_is_written(tmp_path):
    report = export_trace(small(tmp_path), tmp_path / "x.jsonl")
    assert lines(tmp_path / "x.jsonl") == [
        {"chat_id": 1, "parent_chat_id": -1, "timestamp": 0, "input_length": 20, "output_length": 5,
         "turn": 1, "hash_ids": [1, 2]},
        {"chat_id": 2, "parent_chat_id": -1, "timestamp": 1, "input_length": 9, "output_length": 1,
         "turn": 1},
        {"chat_id": 3, "parent_chat_id": 1, "timestamp": 1, "input_length": 16, "output_length": 2,
         "turn": 1, "hash_ids": [3]},
        {"chat_id": 4, "parent_chat_id": 1, "timestamp": 2, "input_length": 48, "output_length": None,
         "turn": 2, "hash_ids": [1, 2, 4]},
    ]  # fmt: skip
    document = report.document
    assert document["left_out"] == {"status error": 1, "unknown prompt_tokens": 1}
    counts = ("requests", "sessions", "multi_turn", "blocks", "unknown_blocks", "unknown_output",
              "sub_agent_requests", "linked_to_keep_the_session")  # fmt: skip
    assert [document[name] for name in counts] == [4, 2, 1, 4, 1, 1, 1, 1]


def test_the_mooncake_layout_of_the_same(tmp_path):
    export_trace(small(tmp_path), tmp_path / "x.jsonl", layout="mooncake", time_resolution_s=0.5)
    assert lines(tmp_path / "x.jsonl")[2:] == [
        {"timestamp": 1500, "input_length": 16, "output_length": 2, "session_id": 1, "turn": 0,
         "hash_ids": [3]},
        {"timestamp": 2500, "input_length": 48, "output_length": None, "session_id": 1, "turn": 1,
         "hash_ids": [1, 2, 4]},
    ]  # fmt: skip


def test_an_unknown_output_length_is_still_unknown_when_read_again(tmp_path):
    _, read = again(small(tmp_path), tmp_path)
    assert read.requests()["output_tokens"].to_list() == [5, 1, 2, None]


def test_a_trace_without_sessions_is_written_without_any(tmp_path):
    trace = write_dataset(tmp_path / "a.trace", [{"arrival_s": 1.0, "prompt_tokens": 3, "output_tokens": 1}])
    report = export_trace(trace, tmp_path / "x.jsonl")
    assert lines(tmp_path / "x.jsonl") == [{"timestamp": 0, "input_length": 3, "output_length": 1}]
    assert (report.document["format"], report.document["sessions"]) == ("mooncake", None)


def test_a_retry_of_a_first_turn_stays_in_its_session_and_gets_no_parent(tmp_path):
    first = {"session_id": "a", "blocks": [1, 2], "turn_index": 0, "output_tokens": 1}
    rows = [
        {**first, "arrival_s": 0.0, "status": "aborted", "parent_request_id": None},
        {**first, "arrival_s": 3.0, "attempt": 1, "parent_request_id": None},
    ]
    report, read = again(write_dataset(tmp_path / "a.trace", rows, block_tokens=16), tmp_path)
    assert report.document["retries"] == 1
    assert read.requests()["session_id"].n_unique() == 1
    assert read.requests()["turn_index"].to_list() == [0, 0]
    assert read.requests()["parent_request_id"].to_list() == [None, None]


def test_nothing_that_names_anybody_is_in_the_file(tmp_path):
    export_trace(small(tmp_path, meta={"name": "acme"}), tmp_path / "x.jsonl")
    text = (tmp_path / "x.jsonl").read_text()
    for name in ("acme", "secret", "10.0.0.1", "r-", "sub", "test", '"a"', "error"):
        assert name not in text
    keys = {"chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "turn", "hash_ids"}
    assert {key for line in lines(tmp_path / "x.jsonl") for key in line} == keys


def test_the_logs_own_block_ids_are_not_in_the_file(tmp_path, traces):
    export_trace(traces["weka"], tmp_path / "x.jsonl")
    used = [id for line in lines(tmp_path / "x.jsonl") for id in line["hash_ids"]]
    assert list(dict.fromkeys(used)) == list(range(1, max(used) + 1)), "numbered in the order of first use"


def test_times_are_cut_never_moved_by_more_and_keep_their_order(tmp_path, traces):
    for resolution_s in (0.001, 0.25, 1.0, 60.0):
        export_trace(traces["weka"], tmp_path / "x.jsonl", time_resolution_s=resolution_s, force=True)
        cut = [line["timestamp"] for line in lines(tmp_path / "x.jsonl")]
        arrival = traces["weka"].requests(["arrival_s"])["arrival_s"].to_list()
        assert cut == sorted(cut)
        for was, now in zip(arrival, cut, strict=True):
            assert -1e-6 <= was - arrival[0] - now < resolution_s
            assert abs(now / resolution_s - round(now / resolution_s)) < 1e-6


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst"])
def test_the_same_trace_gives_the_same_bytes_and_compression_loses_nothing(tmp_path, traces, suffix):
    for name in ("one", "two"):
        report = export_trace(traces["weka"], tmp_path / f"{name}.{suffix}")
    assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"two.{suffix}").read_bytes()
    assert len(lines(tmp_path / f"one.{suffix}")) == report.document["requests"] == 155


def test_an_existing_file_is_kept_unless_told_otherwise(tmp_path):
    (tmp_path / "x.jsonl").write_text("mine")
    with pytest.raises(OutputError, match="already exists"):
        export_trace(small(tmp_path), tmp_path / "x.jsonl")
    assert (tmp_path / "x.jsonl").read_text() == "mine"


@pytest.mark.parametrize("resolution_s", [0.0, -1.0, float("nan"), float("inf"), 1e-9])
def test_a_resolution_that_is_none_is_refused(tmp_path, resolution_s):
    with pytest.raises(UsageError, match="--time-resolution"):
        export_trace(small(tmp_path), tmp_path / "x.jsonl", time_resolution_s=resolution_s)


def test_a_trace_without_prompt_lengths_cannot_be_shared(tmp_path):
    with pytest.raises(InputError, match="no request to share"):
        export_trace(write_dataset(tmp_path / "a.trace", [{"arrival_s": 0.0}]), tmp_path / "x.jsonl")


# With ids for partial blocks there is no prompt without an id.
CHAINS = [st.one_of(st.none(), st.lists(st.integers(1, 3), min_size=least, max_size=4)) for least in (0, 1)]


@st.composite
def datasets(draw) -> list[dict]:
    """Rows in any mix: ties, partial tails, unknown lengths and chains, failures, sub-agents, odd parents."""
    rows: list[dict] = []
    has_tails = draw(st.booleans())  # one rule for all lists, as in a log
    for n in range(draw(st.integers(1, 10))):
        blocks, tail = draw(CHAINS[has_tails]), draw(st.integers(0, 15))
        if blocks is None:
            prompt = draw(st.one_of(st.none(), st.integers(0, 99)))
        else:
            prompt = 16 * len(blocks) - tail if has_tails else max(16 * len(blocks) + tail, 1)
        rows.append(
            {
                "arrival_s": draw(st.integers(0, 40)) / 8,
                "session_id": draw(st.sampled_from("abc")),
                "agent_path": draw(st.sampled_from([None, None, "sub"])),
                "prompt_tokens": prompt,
                "output_tokens": draw(st.sampled_from([None, 0, 7])),
                "status": draw(st.sampled_from([*["ok"] * 5, *STATUSES])),
                "attempt": draw(st.sampled_from([0, 0, 1])),
                "turn_index": draw(st.integers(0, 3)),
                "request_id": f"id-{n}",
                "parent_request_id": draw(st.sampled_from([None, *(row["request_id"] for row in rows)])),
                **({} if blocks is None else {"blocks": blocks}),
            }
        )
    return rows


@settings(max_examples=60, deadline=None)
@given(datasets(), st.sampled_from([None, "bailian", "mooncake"]))
def test_any_trace_that_can_be_shared_is_the_same_traffic_when_read_again(rows, layout):
    with tempfile.TemporaryDirectory() as name:
        trace = write_dataset(Path(name) / "a.trace", rows, block_tokens=16)
        if not shareable(trace).height:
            return
        report, read = again(trace, Path(name), layout)
        assert sum(report.document["left_out"].values()) + read.n_requests == trace.n_requests
        same_traffic(trace, read, report.document["sessions"] is not None)
