"""CSV text: a header, then records of as many cells. A bad line costs one line.

RFC 4180: cells may be quoted, and a quoted cell may hold commas, doubled quotes and line breaks, so that a
record may span lines. A stray quote would swallow the lines behind it: a record that does not come out with
as many cells as the header is given up after its first line, and reading goes on with the next.
(Python's csv module stops at cells of 128 KiB and cannot step back.)
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.errors import InputError
from agentctl.formats.base import Reading
from agentctl.ingest.source import Chunk

MAX_RECORD_BYTES = 16 << 20  # of a record that spans lines; more is a stray quote

_CELL = re.compile(r'("[^"]*(?:""[^"]*)*"|[^",]*)(,|\Z)')


class Table(NamedTuple):
    """Some records: cells[column][record], and the line on which each record begins."""

    chunk: Chunk
    lines: NDArray[np.int64]
    cells: dict[str, tuple[str, ...]]


def read_csv(reading: Reading, needed: Sequence[str]) -> Iterator[Table]:
    """The records of a CSV file, column by column; the header and its repetitions are counted, not given.

    Raises InputError when the header lacks a column of `needed`, or has two of the same name.
    """
    records = _Records(reading, needed)
    held: Chunk | None = None
    for chunk in reading.source.chunks():
        if chunk.skipped_bytes:
            if held:
                yield from records.table(held, last=True)
                held = None
            reading.quarantine.add(chunk.first_line, chunk.offset, chunk.skipped_bytes, "line_too_long")
            continue
        if held:
            lines = held.n_lines + chunk.n_lines
            chunk = Chunk(held.data + chunk.data, held.first_line, lines, held.offset)
        yield from records.table(chunk, last=False)
        held = records.unfinished
    if held:
        yield from records.table(held, last=True)


class _Records:
    """Cuts chunks into records. `unfinished`: the lines at the end of the last chunk with an open quote."""

    def __init__(self, reading: Reading, needed: Sequence[str]) -> None:
        self._reading, self._needed = reading, needed
        self._header: list[str] = []
        self._rows: list[list[str]] = []
        self._lines: list[int] = []
        self.unfinished: Chunk | None = None

    def table(self, chunk: Chunk, last: bool) -> Iterator[Table]:
        """The records of a chunk, if there are any; `last`: nothing follows that could close a quote."""
        reading, texts = self._reading, _decode(chunk.data)
        self._rows, self._lines, self.unfinished = [], [], None
        at = 0
        is_plain = b'"' not in chunk.data
        while at < len(texts):
            line, text, n_lines = chunk.first_line + at, texts[at], 1
            if is_plain and self._header:
                if self._add_plain(texts[at:], line):
                    break
                is_plain = False
            if text is None:
                reading.reject(chunk, line, "invalid_utf8")
            elif not text or text.isspace():
                reading.n_blank_lines += 1
            else:
                cells = text.split(",") if '"' not in text else None
                if cells is None:
                    n_lines = _quoted_lines(texts, at)
                    if not n_lines and self._hold(chunk, at, last):
                        break
                    cells = _quoted_cells(texts[at : at + n_lines], len(self._header)) if n_lines else None
                n_lines = self._sort(chunk, line, cells, n_lines)
            at += n_lines
        if self._rows:
            columns = zip(self._header, zip(*self._rows, strict=True), strict=True)
            yield Table(chunk, np.array(self._lines, dtype=np.int64), dict(columns))

    def _add_plain(self, texts: list[str | None], line: int) -> bool:
        """Take lines that are all records without quotes at once; False if anything needs a closer look."""
        n_cells, name = len(self._header), self._header[0]
        if None in texts or n_cells == 1:
            return False
        rows = [text.split(",") for text in texts if text is not None]
        if any(len(row) != n_cells or row[0].strip() == name for row in rows):
            return False
        self._rows += rows
        self._lines += range(line, line + len(rows))
        return True

    def _sort(self, chunk: Chunk, line: int, cells: list[str] | None, n_lines: int) -> int:
        """Put one record where it belongs: header, rows or quarantine. Returns the lines that it used up."""
        header, reading = self._header, self._reading
        if cells and not header:
            header.extend(cell.strip() for cell in cells)
            self._check_header(f"{reading.source.name}:{line}")
            reading.n_header_lines += n_lines
        elif cells is None or len(cells) != len(header):
            reading.reject(chunk, line, "bad_quotes" if cells is None else "cell_count")
            return 1
        elif cells[0].strip() == header[0] and [cell.strip() for cell in cells] == header:
            reading.n_header_lines += n_lines  # files put together with cat
        else:
            self._rows.append(cells)
            self._lines.append(line)
            reading.n_continuation_lines += n_lines - 1
        return n_lines

    def _check_header(self, place: str) -> None:
        for name in self._needed:
            if name not in self._header:
                alike = difflib.get_close_matches(name, self._header, 1)
                raise InputError(
                    f"the header has no column {name!r}",
                    place=place,
                    expected="a first line with the names of the columns",
                    hint=f"is it {alike[0]!r}?" if alike else None,
                )
            if self._header.count(name) > 1:
                raise InputError(f"two columns are called {name!r}", place=place)

    def _hold(self, chunk: Chunk, at: int, last: bool) -> bool:
        """Keep the lines from `at` on for the next chunk, unless there is none or they are too many."""
        start = chunk.locate(chunk.first_line + at)[0] - chunk.offset
        if last or len(chunk.data) - start > MAX_RECORD_BYTES:
            return False
        rest = chunk.data[start:]
        self.unfinished = Chunk(rest, chunk.first_line + at, chunk.n_lines - at, chunk.offset + start)
        return True


def _decode(data: bytes) -> list[str | None]:
    """Lines as text without their line ends; None where a line is not UTF-8 or holds a NUL."""
    if b"\0" not in data:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            pass
        else:
            return list(text.removesuffix("\n").replace("\r\n", "\n").removesuffix("\r").split("\n"))
    texts: list[str | None] = []
    for line in data.removesuffix(b"\n").split(b"\n"):
        try:
            texts.append(None if b"\0" in line else line.decode().removesuffix("\r"))
        except UnicodeDecodeError:
            texts.append(None)
    return texts


def _quoted_lines(texts: list[str | None], at: int) -> int:
    """Lines of the record that begins at `at`: up to the one that closes its last quote; 0: none does."""
    is_open = False
    for end in range(at, len(texts)):
        text = texts[end]
        if text is None:
            return 1  # a line that cannot be read ends what came before it
        is_open ^= bool(text.count('"') % 2)
        if not is_open:
            return end - at + 1
    return 0


def _quoted_cells(lines: list[str | None], n_cells: int) -> list[str] | None:
    """Cells of a record with quotes; None when it has other quotes than those around cells."""
    text = "\n".join(line or "" for line in lines)
    cells: list[str] = []
    at, end = 0, ","
    while end:
        # each cell where the one before it ends: a search would try all later places in a line that is no CSV
        match = _CELL.match(text, at)
        if match is None or len(cells) > n_cells > 0:
            return None
        cell, end = match.groups()
        cells.append(cell[1:-1].replace('""', '"') if cell[:1] == '"' else cell)
        at = match.end()
    return cells
