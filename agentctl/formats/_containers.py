"""What containers and launchers write before each line of a log: taken off, and used.

    vllm-1  | ...                                   docker compose: the service
    (task, pid=123) ...                             Ray
    2026-11-12T09:00:12.043457024Z ...              kubectl logs --timestamps, docker logs -t: an exact time
    2026-11-12T09:00:12.043457024Z stdout F ...     Kubernetes' own files; P: the line goes on in the next
    {"log": "...", "time": "2026-11-12T09:00:12.043457024Z"}    docker's own files

A line of text that goes on is put together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from agentctl.formats._cells import instant
from agentctl.formats._text import COLOUR, text_lines
from agentctl.formats.base import Reading
from agentctl.ingest.source import MAX_LINE_BYTES, Chunk

_SERVICE = re.compile(rb"([A-Za-z0-9][\w.-]*) +\| ")
_RAY = re.compile(rb"\([^()]{1,200}, ?(?:pid|ip)=[^()]{1,200}\) ")
_STAMP = re.compile(
    rb"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2}))"
    rb" (?:(?:stdout|stderr) ([FP]) ?)?"
)


class DockerLine(msgspec.Struct):
    """`log` ends with a newline unless the line goes on in the next."""

    log: str
    time: str = ""


_docker = msgspec.json.Decoder(DockerLine)


class Line(NamedTuple):
    """number: in the file, the first one of a line that was cut; stamp_ns since the epoch, where given."""

    number: int
    text: bytes
    stamp_ns: int | None
    service: str | None


def unwrapped(reading: Reading) -> Iterator[tuple[Chunk, list[Line]]]:
    """Lines as the program wrote them. Pieces of one line count as continuation lines but the first."""
    parts: list[Line] = []  # of a line that goes on, and their size
    size = 0
    for chunk, lines in text_lines(reading):
        found = []
        for number, text in lines:
            line, goes_on = _unwrap(number, text)
            if parts or goes_on:
                parts.append(line)
                size += len(line.text)
                reading.n_continuation_lines += len(parts) > 1
                if goes_on and size < MAX_LINE_BYTES:
                    continue
                line = parts[0]._replace(text=b"".join(part.text for part in parts))
                parts, size = [], 0
            found.append(line)
        yield chunk, found
    if parts:  # its end is missing
        whole = parts[0]._replace(text=b"".join(part.text for part in parts))
        yield Chunk(b"", whole.number, 0, 0), [whole]


def _unwrap(number: int, text: bytes) -> tuple[Line, bool]:
    stamp, service, goes_on = None, None, False
    if text.startswith(b'{"log":'):
        try:
            whole = _docker.decode(text)
            stamp, goes_on = instant(whole.time), not whole.log.endswith("\n")
            text = COLOUR.sub(b"", whole.log.encode()).strip()
        except (msgspec.DecodeError, ValueError):  # not docker's, or cut: the line says for itself what it is
            pass
    for _ in range(3):
        if text.startswith(b"("):
            match = _RAY.match(text)
        elif match := _SERVICE.match(text):
            service = match[1].decode()
        elif match := _STAMP.match(text):
            try:
                stamp = instant(match[1].decode())
            except ValueError:
                break
            goes_on = match[2] == b"P"
        if match is None:
            break
        text = text[match.end() :]
    return Line(number, text, stamp and stamp.ns, service), goes_on
