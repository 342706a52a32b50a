"""Log of the vLLM production-stack router, as text or JSON: which engine each request was sent to.

    [2026-11-12 09:00:12,044] INFO: Routing request 698d51a1-9d8a-121c-e581-499d7b701668 with session id
      sess-8f4d3e27 to http://10.42.7.4:8000 at 1794474012.043457, process time = 0.0009 (request.py:600:...)
    {"timestamp": "2026-11-12 09:00:12,044", "level": "INFO", "logger": "...", "message": "Routing ..."}

(The first on one line.) Source: vllm-project/production-stack, src/vllm_router/services/request_service/
request.py (route_general_request, route_disaggregated_prefill_request) and log.py. The id is the caller's
X-Request-Id, or made here and sent on to the engine; `at` is unix s when the engine had been chosen; process
time s is how long the request had been in the router by then, so that it arrived at their difference. The
session is the value of the header that session routing uses, "None" without one.
Pitfalls:
- Disaggregated prefill logs a request twice: after its prefill, and again when decode starts. The second
  line's request entered where the first line was written; it is counted and left out, so that the instance is
  the engine that prefilled.
- A retry on another engine repeats the id with "(attempt k/n)": from the second on it is a row of its own,
  id#k. Some versions then leave out `at`: the line's own local time stands in, in ms and without a zone.
- Colours; the prefix is local time; all other lines are counted and left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

import msgspec
import numpy as np

from agentctl.formats._cells import instant, nanoseconds
from agentctl.formats._columns import Columns
from agentctl.formats._local import LocalTime
from agentctl.formats._text import COLOUR, address, text_lines
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import Fault, ValueDecoder
from agentctl.ingest.source import Chunk

NAME = "production_stack"
TITLE = "vLLM production-stack router log, text or JSON (Routing request ID with session id SID to URL)"
CARRIES = ("arrival_s", "request_id", "session_id", "instance")
LACKS = "No token counts, latencies, model or status: join it with the engines' log."
ROLE = "router"

_ROUTING = re.compile(
    rb"Routing request (?P<id>\S+) (?:with session id (?P<session>.*?) )?to (?P<url>[a-z]+://\S+)"
    rb"(?: at (?P<at>[0-9]+(?:\.[0-9]+)?), process time = (?P<process>-?[0-9]+(?:\.[0-9]+)?))?"
    rb"(?:.*?\(attempt (?P<attempt>[0-9]{1,3})/[0-9]{1,3}\))?"
)
_PREFIX = re.compile(rb"\[([0-9-]{10} [0-9:]{8},[0-9]{3})\]")
_SAMPLE = re.compile(
    rb'(?m)^(?:\[[0-9-]{10} [0-9:,]{12}\] [A-Z]+: |\{.*"message": ?")Routing request \S+ .*to [a-z]+://'
)
_RECENT = 1 << 16  # ids whose second line may still come
_ROUNDED = Decimal("0.0002")  # s; process times are logged to 0.1 ms


class JsonLine(msgspec.Struct):
    message: str
    timestamp: str = ""


class Placement(NamedTuple):
    line: int
    id: str
    session: str | None
    url: str
    arrival_ns: int
    attempt: int


def recognises(sample: Sample) -> bool:
    return _SAMPLE.search(COLOUR.sub(b"", sample.text)) is not None


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin = "absolute"
    log = _Log(reading)
    for chunk, lines in text_lines(reading):
        placements = [row for number, text in lines if (row := log.read(chunk, number, text))]
        if placements:
            yield _batch(reading, chunk, placements)


class _Log:
    """Reads line by line. `_routed`: when the latest requests were sent on, for their second lines."""

    _json = ValueDecoder(JsonLine)

    def __init__(self, reading: Reading) -> None:
        self._reading, self._local = reading, LocalTime(reading)
        self._routed: dict[bytes, Decimal] = {}

    def read(self, chunk: Chunk, number: int, text: bytes) -> Placement | None:
        """The placement on a line; None when it holds none, which has then been accounted for."""
        if b"Routing request " not in text:
            self._reading.n_other_lines += 1
            return None
        prefix = _PREFIX.match(text)
        written = prefix.group(1).decode() if prefix else ""
        if text.startswith(b"{"):
            line = self._json.decode(text)
            if isinstance(line, Fault):
                self._reading.reject(chunk, number, line.reason, line.path)
                return None
            text, written = line.message.encode(), line.timestamp
        match = _ROUTING.search(text)
        if match is None:  # at DEBUG: the model of a request, or an engine named by the caller
            self._reading.n_other_lines += 1
            return None
        arrival = self._arrival(match, written)
        if arrival is None:
            self._reading.reject(chunk, number, "missing_field", "at")
        elif self._is_second_half(match):
            self._reading.drop("decode_of_a_split_request")
        else:
            session = None if match["session"] in (None, b"None") else match["session"].decode()
            attempt = int(match["attempt"] or 1)
            return Placement(number, match["id"].decode(), session, match["url"].decode(), arrival, attempt)
        return None

    def _arrival(self, match: re.Match[bytes], written: str) -> int | None:
        try:
            if match["at"]:
                return nanoseconds(Decimal(match["at"].decode()) - Decimal(match["process"].decode()), "s")
            local = instant(written)
        except (ValueError, ArithmeticError):
            return None
        return self._local.utc_ns(local)

    def _is_second_half(self, match: re.Match[bytes]) -> bool:
        """The request was in the router, as this line counts, just since an earlier line sent it on."""
        if not match["at"] or match["attempt"]:
            return False
        at, process = Decimal(match["at"].decode()), Decimal(match["process"].decode())
        earlier = self._routed.pop(match["id"], None)
        self._routed[match["id"]] = at
        if len(self._routed) > _RECENT:
            del self._routed[next(iter(self._routed))]
        return earlier is not None and abs(at - process - earlier) <= _ROUNDED


def _batch(reading: Reading, chunk: Chunk, rows: list[Placement]) -> Batch:
    columns = Columns(reading, chunk, np.array([row.line for row in rows], dtype=np.int64))
    columns.arrival([row.arrival_ns for row in rows], "at", "ns")
    ids = [row.id if row.attempt == 1 else f"{row.id}#{row.attempt}" for row in rows]
    columns.text("request_id", ids)
    columns.text("join_id", [row.id for row in rows])
    columns.text("session_id", [row.session for row in rows])
    columns.put("session_header", [True if row.session else None for row in rows])
    columns.text("instance", [address(row.url) for row in rows])
    return columns.batch()
