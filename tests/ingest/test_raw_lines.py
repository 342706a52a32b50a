"""--quarantine-raw: the bad lines themselves, for nobody else's eyes, and only when asked for."""

import gzip
import json
import os
import stat

import pytest

from agentctl.errors import BadRecordsError, OutputError, UsageError
from agentctl.ingest.build import IngestOptions, ingest

GOOD = b'{"timestamp": 0, "input_length": 40, "output_length": 1, "hash_ids": [1, 2, 3]}\n'
BAD = [
    '{"timestamp": "secret"',
    '{"input_length": -3, "output_length": 1, "timestamp": 1, "x": "secret"}',
    "caf\\xe9",
]
LOG = GOOD + BAD[0].encode() + b"\n" + GOOD + b"\n" + BAD[1].encode() + b"\n" + b"caf\xe9\n" + GOOD


def run(tmp_path, data=LOG, log="log.jsonl", **options):
    (tmp_path / log).write_bytes(data)
    options = {"block_tokens": 16, "format": "mooncake", "quarantine_raw": tmp_path / "raw.jsonl"} | options
    return ingest([tmp_path / log], tmp_path / "a.trace", IngestOptions(**options))


def written(tmp_path) -> list[dict]:
    return [json.loads(line) for line in (tmp_path / "raw.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_every_bad_line_is_there_with_its_place_and_reason(tmp_path, pack):
    run(tmp_path, pack(LOG), max_bad=9)
    assert [(row["line"], row["text"]) for row in written(tmp_path)] == list(zip((2, 5, 6), BAD, strict=True))
    assert [row["reason"] for row in written(tmp_path)] == ["wrong_type", "out_of_range", "invalid_utf8"]
    assert {row["file"] for row in written(tmp_path)} == {"log.jsonl"}


def test_nobody_else_can_read_it(tmp_path):
    before = os.umask(0)
    try:
        run(tmp_path, max_bad=9)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "raw.jsonl").stat().st_mode) == 0o600


def test_it_is_written_when_the_budget_is_exceeded_too_and_the_text_stays_out_of_everything_else(tmp_path):
    with pytest.raises(BadRecordsError) as error:
        run(tmp_path)
    assert len(written(tmp_path)) == 3
    assert "secret" not in str(error.value)
    assert "secret" not in (tmp_path / "a.quarantine.jsonl").read_text()


def test_without_the_flag_there_is_no_such_file(tmp_path):
    run(tmp_path, max_bad=9, quarantine_raw=None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.quarantine.jsonl", "a.trace", "log.jsonl"]


def test_a_json_document_is_counted_in_its_records(tmp_path):
    records = [json.loads(GOOD), {"timestamp": "secret"}, json.loads(GOOD) | {"timestamp": 2}]
    run(tmp_path, json.dumps(records, indent=1).encode(), max_bad=9, json_document=True)
    (row,) = written(tmp_path)
    assert (row["line"], json.loads(row["text"])) == (2, records[1])


def test_an_older_file_is_not_replaced_unasked(tmp_path):
    (tmp_path / "raw.jsonl").write_text("mine")
    with pytest.raises(OutputError, match="already exists"):
        run(tmp_path, max_bad=9)
    assert (tmp_path / "raw.jsonl").read_text() == "mine"


def test_it_may_not_lie_in_the_dataset_nor_come_from_a_pipe(tmp_path):
    with pytest.raises(UsageError, match="inside the dataset"):
        run(tmp_path, quarantine_raw=tmp_path / "a.trace" / "raw.jsonl")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="cannot be read twice"):
        ingest(
            [tmp_path / "pipe"], tmp_path / "a.trace", IngestOptions(quarantine_raw=tmp_path / "raw.jsonl")
        )
