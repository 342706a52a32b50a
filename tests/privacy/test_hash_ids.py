"""--hash-ids: what a log calls its requests, sessions, tenants and engines is not in the dataset."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentctl.analyzers.columns import numbered
from agentctl.engines.forked import Spawned
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.ingest.hidden import HIDDEN, PLAIN
from agentctl.trace import Trace, open_trace

DATA = Path(__file__).parents[1] / "data"
LOGS = {
    "langfuse": [DATA / "formats/langfuse/observations.jsonl.gz"],
    "litellm": [DATA / "formats/litellm/LiteLLM_SpendLogs.csv.gz"],
    "bailian": [DATA / "formats/bailian/trace_blksz_16.jsonl.gz"],
    "dynamo": [DATA / "formats/dynamo/dynamo-request-trace.000000.jsonl.gz"],
    "weka": [DATA / "weka/trace_0277.json.gz"],
    "router": [DATA / "formats/production_stack/router.log.gz"],
}
NAMES = (
    "request_id", "session_id", "parent_request_id", "after_request_id", "tenant", "instance", "agent_path",
)  # fmt: skip


def read(folder: Path, files: list[Path], engine: Spawned | None = None, **options) -> Trace:
    document = len(files) == 1 and files[0].name.endswith(".json.gz")
    return ingest(files, folder, IngestOptions(json_document=document, **options), engine=engine).trace


@pytest.mark.parametrize("name", LOGS)
def test_the_same_names_are_the_same_hashes_and_everything_else_stays(tmp_path, name):
    shown = read(tmp_path / "shown.trace", LOGS[name])
    hidden = read(tmp_path / "hidden.trace", LOGS[name], hash_ids=True, salt=tmp_path / "salt")
    before, after = shown.requests(), hidden.requests()
    for column in before.columns:
        if column in NAMES:
            assert numbered(before[column]).tolist() == numbered(after[column]).tolist(), column
        elif column not in ("source_file", "arrival_s", "end_s"):  # starts of sessions are drawn by name
            assert before[column].cast(str).to_list() == after[column].cast(str).to_list(), column


@pytest.mark.parametrize("name", LOGS)
def test_no_name_of_the_log_is_in_the_dataset(tmp_path, name):
    shown = read(tmp_path / "shown.trace", LOGS[name])
    names = {name for column in NAMES for name in shown.requests()[column].cast(str).drop_nulls()}
    names |= {file.name for file in LOGS[name]}
    hidden = read(tmp_path / "hidden.trace", LOGS[name], hash_ids=True)
    text = repr(hidden.requests().to_dicts()) + (hidden.path / "dataset.json").read_text()
    long = [name for name in names if len(name) > 5 and name in text]
    assert long == [], "and the short ones would be found by chance"


def test_the_same_salt_gives_the_same_bytes_another_one_no_common_name(tmp_path):
    for name, salt in (("one", "s"), ("two", "s"), ("other", "t"), ("third", None)):
        options = {"salt": tmp_path / salt} if salt else {}
        read(tmp_path / f"{name}.trace", LOGS["dynamo"], hash_ids=True, **options)
    for file in ("requests.parquet", "prefix_nodes.parquet", "dataset.json"):
        one, two = (tmp_path / f"{name}.trace" / file for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()

    def names(folder: str) -> set[str]:
        return set(open_trace(tmp_path / f"{folder}.trace").requests()["session_id"])

    assert names("one").isdisjoint(names("other")) and names("one").isdisjoint(names("third"))


def test_the_dataset_says_that_names_are_hashed_and_with_which_salt_but_not_the_salt(tmp_path):
    trace = read(tmp_path / "a.trace", LOGS["bailian"], hash_ids=True, salt=tmp_path / "salt")
    assert trace.meta["names"]["hashed"] is True and len(trace.meta["names"]["salt"]) == 16
    assert (tmp_path / "salt").read_bytes().hex()[:16] not in (trace.path / "dataset.json").read_text()
    plain = read(tmp_path / "b.trace", LOGS["bailian"])
    assert plain.meta["names"] == {"hashed": False, "salt": None}


def test_several_workers_hide_the_same_names_the_same_way(tmp_path):
    parts = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for n, part in enumerate(parts):
        part.write_text(
            "".join(
                f'{{"timestamp": {k}, "input_length": 40, "output_length": {n}, "hash_ids": [1,2,3], '
                f'"session_id": "customer-{k % 3}"}}\n'
                for k in range(9)
            )
        )
    options = {"hash_ids": True, "block_tokens": 16, "salt": tmp_path / "salt", "sessions": "explicit"}
    for name, workers in (("one", 1), ("two", 2)):
        trace = read(tmp_path / f"{name}.trace", parts, Spawned(workers), **options)
        assert trace.requests()["session_id"].n_unique() == 3
    one, two = (tmp_path / f"{name}.trace" / "requests.parquet" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_every_column_of_text_is_either_hidden_or_of_a_kind():
    assert {"request_id", "session_id", "tenant", "instance", "agent_path", "link", "join_id"} <= HIDDEN
    assert not HIDDEN & PLAIN
