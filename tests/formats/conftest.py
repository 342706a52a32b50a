"""Reads logs with the readers as ingest does, and gives back rows that are easy to compare."""

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from oracles.renderings import read_truth

from agentctl.formats.base import Reading, ReadOptions, reader_named
from agentctl.ingest.quarantine import Place, Quarantine
from agentctl.ingest.read import FileReport, read_file
from agentctl.ingest.source import Source
from agentctl.ingest.trie import Trie

DATA = Path(__file__).parents[1] / "data"

# How ingest names what readers hand over, and what is no column of the dataset.
IN_THE_DATASET = {
    "arrival_ns": "arrival_s", "think_s": "gap_s", "turn_number": "turn_index", "is_resumed": "origin",
    "parent_link": "parent_request_id", "previous_link": "parent_request_id",
}  # fmt: skip
BESIDE_THE_DATASET = {
    "source_row", "chain", "n_blocks", "link", "spawn_link", "join_id", "unit_node", "session_header",
    "is_response_link", "hides_calls", "reply_hash",
}  # fmt: skip
FROM_PROMPTS = {"n_messages", "n_assistant", "n_tools", "cache_group"}  # counted by ingest


@dataclass
class Read:
    rows: list[dict]  # the spooled columns; `chain` is the list of block ids
    report: FileReport

    def column(self, name: str) -> list:
        return [row.get(name) for row in self.rows]

    @property
    def carried(self) -> set[str]:
        """What some row has, in the words of a reader's CARRIES."""
        given = {name for row in self.rows for name, value in row.items() if value is not None}
        chains = "prompts" if "message_node" in given else "hash_ids"
        names = {"tip_node": chains, "message_node": chains} | IN_THE_DATASET
        beside = BESIDE_THE_DATASET | (FROM_PROMPTS if "message_node" in given else set())
        return {names.get(name, name) for name in given} - beside

    @property
    def faults(self) -> list[tuple[int, str, str | None]]:
        """(line, reason, path) of the records set aside."""
        return [(place.line, place.reason, place.json_path) for place in self.places]

    @property
    def places(self) -> list[Place]:
        return self.report.quarantine.places


@pytest.fixture
def read(tmp_path):
    """read(log, format=None, **options): `log` is a path, text, bytes, or a list of JSON objects."""

    def _read(log, format=None, name="log", **options) -> Read:
        path = log if isinstance(log, Path) else tmp_path / name
        if isinstance(log, list):
            log = "\n".join(json.dumps(row) for row in log) + "\n"
        if not isinstance(log, Path):
            path.write_bytes(log.encode() if isinstance(log, str) else log)
        trie, spool = Trie(), tmp_path / "spool.arrow"
        report = read_file(str(path), format, ReadOptions(**options), trie, spool)
        with pa.OSFile(str(spool)) as file:
            rows = pa.ipc.open_file(file).read_all().to_pylist()
        return Read([{**row, "chain": _chain(trie, row.get("tip_node"))} for row in rows], report)

    return _read


def _chain(trie: Trie, tip: int | None) -> list[int] | None:
    if tip is None:
        return None
    chain = []
    while tip:
        chain.append(int(trie.hash[tip]))
        tip = int(trie.parent[tip])
    return chain[::-1]


@pytest.fixture(scope="session")
def truth() -> list[dict]:
    """The requests behind tests/data/formats, numbers as numbers."""
    return read_truth()


@pytest.fixture(scope="session")
def served(truth) -> list[dict]:
    """Those that reached an engine: what logs without errors hold."""
    return [row for row in truth if row["status"] != "error"]


@pytest.fixture
def data() -> Path:
    return DATA


@pytest.fixture
def sent(tmp_path):
    """sent(log, format, **options): the prompts that a reader hands over for `log`, as `read` takes it."""

    def _sent(log, format, **options) -> list:
        path = log if isinstance(log, Path) else tmp_path / "sent"
        if not isinstance(log, Path):
            path.write_text("\n".join(json.dumps(row) for row in log) + "\n")
        source = Source(str(path))
        reading = Reading(source, Quarantine(source.name), ReadOptions(**options))
        return [prompt for batch in reader_named(format).read(reading) for prompt in batch.prompts]

    return _sent
