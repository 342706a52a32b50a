"""One input, read once: magic bytes, decompression, digest, and chunks of whole lines.

Memory is bounded by the chunk and the longest line allowed. A file is read up to the size that it had when
it was opened. Damaged or truncated archives are errors, never a shorter log.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit

from agentctl.errors import InputError, UsageError
from agentctl.trace import META_FILE

CHUNK_BYTES = 2 << 20
MAX_LINE_BYTES = 64 << 20
MAX_DOCUMENT_BYTES = 256 << 20
SAMPLE_BYTES = 1 << 18

_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_REFUSED = {
    b"PK\x03\x04": ("is a zip archive", "unpack it and give the files in it"),
    b"BZh": ("is bzip2-compressed", "bunzip2 -c FILE | agentctl ingest -"),
    b"\xfd7zXZ": ("is xz-compressed", "xz -dc FILE | agentctl ingest -"),
    b"\xff\xfe": ("is UTF-16 text", "iconv -f UTF-16 -t UTF-8 FILE | agentctl ingest -"),
    b"\xfe\xff": ("is UTF-16 text", "iconv -f UTF-16 -t UTF-8 FILE | agentctl ingest -"),
}
# Protocols from 2 on say so; the older ones begin with a mark and a kind, or with a module and a name.
_PICKLE = re.compile(
    rb"\x80[\x02-\x0f]|\([dlt]p\d+\n|[\]})][qr][\x00-\x08]"
    rb"|(?:\(?c|\(i)[\w.]+\n[\w.]+\n(?:p\d+\n|q[\x00-\x08]|\([SVIJKMNFLcgh(\])}dlt])"
)
_PICKLE_NAME = re.compile(r"\.(?:pkl|pickle|joblib)(?:\.gz|\.zst)?$", re.IGNORECASE)
_BOM = b"\xef\xbb\xbf"


class Chunk(NamedTuple):
    """Whole lines. `first_line` counts from 1; `offset` is the first byte's place in the unpacked text.

    `skipped_bytes` > 0: one line longer than MAX_LINE_BYTES, whose bytes are not kept (`data` is empty).
    """

    data: bytes
    first_line: int
    n_lines: int
    offset: int
    skipped_bytes: int = 0

    def locate(self, line: int) -> tuple[int, int]:
        """(byte offset, length) of one line of this chunk."""
        ends = np.flatnonzero(np.frombuffer(self.data, dtype=np.uint8) == 10)
        at = line - self.first_line
        start = int(ends[at - 1]) + 1 if at else 0
        end = int(ends[at]) if at < ends.size else len(self.data)
        return self.offset + start, end - start


class _Raw:
    """The bytes of a file as they are, hashed on the way, up to the size seen at open."""

    closed = False

    def __init__(self, file: BinaryIO, limit: int | None) -> None:
        self.file, self.limit = file, limit
        self.digest, self.n_bytes, self._ahead = hashlib.sha256(), 0, b""

    def peek(self, n: int) -> bytes:
        """The next bytes, left where they are. Raises OSError."""
        while len(self._ahead) < n and (more := self.file.read(n - len(self._ahead))):
            self._ahead += more
        return self._ahead[:n]

    def read(self, n: int = -1) -> bytes:
        n = CHUNK_BYTES if n is None or n < 0 else n
        if self.limit is not None:
            n = min(n, self.limit - self.n_bytes)
        block, self._ahead = self._ahead[:n], self._ahead[n:]
        if len(block) < n:
            block += self.file.read(n - len(block))
        self.digest.update(block)
        self.n_bytes += len(block)
        return block

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.file.close()


class Source:
    """An opened input. `sample` is the beginning of its text, for format detection; `name` its base name."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = "stdin" if path == "-" else safe_name(Path(path).name)
        self.warnings: list[str] = []
        self.n_lines = self.n_blank_lines = 0
        self._raw = _open(path)
        try:
            head = self._raw.peek(8)
        except OSError as error:
            raise InputError(f"cannot be read ({error.strerror})", place=self.name) from error
        self.is_parquet = head[:4] == b"PAR1"
        self._refuse_by_magic(head)
        self._stream: BinaryIO | _Raw | pa.NativeFile = self._raw
        for magic, codec in _COMPRESSED.items():
            if head.startswith(magic):
                self._stream = pa.CompressedInputStream(pa.PythonFile(self._raw, mode="r"), codec)
        self.sample = b"" if self.is_parquet else self._read(SAMPLE_BYTES)
        self._ahead = self.sample
        self.sample_is_all = len(self.sample) < SAMPLE_BYTES
        self.sample = self.sample.removeprefix(_BOM)
        if _PICKLE.match(self.sample) or _PICKLE_NAME.search(self.name):  # packed or not
            raise InputError(
                "is a Python pickle, which can run any code when it is loaded: agentctl never loads one",
                place=self.name,
                hint="turn it into JSON lines where the engine is installed: docs/sglang_dumps.md",
            )

    def chunks(self) -> Iterator[Chunk]:
        """The text in chunks of whole lines, over-long lines as chunks without data."""
        block = self._ahead.removeprefix(_BOM)
        pending: list[bytes] = []  # the beginning of a line
        line, offset = 1, len(self._ahead) - len(block)
        self._ahead = b""
        while block or pending:
            cut = block.rfind(b"\n") + 1
            if cut or not block:
                data, pending = (
                    b"".join((*pending, memoryview(block)[:cut])),
                    [block[cut:]] if cut < len(block) else [],
                )
                n_lines = _count_lines(data)
                yield Chunk(data, line, n_lines, offset)
                line, offset = line + n_lines, offset + len(data)
            else:
                pending.append(block)
            length = sum(map(len, pending))
            if length > MAX_LINE_BYTES:
                skipped, block = self._skip_line(length, line)
                yield Chunk(b"", line, 1, offset, skipped)
                pending, line, offset = [], line + 1, offset + skipped + 1
            else:
                block = self._read(CHUNK_BYTES, line)
        self.n_lines = line - 1
        self._check_growth()

    def _skip_line(self, skipped: int, line: int) -> tuple[int, bytes]:
        """Read on to the next newline; returns the length of the line and the bytes behind it."""
        while block := self._read(CHUNK_BYTES, line):
            end = block.find(b"\n")
            if end >= 0:
                return skipped + end, block[end + 1 :]
            skipped += len(block)
        return skipped, b""

    def document(self) -> bytes:
        """The whole text, for a file that is one JSON document; at most MAX_DOCUMENT_BYTES."""
        parts, size = [self._ahead.removeprefix(_BOM)], len(self._ahead)
        while block := self._read(CHUNK_BYTES):
            parts.append(block)
            size += len(block)
            if size > MAX_DOCUMENT_BYTES:
                raise InputError(
                    f"is one JSON document of more than {MAX_DOCUMENT_BYTES >> 20} MiB",
                    place=self.name,
                    hint="one object a line streams: jq -c '.[]' FILE | agentctl ingest -",
                )
        self._check_growth()
        return b"".join(parts)

    def finish(self) -> tuple[str, int]:
        """(sha256 of the bytes as they lie, their number), once everything has been read."""
        while self._raw.read(CHUNK_BYTES):
            pass
        return self._raw.digest.hexdigest(), self._raw.n_bytes

    def _read(self, n: int, line: int = 1) -> bytes:
        try:
            return bytes(self._stream.read(n))
        except OSError as error:
            raise InputError(
                "cannot be read to its end: the compressed data is truncated or damaged, or the disk fails",
                place=f"{self.name} (after line {max(line - 1, 0)})",
                hint="copy or export the file again",
            ) from error

    def _refuse_by_magic(self, head: bytes) -> None:
        for magic, (fact, hint) in _REFUSED.items():
            if head.startswith(magic):
                raise InputError(fact, place=self.name, hint=hint)
        if not head:
            raise InputError("is empty", place=self.name, expected="at least one record")

    def _check_growth(self) -> None:
        if self._raw.limit is not None and os.fstat(self._raw.file.fileno()).st_size != self._raw.limit:
            self.warnings.append(f"{self.name} changed while it was read; the size at open was used")


def _count_lines(data: bytes) -> int:
    """Newlines, and a last line without one."""
    return int(_count_newlines(np.frombuffer(data, dtype=np.uint8))) + (not data.endswith(b"\n"))


@njit(cache=True, nogil=True)
def _count_newlines(text):  # type: ignore[no-untyped-def]
    """Sixteen bytes at a time, where bytes.count goes from one to the next, and without numpy's copy."""
    n = 0
    for at in range(text.size):
        n += text[at] == 10
    return n


def safe_name(name: str) -> str:
    """A file name that is valid text: bytes that are not UTF-8 become their escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def check_readable(path: str) -> None:
    """Raise InputError for what cannot be read as a log file, without opening it (it may be a pipe)."""
    name = safe_name(path)
    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116
        is_dataset = is_folder and (Path(path) / META_FILE).is_file()
    except OSError as error:
        raise InputError(f"cannot be opened ({error.strerror})", place=name) from error
    except ValueError as error:  # a zero byte in the name
        raise InputError("is no file name", place=name) from error
    if is_dataset:
        raise InputError(
            "is a dataset",
            place=name,
            expected="log files, or one dataset alone",
            hint="to join logs, ingest all of them together: agentctl ingest FILES -o NAME.trace",
        )
    if is_folder:
        raise InputError("is a folder", place=name, expected="a log file", hint=f"{name}/* gives its files")
    if not os.access(path, os.R_OK):
        raise InputError("cannot be opened (Permission denied)", place=name)


def _open(path: str) -> _Raw:
    if path == "-":
        if sys.stdin.isatty():
            raise UsageError("`-` reads standard input, which is a terminal", hint="pipe a log into it")
        return _Raw(sys.stdin.buffer, None)
    check_readable(path)
    try:
        file = open(path, "rb")  # noqa: SIM115, PTH123
        status = os.fstat(file.fileno())
    except OSError as error:
        raise InputError(f"cannot be opened ({error.strerror})", place=safe_name(path)) from error
    return _Raw(file, status.st_size if stat.S_ISREG(status.st_mode) else None)
