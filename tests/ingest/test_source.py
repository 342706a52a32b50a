"""Inputs: magic bytes, archives read to their end or not at all, chunks of whole lines."""

import gzip
import hashlib
import io
import os
import sys
import threading

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentctl.errors import InputError, UsageError
from agentctl.ingest import source as module
from agentctl.ingest.source import Source

TEXT = b"".join(b'{"line": %d, "pad": "%s"}\n' % (k, b"x" * (k % 700)) for k in range(3000))


def zstd(data: bytes) -> bytes:
    return pa.Codec("zstd").compress(data, asbytes=True)


def write(tmp_path, data: bytes, name="log"):
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


def text_of(source: Source) -> bytes:
    return b"".join(chunk.data for chunk in source.chunks())


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", 256)
    monkeypatch.setattr(module, "SAMPLE_BYTES", 64)
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 1024)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd])
@pytest.mark.parametrize("name", ["log.jsonl", "log.gz", "log.zst"])
def test_compression_is_told_by_the_bytes_not_by_the_name(tmp_path, pack, name):
    path = write(tmp_path, pack(TEXT), name)
    source = Source(path)
    assert text_of(source) == TEXT
    assert source.n_lines == 3000
    assert source.sample == TEXT[: module.SAMPLE_BYTES]
    packed = (tmp_path / name).read_bytes()
    assert source.finish() == (hashlib.sha256(packed).hexdigest(), len(packed))


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_archives_of_several_members_are_read_whole(tmp_path, pack):
    parts = [TEXT[:1000], TEXT[1000:50_000], b"", TEXT[50_000:]]
    assert text_of(Source(write(tmp_path, b"".join(map(pack, parts))))) == TEXT


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
@pytest.mark.parametrize("cut", [10, 1000, -1, -5])
def test_a_truncated_archive_is_an_error_that_names_the_last_line(tmp_path, pack, cut):
    path = write(tmp_path, pack(os.urandom(200_000).hex().encode() + b"\n" + TEXT)[:cut])
    with pytest.raises(InputError, match=r"log \(after line \d+\): .*truncated or damaged"):
        text_of(Source(path))


def test_a_damaged_archive_is_an_error(tmp_path):
    packed = bytearray(gzip.compress(TEXT))
    packed[-6] ^= 1  # the checksum
    with pytest.raises(InputError, match="truncated or damaged"):
        text_of(Source(write(tmp_path, bytes(packed))))


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_garbage_behind_an_archive_is_an_error(tmp_path, pack):
    with pytest.raises(InputError, match="truncated or damaged"):
        text_of(Source(write(tmp_path, pack(TEXT) + b"garbage")))


@pytest.mark.parametrize(
    ("magic", "fact"),
    [
        (b"PK\x03\x04", "zip archive"),
        (b"BZh91AY", "bzip2"),
        (b"\xfd7zXZ\x00", "xz"),
        (b"\xff\xfe{\x00", "UTF-16"),
        (b"\x80\x04\x95\x10", "pickle"),
        (b"\x80\x02}q", "pickle"),
    ],
)
def test_what_is_no_log_is_refused_by_its_first_bytes(tmp_path, magic, fact):
    with pytest.raises(InputError, match=fact) as error:
        Source(write(tmp_path, magic + b"rest"))
    assert error.value.hint


def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path):
    source = Source(write(tmp_path, b"\xef\xbb\xbfa\nb"))
    assert source.sample == b"a\nb"
    first, last = source.chunks()
    assert (first.data, first.offset, first.locate(1)) == (b"a\n", 3, (3, 1))
    assert (last.data, last.offset, last.locate(2)) == (b"b", 5, (5, 1))


lines = st.lists(st.binary(max_size=300).map(lambda line: line.replace(b"\n", b" ")), max_size=25)


@settings(max_examples=60)
@given(lines=lines, has_end=st.booleans())
def test_chunks_hold_whole_lines_and_know_where_each_stands(tmp_path_factory, lines, has_end):
    text = b"\n".join(lines) + (b"\n" if has_end and lines else b"")
    if not text or text[:2] in {magic[:2] for magic in (*module._COMPRESSED, *module._REFUSED)}:
        text = b"#" + text
    expected = text.removesuffix(b"\n").split(b"\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_BYTES", 256)
        patch.setattr(module, "SAMPLE_BYTES", 64)
        path = write(tmp_path_factory.mktemp("source"), b"#\n" + text)
        source = Source(path)
        found = []
        for chunk in source.chunks():
            assert chunk.first_line == len(found) + 1
            assert chunk.n_lines == len(chunk.data.removesuffix(b"\n").split(b"\n"))
            for k in range(chunk.n_lines):
                offset, length = chunk.locate(chunk.first_line + k)
                found.append((b"#\n" + text)[offset : offset + length])
        assert found == [b"#", *expected]
        assert source.n_lines == len(found)


def test_a_line_that_is_too_long_is_skipped_not_kept(tmp_path, small_chunks):
    long = b"y" * 5000
    text = b"a\n" + long + b"\nb\n" + long
    chunks = list(Source(write(tmp_path, text)).chunks())
    assert [(chunk.data, chunk.first_line, chunk.skipped_bytes) for chunk in chunks] == [
        (b"a\n", 1, 0), (b"", 2, 5000), (b"b\n", 3, 0), (b"", 4, 5000),
    ]  # fmt: skip
    assert [chunk.offset for chunk in chunks] == [0, 2, 5003, 5005]


def test_a_file_is_read_up_to_the_size_that_it_had_when_it_was_opened(tmp_path):
    path = write(tmp_path, TEXT)
    source = Source(path)
    with open(path, "ab") as file:  # noqa: PTH123
        file.write(b"late\n" * 100_000)
    assert text_of(source) == TEXT
    assert source.warnings == ["log changed while it was read; the size at open was used"]
    assert source.finish()[1] == len(TEXT)


def test_an_empty_file_is_an_error(tmp_path):
    with pytest.raises(InputError, match="is empty"):
        Source(write(tmp_path, b""))


def test_folders_missing_files_and_names_that_are_too_long_are_errors(tmp_path):
    with pytest.raises(InputError, match="is a folder") as error:
        Source(str(tmp_path))
    assert error.value.hint is not None and "/*" in error.value.hint
    for name in ("missing", "x" * 300):
        with pytest.raises(InputError, match="cannot be opened"):
            Source(str(tmp_path / name))


def test_a_file_that_fails_when_it_is_read_is_an_error():
    with pytest.raises(InputError, match="cannot be read"):
        Source("/proc/self/mem")  # opens, and has no byte at 0


def test_a_pipe_is_read_to_its_end(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(TEXT))
    writer.start()
    source = Source(str(path))
    assert text_of(source) == TEXT
    writer.join()
    assert source.finish() == (hashlib.sha256(TEXT).hexdigest(), len(TEXT))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_dash_is_standard_input(monkeypatch, pack):
    class Stdin:
        buffer = io.BytesIO(pack(TEXT))

        @staticmethod
        def isatty():
            return False

    monkeypatch.setattr(sys, "stdin", Stdin)
    source = Source("-")
    assert (source.name, text_of(source)) == ("stdin", TEXT)


def test_a_terminal_is_no_log(monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    with pytest.raises(UsageError, match="terminal"):
        Source("-")


def test_names_that_are_no_text_are_shown_escaped(tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9\n log"
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(b"{}\n")
    source = Source(os.fsdecode(path))
    assert source.name == "caf\\xe9\n log"
    assert text_of(source) == b"{}\n"


def test_a_document_is_read_whole_up_to_a_limit(tmp_path, monkeypatch):
    path = write(tmp_path, TEXT)
    assert Source(path).document() == TEXT
    monkeypatch.setattr(module, "MAX_DOCUMENT_BYTES", 1000)
    with pytest.raises(InputError, match="one JSON document of more than"):
        Source(path).document()
