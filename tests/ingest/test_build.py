"""The whole of ingest: the same rows in any split, nothing lost, nothing replaced by accident."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from agentctl.engines.forked import Spawned
from agentctl.errors import AgentctlError, BadRecordsError, InputError
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.trace import open_trace

MOONCAKE = Path(__file__).parents[2] / "sample_traces" / "mooncake_conversation.jsonl.gz"
FILES = ("dataset.json", "requests.parquet", "prefix_nodes.parquet")


def rows(n: int, start: int = 0) -> list[str]:
    """n requests of two sessions with 16-token blocks; ids of the two never meet."""
    lines = []
    for k in range(start, start + n):
        session, turn = k % 2, k // 2
        ids = [session * 10_000 + block for block in range(turn + 3)]
        prompt = 16 * (turn + 2) + 5
        row = {"timestamp": 10 * k, "input_length": prompt, "output_length": 9, "hash_ids": ids}
        lines.append(json.dumps(row))
    return lines


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def test_shards_in_any_order_and_any_number_of_workers_give_the_same_bytes(tmp_path):
    shards = [write(tmp_path / f"part{k}.jsonl", rows(40, 40 * k)) for k in range(3)]
    ingest(shards, tmp_path / "a.trace")
    ingest(shards[::-1], tmp_path / "b.trace")
    ingest(shards, tmp_path / "c.trace", engine=Spawned(3))
    assert content(tmp_path / "a.trace") == content(tmp_path / "b.trace") == content(tmp_path / "c.trace")


def test_every_chain_can_be_read_back_from_the_tree(tmp_path):
    lines = rows(30)
    trace = ingest([write(tmp_path / "log.jsonl", lines)], tmp_path / "a.trace").trace
    tree = trace.tree
    tips = trace.requests(["tip_node"])["tip_node"]
    for line, tip in zip(lines, tips, strict=True):
        chain, node = [], tip
        while node:
            chain.append(int(tree.hash[node]))
            node = tree.parent[node]
        assert chain[::-1] == json.loads(line)["hash_ids"]
        assert tree.depth[tip] == len(chain)


def test_nodes_are_numbered_in_order_of_first_use(tmp_path):
    tree = ingest([MOONCAKE], tmp_path / "a.trace").trace.tree
    assert np.all(tree.parent[1:] < np.arange(1, tree.parent.size))
    assert np.all(np.diff(tree.first_row[1:]) >= 0)
    assert tree.parent.size == 182_790 + 1


def test_a_chain_that_the_ids_alone_would_merge_is_kept_apart_and_counted(tmp_path):
    lines = [
        '{"timestamp": 0, "input_length": 32, "output_length": 1, "hash_ids": [1, 9]}',
        '{"timestamp": 1, "input_length": 32, "output_length": 1, "hash_ids": [2, 9]}',
    ]
    trace = ingest(
        [write(tmp_path / "a.jsonl", lines)], tmp_path / "a.trace", IngestOptions(block_tokens=16)
    ).trace
    assert trace.meta["chain_conflicts"] == 1
    assert trace.requests(["tip_node"])["tip_node"].n_unique() == 2


def test_ids_that_differ_only_above_bit_31_stay_apart(tmp_path):
    """As in ai-dynamo/dynamo PR 12046, where they were cut to 32 bits."""
    low, high = 5, 5 + (1 << 40)
    lines = [
        f'{{"timestamp": {k}, "input_length": 16, "output_length": 1, "hash_ids": [{id_}]}}'
        for k, id_ in enumerate((low, high, low))
    ]
    trace = ingest(
        [write(tmp_path / "a.jsonl", lines)], tmp_path / "a.trace", IngestOptions(block_tokens=16)
    ).trace
    assert trace.requests(["tip_node"])["tip_node"].to_list() == [1, 2, 1]


def test_records_and_lines_are_conserved(tmp_path):
    lines = [*rows(6), "", '{"timestamp": 1}', "not json", *rows(2, 6)]
    document = ingest(
        [write(tmp_path / "log.jsonl", lines)], tmp_path / "a.trace", IngestOptions(max_bad=2)
    ).document
    records, (file,) = document["records"], document["files"]
    assert (
        records["read"] == 10 == records["rows"] + records["quarantined"] + sum(records["dropped"].values())
    )
    assert (records["rows"], records["quarantined"]) == (8, 2)
    assert file["lines"] == 11
    assert [file[k] for k in ("record_lines", "blank_lines", "header_lines", "quarantined_lines")] == [
        8,
        1,
        0,
        2,
    ]


def test_bad_records_have_a_place_and_a_reason_but_no_text(tmp_path):
    lines = [*rows(2), '{"timestamp": 1, "input_length": "SECRET"}', *rows(2, 2)]
    log = write(tmp_path / "log.jsonl", lines)
    with pytest.raises(BadRecordsError, match=r"log\.jsonl:3: wrong_type") as error:
        ingest([log], tmp_path / "a.trace")
    assert error.value.hint is not None and "--max-bad 1" in error.value.hint
    assert not (tmp_path / "a.trace").exists()
    quarantine = (tmp_path / "a.quarantine.jsonl").read_text()
    place = json.loads(quarantine.splitlines()[1])
    assert (place["file"], place["line"], place["byte_offset"]) == (
        "log.jsonl",
        3,
        len("\n".join(lines[:2])) + 1,
    )
    assert place["length"] == len(lines[2])
    assert "SECRET" not in quarantine + str(error.value)


@pytest.mark.parametrize(
    ("budget", "fits"),
    [({}, False), ({"max_bad": 1}, True), ({"max_bad": 0}, False), ({"max_bad_ratio": 0.2}, True),
     ({"max_bad_ratio": 0.1}, False), ({"max_bad": 1, "max_bad_ratio": 0.1}, False)],
)  # fmt: skip
def test_only_the_limits_given_apply_and_none_given_means_none_tolerated(tmp_path, budget, fits):
    log = write(tmp_path / "log.jsonl", [*rows(4), "oops"])
    options = IngestOptions(**budget)
    if fits:
        assert ingest([log], tmp_path / "a.trace", options).trace.n_requests == 4
    else:
        with pytest.raises(BadRecordsError):
            ingest([log], tmp_path / "a.trace", options)


def test_the_block_size_is_the_one_multiple_of_16_that_fits(tmp_path):
    report = ingest([MOONCAKE], tmp_path / "a.trace")
    assert report.trace.block_tokens == 512


def test_several_block_sizes_that_fit_are_an_error_with_its_cure(tmp_path):
    lines = ['{"timestamp": 0, "input_length": 100, "output_length": 1, "hash_ids": [1]}']
    with pytest.raises(InputError, match="several block sizes") as error:
        ingest([write(tmp_path / "a.jsonl", lines)], tmp_path / "a.trace")
    assert "--block-tokens" in str(error.value.hint)


def test_a_list_that_no_block_size_fits_names_its_line(tmp_path):
    """Two ids for 20 tokens among blocks of 512: vllm-project/guidellm PR 948."""
    row = {"timestamp": 0, "input_length": 20, "output_length": 1, "hash_ids": [7, 8]}
    full = {"timestamp": 0, "input_length": 1500, "output_length": 1, "hash_ids": [1, 2, 3]}
    log = write(tmp_path / "a.jsonl", [json.dumps(full), json.dumps(row)])
    with pytest.raises(InputError, match=r"a\.jsonl:2: no block size"):
        ingest([log], tmp_path / "a.trace")
    options = IngestOptions(block_tokens=512, max_bad=1)
    assert ingest([log], tmp_path / "a.trace", options).document["records"]["quarantined_by_reason"] == {
        "block_count": 1
    }


def test_an_empty_list_is_unknown_and_not_zero_blocks(tmp_path):
    lines = [*rows(6), '{"timestamp": 99, "input_length": 40, "output_length": 1, "hash_ids": []}']
    trace = ingest([write(tmp_path / "a.jsonl", lines)], tmp_path / "a.trace").trace
    last = trace.requests(["tip_node", "n_blocks", "hash_kind"]).row(-1)
    assert last == (None, None, None)
    assert any("no block ids" in warning for warning in trace.meta["warnings"])


def test_an_older_dataset_is_kept_unless_force_is_given(tmp_path):
    log = write(tmp_path / "log.jsonl", rows(4))
    ingest([log], tmp_path / "a.trace")
    before = content(tmp_path / "a.trace")
    write(log, rows(6))
    with pytest.raises(AgentctlError, match="already exists"):
        ingest([log], tmp_path / "a.trace")
    assert content(tmp_path / "a.trace") == before
    assert ingest([log], tmp_path / "a.trace", IngestOptions(force=True)).trace.n_requests == 6


def test_the_same_log_twice_is_an_error(tmp_path):
    log = write(tmp_path / "a.jsonl", rows(4))
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    copy = write(tmp_path / "b.jsonl", rows(4))
    with pytest.raises(InputError, match="given twice"):
        ingest([log, packed], tmp_path / "o.trace")
    with pytest.raises(InputError, match="same content"):
        ingest([log, copy], tmp_path / "o.trace")


def test_every_request_is_alone_when_no_sessions_are_wanted(tmp_path):
    trace = ingest([MOONCAKE], tmp_path / "a.trace", IngestOptions(sessions="none")).trace
    table = trace.requests(["session_id", "session_source", "parent_request_id", "turn_index", "origin"])
    assert table["session_id"].n_unique() == trace.n_requests
    assert table["session_source"].unique().to_list() == ["single"]
    assert table["parent_request_id"].null_count() == trace.n_requests
    assert table["turn_index"].max() == 0


def test_a_killed_run_leaves_the_older_dataset_and_the_next_run_completes(tmp_path):
    log, output = tmp_path / "log.jsonl", tmp_path / "a.trace"
    write(log, rows(50))
    ingest([log], output)
    before = content(output)
    write(log, rows(4000))
    command = [sys.executable, "-c", "from agentctl.ingest.build import *; import sys; "
               "ingest([sys.argv[1]], Path(sys.argv[2]), IngestOptions(force=True))"]  # fmt: skip
    for delay in (0.3, 0.6, 0.9, 1.2, 1.5):
        process = subprocess.Popen([*command, str(log), str(output)], stderr=subprocess.DEVNULL)
        time.sleep(delay)
        if process.poll() is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert output.is_dir()
        assert content(output) == before or open_trace(output).n_requests == 4000
    clean = ingest([log], tmp_path / "clean.trace").trace
    ingest([log], output, IngestOptions(force=True))
    assert content(output) == content(clean.path)


def test_polars_reads_back_what_the_schema_promises(tmp_path):
    trace = ingest([MOONCAKE], tmp_path / "a.trace").trace
    table = trace.requests()
    assert table["arrival_s"].is_sorted()
    assert table["request_id"].n_unique() == trace.n_requests
    assert set(table["parent_request_id"].drop_nulls()) <= set(table["request_id"])
    assert table["ttft_s"].null_count() == trace.n_requests  # unknown is null, never 0


def test_a_turn_at_the_very_instant_at_which_the_one_before_ended_overlaps_nothing(tmp_path):
    # 0.1 + 0.2 > 0.3 in floats
    lines = ["who,at,lasts,in,out", "a,0.1,0.2,10,5", "a,0.3,0.4,20,5", "a,0.7,0.1,30,5", "a,0.9,0.1,40,5"]
    names = {"session_id": "who", "arrival_s": "at", "e2e_s": "lasts", "prompt_tokens": "in"}
    options = IngestOptions(map={**names, "output_tokens": "out"})
    trace = ingest([write(tmp_path / "log.csv", lines)], tmp_path / "a.trace", options).trace
    rows = trace.requests(["arrival_s", "end_s", "gap_s", "gap_kind"])
    assert rows["end_s"].to_list()[:3] == [0.3, 0.7, 0.8]
    assert rows["gap_kind"].to_list() == [None, "unknown", "unknown", "unknown"]
    assert rows["gap_s"].to_list() == [None, 0.0, 0.0, 0.1]


def test_lines_that_repeat_another_are_reported_where_the_log_has_no_request_ids(tmp_path):
    lines = rows(6)
    once = ingest([write(tmp_path / "once.jsonl", lines)], tmp_path / "once.trace").trace
    twice = ingest(
        [write(tmp_path / "twice.jsonl", [*lines, lines[2], lines[2]])], tmp_path / "b.trace"
    ).trace
    assert not once.meta["warnings"]
    assert twice.n_requests == 8
    assert any(text.startswith("2 records equal an earlier one") for text in twice.meta["warnings"])
