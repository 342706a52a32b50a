"""Plain text logs line by line: colours removed, bad lines set aside, and addresses in one spelling."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentctl.formats.base import Reading
from agentctl.ingest.source import Chunk

COLOUR = re.compile(rb"\x1b\[[0-9;]*m")

_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*://)?([^/?#\s]+)", re.IGNORECASE)


def text_lines(reading: Reading) -> Iterator[tuple[Chunk, list[tuple[int, bytes]]]]:
    """(chunk, [(line number, text)]) without the blank lines; every other line is the caller's to account
    for. Lines that are not UTF-8 or too long are set aside here."""
    for chunk in reading.chunks():
        if chunk.skipped_bytes:
            reading.quarantine.add(chunk.first_line, chunk.offset, chunk.skipped_bytes, "line_too_long")
            continue
        lines = []
        is_coloured, is_ascii = b"\x1b" in chunk.data, chunk.data.isascii()
        for number, line in enumerate(chunk.data.removesuffix(b"\n").split(b"\n"), start=chunk.first_line):
            text = (COLOUR.sub(b"", line) if is_coloured else line).strip()
            if not text:
                reading.n_blank_lines += 1
            elif is_ascii or _is_text(text):
                lines.append((number, text))
            else:
                reading.reject(chunk, number, "invalid_utf8")
        yield chunk, lines


def _is_text(line: bytes) -> bool:
    if line.isascii():
        return True
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def address(url: str | None) -> str | None:
    """host:port of a URL or an address, without scheme, user and path: the name of an engine in all logs."""
    match = _URL.match(url.strip()) if url else None
    return match.group(1).rpartition("@")[2] or None if match else None
