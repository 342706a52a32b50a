"""Log of the endpoint picker (EPP) of llm-d and the Gateway API Inference Extension, zap JSON or console.

    {"level": "info", "ts": 1794474012.0437, "caller": "handlers/server.go:160",
     "msg": "EPP received request", "x-request-id": "698d51a1-..."}
    {..., "msg": "Request handled", "x-request-id": "698d51a1-...", "objectiveKey": "",
     "incomingModelName": "m", "targetModel": "m", "endpoint": "10.42.7.4:8000"}
    2026-11-12T09:00:12Z<tab>INFO<tab>handlers/server.go:160<tab>EPP received request<tab>{"x-request-id": ..}

(Each on one line.) Source: llm-d/llm-d-router 057b1b5, pkg/epp/handlers/server.go (Process,
updateStateAndSendIfNeeded), pkg/epp/requestcontrol/director.go (prepareRequest) and
pkg/common/observability/logging/logger.go; the same in kubernetes-sigs/gateway-api-inference-extension, from
which it was taken over. A request is several lines under one x-request-id:

    EPP received request                        arrival; default verbosity, as are all but the second
    Request handled                             models and endpoints: verbosity 3 (VERBOSE) and up
    EPP sent request body response(s) to proxy  models
    EPP sent response body back to proxy        end
    Request evicted by flow control, Failed to process request

Times are unix s or RFC 3339; the lines of OpenTelemetry's bridge say `body` and `timestamp` for msg and ts.
Pitfalls:
- Without verbosity 3 there is no placement. `endpoint` lists the candidates, the first is asked first; the
  gateway may have turned to another. Older versions print the pod's record, of which the address counts.
- RFC 3339 times are cut to seconds: arrivals are then that coarse, and no duration is given.
- The levels say "Level(-2)" or "debug" for verbosities in older versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from agentctl.formats._cells import NS_PER, Instant, decimal, instant, nanoseconds
from agentctl.formats._columns import Columns
from agentctl.formats._local import LocalTime
from agentctl.formats._text import COLOUR, address, text_lines
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import Fault, ValueDecoder
from agentctl.ingest.source import Chunk

NAME = "llmd_epp"
TITLE = "llm-d / Inference Extension EPP log, zap JSON or console (EPP received request, Request handled)"
CARRIES = ("arrival_s", "e2e_s", "request_id", "model", "instance", "status")
LACKS = "No token counts, sessions or first-token times, and no placement below verbosity 3: join it."
ROLE = "router"

_RECEIVED = "EPP received request"
_ENDED = {
    "EPP sent response body back to proxy": "ok",
    "EPP skipped response interception, routed request": None,  # how it ended is not known
    "Request evicted by flow control": "rejected",
    "Failed to process request": "error",
}
_KNOWN = {_RECEIVED, "Request handled", "EPP sent request body response(s) to proxy", *_ENDED}
_MARKS = tuple(message.encode() for message in _KNOWN)
_SAMPLE = re.compile(
    rb'"(?:msg|body)": ?"(?:EPP received request|Request handled)"[^\n]*"x-request-id"'
    rb"|\t(?:EPP received request|Request handled)\t\{[^\n]*\"x-request-id\""
)
_POD_ADDRESS = re.compile(r"\bAddress:([0-9A-Za-z.:\[\]-]+)")
_MAX_OPEN = 1 << 16  # requests whose end may still come


class Line(msgspec.Struct):
    """The fields of a line that are looked at."""

    msg: str = ""
    body: str = ""
    ts: Any = None
    timestamp: Any = None
    id: str | None = msgspec.field(name="x-request-id", default=None)
    evicted: str | None = msgspec.field(name="requestID", default=None)
    targetModel: str | None = None
    targetModelName: str | None = None
    incomingModelName: str | None = None
    endpoint: Any = None
    endpoints: Any = None
    targetEndpoint: Any = None


@dataclass
class Request:
    line: int
    id: str
    arrival_ns: int
    is_coarse: bool  # its times are cut to seconds
    end_ns: int | None = None
    model: str | None = None
    instance: str | None = None
    status: str | None = None


def recognises(sample: Sample) -> bool:
    return _SAMPLE.search(COLOUR.sub(b"", sample.text)) is not None


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin = "absolute"
    log = _Log(reading)
    for chunk, lines in text_lines(reading):
        for number, text in lines:
            log.read(chunk, number, text)
        if log.ended:
            yield _batch(reading, log.take())
    log.give_up()
    if log.ended:
        yield _batch(reading, log.take())


class _Log:
    """Puts the lines of requests together. `ended`: those of which nothing more will come."""

    _decoder = ValueDecoder(Line)

    def __init__(self, reading: Reading) -> None:
        self._reading, self._local = reading, LocalTime(reading)
        self._open: dict[str, Request] = {}
        self.ended: list[Request] = []

    def take(self) -> list[Request]:
        ended, self.ended = self.ended, []
        return ended

    def give_up(self) -> None:
        """The log is over: what is open has no end in it."""
        self.ended += self._open.values()
        self._open.clear()

    def read(self, chunk: Chunk, number: int, text: bytes) -> None:
        if not any(mark in text for mark in _MARKS):
            self._reading.n_other_lines += 1
            return
        message, when, json = _console(text)
        line = self._decoder.decode(json)
        if isinstance(line, Fault):
            self._reading.reject(chunk, number, line.reason, line.path)
            return
        message = message or line.msg or line.body
        id_ = line.id or line.evicted
        if message not in _KNOWN or not id_:
            self._reading.n_other_lines += 1
            return
        written = next((time for time in (line.ts, line.timestamp, when) if time is not None), None)
        ns = self._local.utc_ns(_instant(written))
        if ns is None:
            self._reading.reject(chunk, number, "wrong_type", "$.ts")
            return
        is_coarse = isinstance(written, str) and "." not in written
        if is_coarse:
            self._reading.resolution_s = 1.0
        self._add(Request(number, id_, ns, is_coarse), message, line)

    def _add(self, new: Request, message: str, line: Line) -> None:
        id_ = new.id
        request = self._open.get(id_)
        if request is None or message == _RECEIVED:
            if request is not None:  # the same id once more: an attempt of its own
                self.ended.append(self._open.pop(id_))
            request = self._open[id_] = new
            if len(self._open) > _MAX_OPEN:
                self.ended.append(self._open.pop(next(iter(self._open))))
        else:
            self._reading.n_continuation_lines += 1
        request.model = line.targetModel or line.targetModelName or line.incomingModelName or request.model
        endpoints = (line.endpoint, line.endpoints, line.targetEndpoint)
        request.instance = _first_endpoint(endpoints) or request.instance
        if message in _ENDED:
            request.status = _ENDED[message]
            if request.status and not request.is_coarse:
                request.end_ns = new.arrival_ns
            self.ended.append(self._open.pop(id_))


def _console(text: bytes) -> tuple[str, str | None, bytes]:
    """(message, time, JSON) of a line of the console form; of the JSON form all is in the JSON."""
    if text.startswith(b"{"):
        return "", None, text
    parts = text.split(b"\t")
    if len(parts) < 4:
        return "", None, b"{}"
    return parts[-2].decode(), parts[0].decode(), parts[-1]


def _instant(value: Any) -> Instant | None:
    try:
        if isinstance(value, str) and not value.replace(".", "").isdigit():
            return instant(value)
        seconds = decimal(value)
        return None if seconds is None else Instant(nanoseconds(seconds, "s"), True)
    except (ValueError, ArithmeticError):
        return None


def _first_endpoint(values: Iterable[Any]) -> str | None:
    """host:port, or the host where no port is given, of the first endpoint that is named."""
    for value in values:
        if isinstance(value, list):
            value = value[0] if value else None
        if isinstance(value, str) and value:
            pod = _POD_ADDRESS.search(value)
            return pod.group(1) if pod else address(value.partition(",")[0])
    return None


def _batch(reading: Reading, requests: list[Request]) -> Batch:
    columns = Columns(reading, None, np.array([request.line for request in requests], dtype=np.int64))
    columns.arrival([request.arrival_ns for request in requests], "$.ts", "ns")
    lasts = [request.end_ns and request.end_ns - request.arrival_ns for request in requests]
    columns.seconds("e2e_s", [n if n is None or n >= 0 else None for n in lasts], "$.ts", NS_PER["s"])
    ids = [request.id for request in requests]
    columns.text("request_id", ids)
    columns.text("join_id", ids)
    columns.text("model", [request.model for request in requests])
    columns.text("instance", [request.instance for request in requests])
    columns.put("status", [request.status for request in requests])
    return columns.batch()
