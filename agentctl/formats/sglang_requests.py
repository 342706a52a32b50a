"""SGLang's request log (`--log-requests`), JSON or text, alone or among the lines of the server.

    [2026-11-12 09:00:12] {"timestamp": "2026-11-12T09:00:12.043457", "event": "request.received",
        "rid": "698d", "obj": {"stream": true, "sampling_params": {...}, ...}, "headers": {...}}
    [2026-11-12 09:00:12] {..., "event": "request.finished", "rid": "698d", ..., "out": {"meta_info": {...}}}
    [2026-11-12 09:00:12] Receive: obj=GenerateReqInput(rid='698d', ...)
    [2026-11-12 09:00:12] Finish: obj=GenerateReqInput(rid='698d', ...), out={'meta_info': {...}}

Source: SGLang 0.5.23, utils/request_logger.py and log_utils.py; the fields as in _sglang.py. Older versions
write JSON lines without the time before them. Targets are stdout and HOST_RANK.log, rotated hourly: give all.
Pitfalls:
- Levels: 0 and 1 log no text; 2 (the default) shortens texts and lists to 2,048, so that long prompts cannot
  be hashed; 3 is whole. A prompt is used only where it is whole.
- Survivor bias: SGLANG_LOG_REQUEST_EXCEEDED_MS leaves out the ends of fast requests. A request without an end
  counts as an error while such are few (a tenth), and otherwise as one that went well, without any measure.
- A finished line tells everything; the beginning of its request may be in the file before.
- Times without zone are local (--timezone); unix times of the same line are preferred.
- Batches log one beginning with several rids, and one end each. request.received.openai repeats a request
  before its adaptation, without rid: it is not used.
- Lines about batches ("Prefill batch, ...") become events, see sglang_server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from agentctl.formats import _sglang
from agentctl.formats._cells import instant
from agentctl.formats._containers import Line
from agentctl.formats._local import LocalTime
from agentctl.formats._repr import to_json
from agentctl.formats._sglang import HEALTH_CHECK, MetaInfo, Request, Sent, prompt_of, unix_time
from agentctl.formats._sglang_batches import event_of, is_batch
from agentctl.formats._text import COLOUR
from agentctl.formats._window import Window, read_windowed
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import Fault, ValueDecoder
from agentctl.ingest.source import Chunk

NAME = "sglang_requests"
TITLE = "SGLang request log, JSON or text (request.received, request.finished; Receive: obj=, Finish: obj=)"
CARRIES = _sglang.CARRIES
LACKS = "No model or tenant; failed requests have no tokens; prompts only at level 3; sessions only if named."
ROLE = "engine"

MAX_UNENDED_SHARE = 0.1  # above, ends are filtered rather than missing (a guess)

_PREFIX = re.compile(rb"\[([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}(?:[.,][0-9]+)?)([^\]]{0,60})\] ")
_TEXT = re.compile(rb"(Receive|Finish): (?=obj=)")
_OURS = re.compile(
    rb'"event": ?"request\.(?:received|finished)"|(?:^|\] )(?:Receive|Finish): obj=\w+\(',
    re.MULTILINE,
)


class Headers(msgspec.Struct):
    routing_key: str | None = msgspec.field(default=None, name="x-smg-routing-key")


class Out(msgspec.Struct):
    meta_info: MetaInfo


class Event(msgspec.Struct):
    event: str = ""
    timestamp: str | None = None
    rid: str | list[str] | None = None
    obj: msgspec.Raw = msgspec.Raw(b"{}")
    headers: Headers | None = None
    out: msgspec.Raw = msgspec.Raw()


def recognises(sample: Sample) -> bool:
    return _OURS.search(COLOUR.sub(b"", sample.text)) is not None


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin = "absolute"
    yield from read_windowed(reading, _Log(reading))


class _Log:
    """Reads line by line."""

    _event, _sent, _out = ValueDecoder(Event), ValueDecoder(Sent), ValueDecoder(Out)

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._local = LocalTime(reading)
        self._window: Window[Request] = Window()
        self._n_begun = self._n_ended = self._n_unended = 0

    def read(self, chunk: Chunk, line: Line) -> None:
        """Account for one line."""
        prefix = _PREFIX.search(line.text, 0, 200)
        body = line.text[prefix.end() :] if prefix else line.text
        written = prefix[1].decode() if prefix else None
        if body.startswith(b"{") and b'"event"' in body[:200]:
            self._take(chunk, line, body, written)
        elif match := _TEXT.match(body):
            try:
                text = to_json(b"_(" + body[match.end() :] + b")")
            except (ValueError, RecursionError):
                self._reading.reject(chunk, line.number, "cut_line")
                return
            name = b"received" if match[1] == b"Receive" else b"finished"
            self._take(chunk, line, b'{"event":"request.' + name + b'",' + text[1:], written)
        elif prefix and written and is_batch(body):
            self._batch(chunk, line, body, prefix[2].decode(), written)
        else:
            self._reading.n_other_lines += 1

    def _batch(self, chunk: Chunk, line: Line, body: bytes, ranks: str, written: str) -> None:
        try:
            time = instant(written)
        except ValueError:
            self._reading.reject(chunk, line.number, "bad_time")
            return
        values = event_of(body, ranks)
        if values is not None and time is not None:
            time_ns = line.stamp_ns if line.stamp_ns is not None else self._local.epoch_ns(time.ns)
            instance = "/".join(name for name in (line.service, values.pop("instance")) if name) or None
            kind = values.pop("kind")
            if not self._reading.events.add(time_ns, kind, line.number, instance=instance, **values):
                self._reading.reject(chunk, line.number, "bad_time")
                return
        self._reading.n_other_lines += 1

    def _take(self, chunk: Chunk, line: Line, body: bytes, written: str | None) -> None:
        """A line about a request."""
        event = self._event.decode(body)
        if isinstance(event, Fault):
            self._reading.reject(chunk, line.number, event.reason, event.path)
        elif event.event not in ("request.received", "request.finished"):
            self._reading.n_other_lines += 1
        elif isinstance(sent := self._sent.decode(event.obj), Fault):
            self._reject(chunk, line, "$.obj", sent)
        elif event.event == "request.received":
            self._begin(line, event, sent, self._stamp(line, event, written, unix_time(sent, None)))
        elif isinstance(out := self._out.decode(event.out or b"{}"), Fault):
            self._reject(chunk, line, "$.out", out)
        else:
            self._end(line, event, sent, out.meta_info, written)

    def _reject(self, chunk: Chunk, line: Line, path: str, fault: Fault) -> None:
        self._reading.reject(chunk, line.number, fault.reason, path + (fault.path or "$").removeprefix("$"))

    def _stamp(self, line: Line, event: Event, written: str | None, known: float | None) -> int | None:
        """When the line was written, where that is needed."""
        if known is not None:
            return None
        if line.stamp_ns is not None:
            return line.stamp_ns
        text = event.timestamp or written
        try:
            time = instant(text) if text else None
        except ValueError:
            return None
        return None if time is None else time.ns if time.zoned else self._local.epoch_ns(time.ns)

    def _begin(self, line: Line, event: Event, sent: Sent, stamp_ns: int | None) -> None:
        rid = event.rid or sent.rid
        if isinstance(rid, list):  # a batch, whose requests end one by one
            self._reading.n_other_lines += 1
        elif (rid or "").startswith(HEALTH_CHECK):
            self._reading.drop("health_check")
        else:
            self._add(line, rid, event, sent, None, stamp_ns)
            self._n_begun += 1

    def _end(self, line: Line, event: Event, sent: Sent, meta: MetaInfo, written: str | None) -> None:
        rid = meta.id or event.rid or sent.rid
        request = self._window.find(rid)
        if isinstance(rid, str) and rid.startswith(HEALTH_CHECK):
            self._reading.drop("health_check")
        elif request is None or request.has_ended:
            stamp_ns = self._stamp(line, event, written, unix_time(sent, meta))
            if stamp_ns is not None:
                stamp_ns = None if meta.e2e_latency is None else stamp_ns - round(meta.e2e_latency * 1e9)
            self._add(line, rid, event, sent, meta, stamp_ns)
        else:
            if request.prompt is None and request.tokens is None:
                request.prompt, request.tokens, _ = prompt_of(sent, is_shortened_at_level_2=True)
            request.meta, request.has_ended = meta, True
            self._n_ended += 1
            self._reading.n_continuation_lines += 1

    def _add(
        self, line: Line, rid: object, event: Event, sent: Sent, meta: MetaInfo | None, stamp_ns: int | None
    ) -> None:
        prompt, tokens, size = prompt_of(sent, is_shortened_at_level_2=True)
        sent.rid = rid if isinstance(rid, str) else None
        sent.text = sent.input_ids = msgspec.Raw(b"null")  # they would keep their chunk in memory
        session = event.headers.routing_key if event.headers else None
        request = Request(rid, line.number, sent, meta, session, stamp_ns, prompt, tokens, size + 1000)
        request.has_ended = meta is not None
        self._window.begin(request)

    def leaving(self, is_last: bool = False) -> Iterator[Request]:
        for request in self._window.leaving(is_last):
            if request.meta is None:
                self._n_unended += 1
                request.status = None if self._are_ends_filtered() else "error"
            yield request

    def batch(self, requests: list[Request]) -> Batch:
        return _sglang.batch(self._reading, None, requests)

    def _are_ends_filtered(self) -> bool:
        return self._n_begun - self._n_ended > MAX_UNENDED_SHARE * self._n_begun

    def warn(self) -> None:
        name, n = self._reading.source.name, self._n_unended
        if n and self._are_ends_filtered():
            self._reading.warnings.append(
                f"{name}: {n:,} of {self._n_begun:,} requests were received and have no end: is "
                "SGLANG_LOG_REQUEST_EXCEEDED_MS set? Latencies and token counts are of the slow ones"
            )
        elif n:
            self._reading.warnings.append(
                f"{name}: {n:,} requests were received and have no end in the log: they count as errors (or "
                "the log ends before they do)"
            )
