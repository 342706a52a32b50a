"""GuideLLM's report (benchmarks.json): benchmarks of a load test seen by its client, one JSON object.

    {"metadata": {"version": 2, "guidellm_version": "0.8.1", ...}, "config": {...}, "benchmarks": [
      {"config": {...}, "metrics": {...}, "requests": {"successful": [
        {"request_id": "..", "response_id": "chatcmpl-..",
         "request_args": "{\\"body\\": {\\"messages\\": [..]}}",
         "info": {"conversation_id": "..", "turn_index": 0, "error": null,
           "timings": {"request_start": 1794474012.04, "first_token_iteration": .., "request_end": ..}},
         "input_metrics": {"text_tokens": 1281, "cached_tokens": 1024, "total_tokens": 1281, ...},
         "output_metrics": {"total_tokens": 64, ...}}],
        "errored": [..], "incomplete": [..]}}]}

Source: vllm-project/guidellm 0.8.1 (Apache-2.0), schemas/base/ (request_stats.py, info.py, request.py) and
benchmark/schemas/report.py. Times are unix s. The bodies of requests are in request_args as text, hashed like
those of any log; config.sample_size takes them out of the requests that are not sampled. Incomplete ones were
cancelled at the end of their benchmark: aborted.
Pitfalls: the warm-up is not told apart and is kept; what was cancelled before it was sent is left out and
counted (not_sent); a report does not say whether the server or the client's tokenizer counted; output of a
request without usage is not guessed from its chunks. A report stands on one line: beyond 64 MiB it needs
--json-document, which reads 256 MiB. The YAML form is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from agentctl.formats._columns import Columns
from agentctl.formats._failures import status_of_error, status_of_http
from agentctl.formats._names import bare_id
from agentctl.formats._stored_bodies import Sent, sent_and_answered
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import Fault, LineDecoder, ValueDecoder
from agentctl.ingest.source import Chunk

NAME = "guidellm"
TITLE = "GuideLLM report, benchmarks.json (benchmarks with requests that are successful, errored, incomplete)"
CARRIES = (
    "request_id", "arrival_s", "ttft_s", "e2e_s", "prompt_tokens", "output_tokens", "cached_tokens",
    "max_tokens", "model", "session_id", "turn_index", "status", "http_status", "stream", "prompts",
)  # fmt: skip
LACKS = "No finish reasons, tenants, engine times or placement; prompts of the sampled requests alone."
ONE_RECORD_A_LINE = False

_STATUS = {"successful": "ok", "errored": None, "incomplete": "aborted"}
_BATCH_REQUESTS = 4096
_HTTP = re.compile(r"\w+\(['\"](?:Client|Server) error '([1-5][0-9]{2}) ")  # httpx


class Timings(msgspec.Struct):
    resolve_start: float | None = None
    request_start: float | None = None
    first_token_iteration: float | None = None
    request_end: float | None = None


class Info(msgspec.Struct):
    timings: Timings
    conversation_id: str | None = None
    turn_index: int | None = None
    error: str | None = None


class Tokens(msgspec.Struct):
    total_tokens: int | None = None
    text_tokens: int | None = None
    cached_tokens: int | None = None

    @property
    def n(self) -> int | None:
        return self.text_tokens if self.total_tokens is None else self.total_tokens


class Arguments(msgspec.Struct):
    stream: bool | None = None
    body: msgspec.Raw = msgspec.Raw(b"null")


class Request(msgspec.Struct):
    info: Info
    request_id: str | None = None
    response_id: str | None = None
    request_args: str | None = None
    input_metrics: Tokens | None = None
    output_metrics: Tokens | None = None


class Requests(msgspec.Struct):
    """By how they ended."""

    successful: list[msgspec.Raw] | None = None
    errored: list[msgspec.Raw] | None = None
    incomplete: list[msgspec.Raw] | None = None


class Benchmark(msgspec.Struct):
    requests: Requests = msgspec.field(default_factory=Requests)


class Report(msgspec.Struct):
    benchmarks: list[Benchmark]


class Placed(NamedTuple):
    """A request, the list that it is in, and where that is."""

    request: Request
    kind: str
    path: str


_request = ValueDecoder(Request)
_arguments = ValueDecoder(Arguments)


def recognises(sample: Sample) -> bool:
    return b'"guidellm_version"' in sample.text and sample.mostly({"metadata", "benchmarks"}.issubset)


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin = "absolute"
    decoder = LineDecoder(Report, reading.quarantine)
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        for line, report in zip(lines.lines.tolist(), lines.rows, strict=True):
            placed = _requests(reading, chunk, line, report)
            for start in range(0, len(placed), _BATCH_REQUESTS):
                yield _batch(reading, chunk, line, placed[start : start + _BATCH_REQUESTS])


def _requests(reading: Reading, chunk: Chunk, line: int, report: Report) -> list[Placed]:
    """What was sent; the rest is set aside or counted."""
    placed, n_bad, n_unsent = [], 0, 0
    for b, benchmark in enumerate(report.benchmarks):
        for kind in _STATUS:
            for k, raw in enumerate(getattr(benchmark.requests, kind) or ()):
                path = f"$.benchmarks[{b}].requests.{kind}[{k}]"
                request = _request.decode(raw)
                if isinstance(request, Fault):
                    n_bad += 1
                    inner = (request.path or "$").removeprefix("$")
                    reading.reject(chunk, line, request.reason, path + inner)
                elif _start(request) is None and kind != "successful":
                    n_unsent += 1
                else:
                    placed.append(Placed(request, kind, path))
    if n_unsent:
        reading.drop("not_sent", n_unsent, n_lines=int(not placed and not n_bad))
    elif not placed and not n_bad:
        reading.reject(chunk, line, "no_requests", "$.benchmarks")
    return placed


def _start(request: Request) -> float | None:
    times = request.info.timings
    return times.resolve_start if times.request_start is None else times.request_start


def _batch(reading: Reading, chunk: Chunk, line: int, placed: list[Placed]) -> Batch:
    lines = np.full(len(placed), line, dtype=np.int64)
    columns = Columns(reading, chunk, lines, within=[one.path for one in placed])
    requests = [one.request for one in placed]
    sent = [_sent(request) for request in requests]
    times = [request.info.timings for request in requests]
    columns.arrival([_start(request) for request in requests], "$.info.timings.request_start", "s")
    for name, field in (("ttft_s", "first_token_iteration"), ("e2e_s", "request_end")):
        ends = [(one.request_start, getattr(one, field)) for one in times]
        lasted = [None if None in pair else pair[1] - pair[0] for pair in ends]
        columns.seconds(name, lasted, f"$.info.timings.{field}")
    inputs = [request.input_metrics or Tokens() for request in requests]
    outputs = [request.output_metrics or Tokens() for request in requests]
    columns.tokens("prompt_tokens", [one.n or None for one in inputs], "$.input_metrics", low=1)
    columns.tokens("cached_tokens", [one.cached_tokens for one in inputs], "$.input_metrics.cached_tokens")
    columns.tokens("output_tokens", [one.n for one in outputs], "$.output_metrics")
    columns.text("request_id", [request.request_id for request in requests])
    columns.text("join_id", [bare_id(request.response_id) for request in requests])
    columns.text("session_id", [request.info.conversation_id for request in requests])
    columns.tokens("turn_number", [request.info.turn_index for request in requests], "$.info.turn_index")
    columns.text("model", [one.model for one in sent])
    columns.put("stream", [one.stream for one in sent])
    columns.tokens("max_tokens", [one.max_tokens for one in sent], "$.request_args")
    _put_status(columns, placed)
    if any(one.prompt for one in sent):
        columns.prompts([one.prompt for one in sent])
    return columns.batch()


def _put_status(columns: Columns, placed: list[Placed]) -> None:
    errors = [one.request.info.error or "" for one in placed]
    found = [_HTTP.match(error) for error in errors]
    codes = [int(match[1]) if match else None for match in found]
    words = [
        _STATUS[one.kind] or status_of_http(code) or status_of_error(error.split("(")[0])
        for one, code, error in zip(placed, codes, errors, strict=True)
    ]
    columns.put("status", words)
    columns.tokens("http_status", codes, "$.info.error")


def _sent(request: Request) -> Sent:
    """From the arguments of the client's call; those that are not understood say nothing."""
    found = _arguments.decode((request.request_args or "{}").encode())
    arguments = found if isinstance(found, Arguments) else Arguments()
    return sent_and_answered(None, arguments.body, None, None, arguments.stream)
