"""What may be wrong with a file: a dataset that is right, or one clear error and no dataset."""

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from agentctl.cli.main import main
from agentctl.errors import InputError
from agentctl.ingest import read as read_module
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.ingest.source import Source

PROGRAM = [sys.executable, "-m", "agentctl.cli.main", "ingest"]
N = 2000


def rows(n: int = N, start: int = 0) -> bytes:
    found = [
        {"timestamp": k, "input_length": 40, "output_length": 2, "hash_ids": [k, k + 1, k + 2]}
        for k in range(start, start + n)
    ]
    return "".join(json.dumps(row) + "\n" for row in found).encode()


def zstd(data: bytes) -> bytes:
    return pa.Codec("zstd").compress(data, asbytes=True)


@dataclass
class Finished:
    code: int
    out: str
    err: str


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """`agentctl ingest ARGUMENTS -o out.trace` in `tmp_path`, in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, stdin: bytes = b"") -> Finished:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        handler = signal.getsignal(signal.SIGTERM)
        code = main(["ingest", "-o", "out.trace", "--block-tokens", "16", *arguments])
        signal.signal(signal.SIGTERM, handler)
        return Finished(code, *capsys.readouterr())

    return run


def failed(done: Finished, folder: Path, *words: str) -> None:
    """Exit 1, one error in words, no traceback, and nothing under the final name."""
    assert (done.code, done.out) == (1, ""), done.err
    assert done.err.startswith("error: ") and "Traceback" not in done.err and "unexpected" not in done.err
    for word in words:
        assert word in done.err
    assert not (folder / "out.trace").exists()
    assert not list(folder.glob("*out*")), "something was left behind"


def n_rows(done: Finished, folder: Path) -> int:
    assert done.code == 0, done.err
    meta = json.loads((folder / "out.trace" / "dataset.json").read_text())
    return meta["records"]["rows"]


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_13_a_truncated_archive_publishes_nothing_and_names_the_last_good_line(tmp_path, command, pack):
    noise = "".join(f'{{"timestamp": {k}, "x": "{os.urandom(200).hex()}"}}\n' for k in range(300)).encode()
    (tmp_path / "log").write_bytes(pack(rows() + noise)[:-20])
    done = command("log", "--max-bad", "100000")
    failed(done, tmp_path, "log (after line ", "truncated")


def test_13_an_older_dataset_survives_a_truncated_archive(tmp_path):
    (tmp_path / "log").write_bytes(rows())
    ingest([tmp_path / "log"], tmp_path / "out.trace", IngestOptions(block_tokens=16))
    before = (tmp_path / "out.trace" / "requests.parquet").read_bytes()
    (tmp_path / "log").write_bytes(gzip.compress(rows())[:-20])
    with pytest.raises(InputError, match="truncated"):
        ingest([tmp_path / "log"], tmp_path / "out.trace", IngestOptions(block_tokens=16, force=True))
    assert (tmp_path / "out.trace" / "requests.parquet").read_bytes() == before


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_14_archives_of_several_members_are_read_whole(tmp_path, pack):
    (tmp_path / "log").write_bytes(pack(rows(500)) + pack(rows(700, 500)) + pack(rows(800, 1200)))
    trace = ingest([tmp_path / "log"], tmp_path / "out.trace", IngestOptions(block_tokens=16)).trace
    assert trace.requests(["source_row"])["source_row"].to_list() == list(range(1, N + 1))


@pytest.mark.parametrize(
    ("name", "pack"),
    [("log.jsonl", gzip.compress), ("log.jsonl", zstd), ("log.gz", bytes), ("log.zst", gzip.compress)],
)
def test_15_what_is_in_a_file_is_told_by_its_bytes(tmp_path, name, pack):
    (tmp_path / name).write_bytes(pack(rows()))
    report = ingest([tmp_path / name], tmp_path / "out.trace", IngestOptions(block_tokens=16))
    assert report.trace.n_requests == N


# A process starts with the peak memory of the one that forked it: a small one must stand between.
MEASURE = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_maxrss, used.ru_utime + used.ru_stime)
sys.exit(code)
"""


@pytest.mark.slow
def test_16_a_small_archive_that_unpacks_to_one_huge_line_costs_that_line(tmp_path):
    """2 GiB in one line; only the record behind and before it are kept, in little memory."""
    member = gzip.compress(b"x" * (1 << 24), 9)
    bomb = gzip.compress(rows(5)) + member * 128 + gzip.compress(b"\n" + rows(5, 5))
    assert len(bomb) < 3 << 20
    (tmp_path / "log.gz").write_bytes(bomb)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *PROGRAM, "-o", "out.trace", "log.gz", "--block-tokens", "16",
         "--max-bad", "1"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rss_kib, cpu_s = done.stdout.split()[-2:]
    assert int(rss_kib) < 400 << 10
    assert float(cpu_s) < 10
    (_, place) = (tmp_path / "out.quarantine.jsonl").read_text().splitlines()
    assert json.loads(place) == {
        "file": "log.gz", "line": 6, "byte_offset": len(rows(5)), "length": 1 << 31,
        "reason": "line_too_long", "json_path": None,
    }  # fmt: skip
    meta = json.loads((tmp_path / "out.trace" / "dataset.json").read_text())
    assert (meta["records"]["rows"], meta["files"][0]["lines"]) == (10, 11)


@pytest.mark.parametrize("data", [b"", b"\n\n  \n", b"\xef\xbb\xbf", gzip.compress(b"")], ids=range(4))
def test_17_a_file_without_a_record_is_an_error(tmp_path, command, data):
    (tmp_path / "log").write_bytes(data)
    failed(command("log"), tmp_path, "log")


def test_17_a_pattern_that_matched_nothing_is_an_error(tmp_path, command):
    failed(command("*.jsonl"), tmp_path, "*.jsonl: cannot be opened")


def test_17_a_folder_is_an_error_that_says_how_to_name_its_files(tmp_path, command):
    (tmp_path / "logs").mkdir()
    failed(command("logs"), tmp_path, "is a folder", "hint: logs/*")


def test_17_a_file_that_cannot_be_read_is_an_error(tmp_path, command):
    path = tmp_path / "log"
    path.write_bytes(rows())
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything: take a file that fails for root as well
        path = Path("/proc/self/mem")
    failed(command(str(path)), tmp_path, "cannot be")


def test_17_no_file_is_a_usage_error(tmp_path, command):
    done = command()
    assert (done.code, done.out) == (2, "")


def test_17_a_pipe_is_read(tmp_path, command):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(rows()))
    writer.start()
    assert n_rows(command("pipe"), tmp_path) == N
    writer.join()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_17_standard_input_is_read(tmp_path, command, pack):
    assert n_rows(command("-", stdin=pack(rows())), tmp_path) == N


@pytest.mark.parametrize("blank", [b"\n\n \n", b"\xef\xbb\xbf"], ids=["blank lines", "a byte order mark"])
def test_17_a_file_without_a_word_is_empty_packed_or_not(tmp_path, command, blank):
    for name, content in (
        ("log", blank),
        ("log.gz", gzip.compress(blank)),
        ("nothing.gz", gzip.compress(b"")),
    ):
        (tmp_path / name).write_bytes(content)
        failed(command(name), tmp_path, f"{name}: is empty")


def test_17_an_empty_standard_input_is_an_error(tmp_path, command):
    failed(command("-"), tmp_path, "stdin: is empty")


@pytest.mark.parametrize("how", ["grows", "is rotated", "shrinks"])
def test_18_a_file_that_changes_under_the_reader_is_read_as_it_was_opened(tmp_path, monkeypatch, how):
    log = tmp_path / "log"
    log.write_bytes(rows())

    class Changing(Source):
        def chunks(self):
            if how == "grows":
                with log.open("ab") as file:
                    file.write(rows(1000))
            elif how == "is rotated":
                log.rename(tmp_path / "log.1")
                log.write_bytes(b"something else\n")
            yield from super().chunks()
            if how == "shrinks":
                log.write_bytes(b"")

    monkeypatch.setattr(read_module, "Source", Changing)
    report = ingest([log], tmp_path / "out.trace", IngestOptions(block_tokens=16))
    assert report.trace.n_requests == N
    warned = any("changed while it was read" in text for text in report.document["warnings"])
    assert warned == (how == "grows")


@pytest.mark.parametrize(
    "name",
    [
        b"with blanks.jsonl",
        b"line\nbreak",
        b"-leading-dash.jsonl",
        b"caf\xe9.jsonl",
        "größe.jsonl".encode(),
        b"'\"$x;",
    ],
)
def test_19_any_name_of_a_file_works(tmp_path, command, name):
    (tmp_path / os.fsdecode(name)).write_bytes(rows())
    done = command("--", os.fsdecode(name))
    assert n_rows(done, tmp_path) == N
    meta = json.loads((tmp_path / "out.trace" / "dataset.json").read_text())
    assert meta["files"][0]["name"] == name.decode(errors="backslashreplace")
    assert "\nbreak" not in done.out


def test_19_a_name_that_is_too_long_is_an_error(tmp_path, command):
    failed(command("x" * 300), tmp_path, "cannot be opened")


def test_19_an_output_with_a_name_that_is_too_long_is_an_error(tmp_path, command):
    (tmp_path / "log").write_bytes(rows())
    done = command("log", "-o", "y" * 300)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: ") and "Traceback" not in done.err and "unexpected" not in done.err
