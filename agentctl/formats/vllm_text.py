"""vLLM's text log with `--enable-log-requests`, of all versions.

    (APIServer pid=1) INFO 11-12 09:00:12 [request_logger.py:65] Received request chatcmpl-698d: params:
        SamplingParams(n=1, ..., max_tokens=31487, ...), lora_request: None.                (one line)
    ... Added request chatcmpl-698d.
    ... Generated response chatcmpl-698d (streaming complete): output: '...', finish_reason: stop
    ... Aborted request(s) chatcmpl-698d,chatcmpl-70aa.      Request chatcmpl-698d aborted.
    ... Engine 000: Avg prompt throughput: 128.1 tokens/s, Avg generation throughput: 2.6 tokens/s, Running: 0
        reqs, Waiting: 0 reqs, GPU KV cache usage: 0.4%, Prefix cache hit rate: 91.3%

Source: vLLM 0.32, entrypoints/serve/utils/request_logger.py, v1/engine/async_llm.py, v1/metrics/loggers.py,
logger.py; 0.10, entrypoints/logger.py. Arrival = "Received request". Until autumn 2025 that line also had
`prompt: '...'` and `prompt_token_ids: [...]`, now at DEBUG in "Request ID details"; with them block chains
and sessions can be had, from token ids exactly, else from the text. Responses are logged with
--enable-log-outputs only. Gauge lines become events.
Pitfalls:
- Times have no year, no zone, and whole seconds: durations are off by up to 1 s. Time stamps that a container
  runtime put before the lines are used instead.
- No token counts, no first-token time, no identity: ids are the caller's X-Request-Id or random.
- Where responses are logged, a request that has neither response nor abort is taken as an error. Where they
  are not, every request that was not aborted counts as ok, failed ones, too.
- `-0`, `-1` end the ids of the prompts of one completion call; 8 hex digits end engine-internal ids (aborts).
- Prefill and decode pods log the same request id: ingest keeps the first, or joins the two files (--join).
- --max-log-len cuts prompts and lists of token ids: prompts of the length at which several end are not used.
- Several API servers and engines write into one log; container prefixes, ANSI colours, CR LF before further
  lines of a message, health checks and metrics requests are expected.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import msgspec

from agentctl.formats import _vllm_requests
from agentctl.formats._cells import instant
from agentctl.formats._containers import Line
from agentctl.formats._local import LocalTime
from agentctl.formats._logged_prompt import Cut, Sent, parse_sent
from agentctl.formats._repr import without_strings
from agentctl.formats._template import messages_of
from agentctl.formats._text import COLOUR
from agentctl.formats._vllm_gauges import gauges, is_gauge
from agentctl.formats._vllm_requests import Request
from agentctl.formats._window import Window, read_windowed
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import Fault, ValueDecoder
from agentctl.ingest.prompts import Prompt
from agentctl.ingest.source import Chunk

NAME = "vllm_text"
TITLE = "vLLM text log (Received request, Generated response, Engine 000: Avg prompt throughput)"
CARRIES = (
    "request_id", "instance", "arrival_s", "e2e_s", "prompt_tokens", "output_tokens", "max_tokens", "status",
    "finish_reason", "stream", "block_tokens", "prompts",
)  # fmt: skip
LACKS = (
    "No first-token times, cached tokens, sessions, tenants or model, no year in its times; prompts, token "
    "counts and ends only in some versions and settings."
)
ROLE = "engine"

_PREFIX = re.compile(
    rb"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) ([0-9]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})"
    rb"(?:[.,]([0-9]{1,9}))? (?:\[[^\]]{1,200}\]|[^ \]]{1,200}:[0-9]+\]) "
)
_PREFIX_WITHIN = 400  # bytes of a line; a process prefix and a path of a file stand before the message
_RECEIVED = re.compile(rb"Received request (\S{1,500}?): (?=prompt: |params: )")
_DETAILS = re.compile(rb"Request (\S{1,500}?) details: (?=prompt: )")
_GENERATED = re.compile(
    rb"Generated response (\S{1,500}?)(?: \(streaming (delta|complete)\))?(: | details: )"
)
_ABORTED = re.compile(rb"(?:Aborted request(?:\(s\))? (\S+?)\.?|Request (\S+) aborted\.)$")
_FINISHED = re.compile(rb"Finished request (\S+?)\.$")
_TOKEN_IDS = re.compile(rb"prompt[_ ]token[_ ]ids: (\[[0-9, ]*\])")
_OUTPUT_IDS = re.compile(rb", output_token_ids: (\[[0-9, ]*\])")
_MAX_TOKENS = re.compile(rb"\bmax_tokens=([0-9]{1,12})\b")
_LORA = re.compile(rb"lora_request: LoRARequest\(lora_name='([^']{1,500})'")
_INTERNAL = re.compile(r"^(?:[0-9]{1,3}_)?(.*?)(?:-[0-9a-f]{8})?$")
_FAILED_POST = re.compile(rb'"POST /\S* HTTP/[0-9.]+" ([45][0-9]{2})\b')
_MARKS = (rb"Received request \S+: (?:prompt|params): ", rb"Added request \S+\.", rb"Avg prompt throughput: ")
_OURS = re.compile(
    rb"(?:" + _PREFIX.pattern + rb'|"message": ?")(?:Engine [0-9]+: )?(?:' + b"|".join(_MARKS) + rb")"
)
_FINISH_REASONS = ("stop", "length", "tool_calls", "function_call", "content_filter", "repetition")
_MAX_DETAILS = 1 << 10


class JsonLine(msgspec.Struct):
    """A line of the JSON formatter (--log-formatter json)."""

    asctime: str
    message: str


def recognises(sample: Sample) -> bool:
    return _OURS.search(COLOUR.sub(b"", sample.text)) is not None


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin = "absolute"
    yield from read_windowed(reading, _Log(reading))


class _Log:
    """Reads line by line; what is known of requests that have not ended is in `window`."""

    _json = ValueDecoder(JsonLine)

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._local = LocalTime(reading)
        self.window: Window[Request] = Window()
        self._details: dict[object, tuple[Prompt | None, list[int] | None, int]] = {}
        self._cut = Cut(reading.source.sample)
        self._n_unended = self._n_unbegun = self._n_failed_posts = 0
        self._logs_responses = False
        self._last_stamp: tuple[bytes | None, ...] = ()
        self._last_ns = 0

    def read(self, chunk: Chunk, line: Line) -> None:
        """Account for one line."""
        try:
            message, time_ns = self._message(line)
        except ValueError:
            self._reading.reject(chunk, line.number, "bad_time")
            return
        if message is None or time_ns is None:
            self._n_failed_posts += _FAILED_POST.search(line.text) is not None
            self._reading.n_other_lines += 1
        elif message.startswith(b"Received request "):
            self._receive(chunk, line, message, time_ns)
        elif is_gauge(message):
            self._gauge(chunk, line, message, time_ns)
        elif not self._follow(line, message, time_ns):
            self._reading.n_other_lines += 1

    def _message(self, line: Line) -> tuple[bytes | None, int | None]:
        """Message and time; None for a line of another program (the web server, a traceback, ...)."""
        if line.text.startswith(b'{"') and b'"asctime"' in line.text:
            row = self._json.decode(line.text)
            if isinstance(row, Fault):
                return None, None
            time = instant(row.asctime)
            if time is None:
                raise ValueError
            return row.message.encode(), time.ns if time.zoned else self._local.epoch_ns(time.ns)
        prefix = _PREFIX.search(line.text, 0, _PREFIX_WITHIN)
        if prefix is None:
            return None, None
        message = line.text[prefix.end() :]
        if line.stamp_ns is not None:
            return message, line.stamp_ns
        if (stamp := prefix.groups()) == self._last_stamp:  # many lines a second
            return message, self._last_ns
        month, day, hour, minute, second, fraction = stamp
        if hour > b"23" or minute > b"59" or second > b"60":
            raise ValueError
        of_day = (int(hour) * 60 + int(minute)) * 60 + int(second)
        of_day_ns = of_day * 1_000_000_000 + int((fraction or b"").ljust(9, b"0"))
        if fraction is None:
            self._reading.resolution_s = 1.0
        self._last_ns = self._local.yearless_ns(int(month), int(day), of_day_ns)
        self._last_stamp = stamp
        return message, self._last_ns

    def _receive(self, chunk: Chunk, line: Line, message: bytes, time_ns: int) -> None:
        match = _RECEIVED.match(message)
        sent = parse_sent(message[match.end() :]) if match else None
        if match is None or sent is None or b"lora_request: " not in sent.rest or message[-1:] != b".":
            self._reading.reject(chunk, line.number, "cut_line")
            return
        id, max_tokens = match[1].decode(), _MAX_TOKENS.search(sent.rest)
        key = (line.service, id)
        prompt, tokens, size = self._usable(sent)
        if prompt is None and tokens is None:
            prompt, tokens, size = self._details.pop(key, (None, None, 0))
        self.window.begin(
            Request(
                key=key,
                line=line.number,
                id=id,
                arrival_ns=time_ns,
                service=line.service,
                max_tokens=int(max_tokens[1]) if max_tokens else None,
                prompt=prompt,
                tokens=tokens,
                size=size + 500,
            )
        )

    def _usable(self, sent: Sent) -> tuple[Prompt | None, list[int] | None, int]:
        """Prompt and token ids, unless --max-log-len cut them, and their size."""
        ids, lora = _TOKEN_IDS.search(sent.rest), _LORA.search(sent.raw)
        tokens = msgspec.json.decode(ids[1], type=list[int]) if ids and len(ids[1]) > 2 else None
        if tokens and self._cut.is_cut(len(tokens)):
            tokens = None
        prompt = None
        if sent.text and not self._cut.is_cut(len(sent.text), sent.text):
            with contextlib.suppress(UnicodeEncodeError):  # a lone surrogate
                prompt = Prompt(messages_of(sent.text), group=lora[1].decode() if lora else None)
        return prompt, tokens, sent.size + 8 * len(tokens or ())

    def _gauge(self, chunk: Chunk, line: Line, message: bytes, time_ns: int) -> None:
        values = gauges(message)
        instance = "/".join(name for name in (line.service, values.pop("instance")) if name) or None
        if self._reading.events.add(time_ns, "gauge", line.number, instance=instance, **values):
            self._reading.n_other_lines += 1
        else:
            self._reading.reject(chunk, line.number, "bad_time")

    def _follow(self, line: Line, message: bytes, time_ns: int) -> bool:
        """A further line about a request; False when it is none."""
        if message.startswith(b"Added request "):
            self._reading.n_continuation_lines += 1
        elif match := _GENERATED.match(message):
            self._logs_responses = True
            if match[2] != b"delta" and match[3] == b": ":
                self._answer(line, message, match, time_ns)
            self._reading.n_continuation_lines += 1
        elif match := _ABORTED.match(message):
            for name in (match[1] or match[2]).decode().split(","):
                self._end(line, name, time_ns, "aborted")
            self._reading.n_continuation_lines += 1
        elif match := _FINISHED.match(message):
            self._end(line, match[1].decode(), time_ns, "ok")
            self._reading.n_continuation_lines += 1
        elif match := _DETAILS.match(message):
            if sent := parse_sent(message[match.end() :]):
                self._details[line.service, match[1].decode()] = self._usable(sent)
                if len(self._details) > _MAX_DETAILS:
                    del self._details[next(iter(self._details))]
            self._reading.n_continuation_lines += 1
        else:
            return False
        return True

    def _answer(self, line: Line, message: bytes, match: re.Match[bytes], time_ns: int) -> None:
        reason = message.rpartition(b", finish_reason: ")[2].decode()
        status = {"abort": "aborted", "error": "error"}.get(reason, "ok")
        request = self._end(line, match[1].decode(), time_ns, status)
        if request is not None:
            request.finish_reason = reason if reason in _FINISH_REASONS else None
            request.stream = match[2] is not None
            ids = _OUTPUT_IDS.search(without_strings(message))
            n = 0 if ids is None or len(ids[1]) == 2 else ids[1].count(b",") + 1
            request.output_tokens = n if n and not self._cut.is_cut(n) else None

    def _end(self, line: Line, name: str, time_ns: int, status: str) -> Request | None:
        internal = _INTERNAL.match(name)
        for known in (name, internal[1] if internal else name):
            request = self.window.find((line.service, known))
            if request is not None and not request.has_ended:
                request.has_ended, request.end_ns, request.status = True, time_ns, status
                return request
            if self.window.knows((line.service, known)):
                return None
        self._n_unbegun += 1
        return None

    def leaving(self, is_last: bool = False) -> Iterator[Request]:
        return self.window.leaving(is_last)

    def batch(self, requests: list[Request]) -> Batch:
        return _vllm_requests.batch(self._reading, requests, [self._status(one) for one in requests])

    def _status(self, request: Request) -> str | None:
        if request.has_ended:
            return request.status
        self._n_unended += 1
        return "error" if self._logs_responses else None

    def warn(self) -> None:
        """What the log left open."""
        name, warnings = self._reading.source.name, self._reading.warnings
        if self._n_unended and self._logs_responses:
            warnings.append(
                f"{name}: {self._n_unended:,} requests have no response in the log, which has those of "
                "others: they count as errors (or the log ends before they do)"
            )
        elif self._n_unended:
            failed = (
                f"; {self._n_failed_posts:,} POSTs were answered with an error"
                if self._n_failed_posts
                else ""
            )
            warnings.append(
                f"{name}: the log does not say how {self._n_unended:,} requests ended: those that were not "
                f"aborted count as ok{failed} (--enable-log-outputs logs responses)"
            )
        if self._n_unbegun:
            warnings.append(
                f"{name}: {self._n_unbegun:,} requests end in the log that did not begin in it (was it "
                "rotated? cat FILES | agentctl ingest - reads them as one)"
            )
        self._cut.warn(name, warnings)
