"""`agentctl ingest --formats`: every reader, what it can and cannot carry; a file more is a row more."""

import json
import sys

import pytest

import agentctl.formats as package
from agentctl.formats._describe import GROUPS
from agentctl.formats.base import readers
from agentctl.schema import REQUESTS

READER = '''
"""One number a line: when a request came."""
import numpy as np
from agentctl.formats._columns import Columns
NAME, TITLE = "beats", "one arrival in seconds a line, after a line that says beats"
CARRIES, LACKS = ("arrival_s",), "Everything but arrivals."

def recognises(sample):
    return sample.text.startswith(b"beats")

def read(reading):
    for chunk in reading.chunks():
        reading.n_header_lines += 1
        values = [float(line) for line in chunk.data.split()[1:]]
        columns = Columns(reading, chunk, np.arange(2, 2 + len(values)))
        columns.arrival(values, "", "s")
        yield columns.batch()
'''


def listed(agentctl) -> dict[str, dict]:
    done = agentctl("ingest", "--formats", "--json")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert document["schema"] == "agentctl/formats/1"
    return {entry.pop("name"): entry for entry in document["formats"]}


def test_the_list_says_of_every_reader_what_it_can_and_cannot_carry(agentctl):
    found = listed(agentctl)
    assert list(found) == sorted(readers())
    for name, entry in found.items():
        reader = readers()[name]
        assert (entry["title"], entry["lacks"]) == (reader.TITLE, reader.LACKS)
        assert sorted(column for names in entry["carries"].values() for column in names) == sorted(
            reader.CARRIES
        )
    assert found["bailian"]["carries"]["sessions"] == ["parent_request_id", "turn_index"]
    assert found["weka"]["carries"]["blocks"] == ["hash_ids"]
    assert found["azure"]["carries"]["cache"] == []


def test_people_get_the_same_as_tables(agentctl):
    out = agentctl("ingest", "--formats").out
    assert "format\ttimes\ttokens\tcache\tblocks\tsessions\tplacement\n" in out
    assert "bailian\tat\tin out\t\tids\tlink turn\t\n" in out
    for reader in readers().values():
        assert f"{reader.NAME}\t{reader.LACKS}\n" in out


def test_no_column_is_in_two_groups():
    names = [column for group in GROUPS.values() for column in group]
    assert len(set(names)) == len(names)
    assert set(names) <= {*REQUESTS.names, "hash_ids", "prompts"}


@pytest.fixture
def beats(tmp_path, monkeypatch):
    (tmp_path / "readers").mkdir()
    (tmp_path / "readers" / "beats.py").write_text(READER)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path / "readers")])
    yield
    sys.modules.pop("agentctl.formats.beats", None)


def test_one_file_more_is_one_format_more(agentctl, tmp_path, beats):
    assert listed(agentctl)["beats"]["lacks"] == "Everything but arrivals."
    (tmp_path / "log").write_text("beats\n0.5\n2.5\n")
    done = agentctl("ingest", "log", "-o", "x.trace", "--json")
    assert done.code == 0
    assert [file["format"] for file in json.loads(done.out)["files"]] == ["beats"]
    assert json.loads(done.out)["records"]["rows"] == 2


def test_the_list_cannot_be_asked_for_by_accident(agentctl, tmp_path):
    (tmp_path / "log").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,5,1\n")
    done = agentctl("ingest", "log", "-o", "x.trace", "--json", AGENTCTL_FORMATS="1")
    assert json.loads(done.out)["schema"] == "agentctl/ingest/1"
    done = agentctl("ingest")
    assert done.code == 2 and "FILES" in done.err
