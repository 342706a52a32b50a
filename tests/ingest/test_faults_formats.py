"""Faults 1, 2, 7, 8, 9, 16 and 27 in every format: junk costs itself and no good record; names are inert."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from oracles.canaries import SECRETS, Poisoned, is_header, poison
from oracles.samples import FORMATS, MORE_OPTIONS, samples

from agentctl.cli.main import main
from agentctl.errors import AgentctlError
from agentctl.formats.base import Sample, readers
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.ingest.options import parse_map

JUNK = {
    "binary": bytes(random.Random(0).randrange(256) for _ in range(600)).replace(b"\n", b"x"),
    "zero bytes": b"\0" * 100,
    "no UTF-8": b'{"id": "caf\xe9", "x": "\xff\xfe"}',
    "lone surrogate": b'{"id": "\\ud800"}',
    "null": b"null",
    "number": b"17",
    "list": b"[1, 2]",
    "empty object": b"{}",
    "deep": b"[" * 5000,
    "deep object": b'{"a":' * 5000,
    "open string": b'{"id": "abc',
    "only quotes": b'"""""""',
    "long": b"y" * (1 << 20),
    "long string": b'{"id": "' + b"z" * (1 << 20) + b'"}',
    "escape": b"\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "carriage return": b"over\rwritten",
    "repr": b"Receive: obj=GenerateReqInput(rid=" + b"(" * 3000,
    "half a time": b"[2026-11-",
}


def options_of(name: str, **more) -> IngestOptions:
    said = MORE_OPTIONS.get(name, [])
    given = {"--year": "2026"} | dict(zip(said[::2], said[1::2], strict=True))
    pairs = [pair for flag, pair in zip(said[::2], said[1::2], strict=True) if flag == "--map"]
    return IngestOptions(format=name, map=parse_map(pairs), year=int(given["--year"]), max_bad=99_999, **more)


def is_lines(sample: bytes) -> bool:
    """Not one JSON document, and no table (whose cells may hold line breaks)."""
    return not Sample(sample, whole=True).is_document and not is_header(sample.split(b"\n")[0].decode())


def rows_of(path: Path, name: str) -> list[dict]:
    """What a log holds, whatever the lines that its records stand on."""
    trace = ingest([path], path.with_suffix(".trace"), options_of(name, sessions="none", force=True)).trace
    changing = ("source_row", "source_file", "session_id", "tip_node", "hash_kind")
    rows = trace.requests().drop(changing).to_dicts()
    for row in rows:  # a name that the log does not give is made of the line
        if str(row["request_id"]).startswith(path.name):
            row["request_id"] = None
    return rows


def with_junk(lines: list[bytes], junk: list[bytes]) -> bytes:
    """A line of junk behind every few lines, the first ones at the very beginning's second line."""
    mixed, step = [], max((len(lines) - 2) // len(junk), 1)
    left = list(junk)
    for at, line in enumerate(lines):
        mixed.append(line)
        if left and at % step == 0 and at + 1 < len(lines):
            mixed.append(left.pop())
    return b"\n".join([*mixed[:-1], *left, mixed[-1]]) + b"\n"


LINES = [name for name in FORMATS if any(is_lines(sample) for sample in samples(name))]


@pytest.mark.parametrize("name", LINES)
def test_lines_of_junk_cost_themselves_and_no_record(tmp_path, name):
    compared = 0
    for sample in samples(name):
        if not is_lines(sample):
            continue
        lines = [line for line in sample.split(b"\n") if line.strip()][:60]
        (tmp_path / "log").write_bytes(b"\n".join(lines) + b"\n")
        try:
            clean = rows_of(tmp_path / "log", name)
        except AgentctlError:
            continue  # no request in this sample
        compared += 1
        (tmp_path / "log").write_bytes(with_junk(lines, list(JUNK.values())))
        assert rows_of(tmp_path / "log", name) == clean
    assert compared or not readers()[name].CARRIES, f"add a sample with a request for {name}"


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("name", FORMATS)
def test_a_file_of_junk_is_one_clear_error(tmp_path, name, junk):
    (tmp_path / "log").write_bytes(JUNK[junk] + b"\n" + JUNK[junk] + b"\n")
    for document in (False, True):
        with pytest.raises(AgentctlError):
            ingest([tmp_path / "log"], tmp_path / "a.trace", options_of(name, json_document=document))
    assert not (tmp_path / "a.trace").exists()


@dataclass
class Hostile(Poisoned):
    """Names that a page, a terminal, its markup or a spreadsheet would obey."""

    def string(self, path: str, text: str) -> str:
        if " " in text:
            return text
        payloads = ("<script>alert(1)</script>", "</script><b>", "[red]x[/red]", "\x1b[31m", "\u202e", "\x00")
        return "=cmd()" + text + payloads[len(text) % len(payloads)]


@pytest.mark.parametrize("name", FORMATS)
def test_27_names_that_want_to_be_obeyed_are_inert(tmp_path, monkeypatch, capfd, name):
    monkeypatch.chdir(tmp_path)
    hostile = poison(samples(name)[0], kind=Hostile)
    Path("log").write_bytes(hostile.good)
    said = ["--format", name, *MORE_OPTIONS.get(name, [])]
    said += ["--json-document"] if hostile.is_document else []
    code = main(["ingest", "log", "-o", "a.trace", "--max-bad", "99999", "-v", *said])
    if code == 0:
        assert main(["analyze", "a.trace", "--html", "a.html", "-v"]) == 0
        page = Path("a.html").read_text()
        assert "<script>alert" not in page and "</script><b>" not in page
        assert "\x1b" not in page and "\u202e" not in page
    out, err = capfd.readouterr()
    assert "unexpected" not in err
    for text in (out, err):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", text)
    for cell in re.split(r"[\t\n]", out):
        assert not cell.startswith("=cmd")


def test_the_secrets_of_the_canaries_are_of_each_kind():
    assert {"authorization", "api_key", "cookie", "user_email", "client_ip"} <= SECRETS.keys()


def test_there_are_formats_of_lines():
    assert len(LINES) >= 10 and set(LINES) <= readers().keys()
