"""Results of `vllm bench serve --save-result --save-detailed`: a run as one JSON object, an array a quantity.

    {"date": "20261112-090012", "backend": "vllm", "model_id": "Qwen/Qwen3-8B", "num_prompts": 2, ...,
     "input_lens": [1281, 90], "output_lens": [64, 0], "ttfts": [0.191, 0.0], "itls": [[0.011, ..], []],
     "latencies": [0.91, 0.0], "start_times": [81234.5, 81234.9], "errors": ["", "Too Many Requests"]}

Source: vllm-project/vllm @009e6d4 (Apache-2.0), vllm/benchmarks/serve.py, lib/endpoint_request_func.py.
--append-result puts one run a line into one file. Times are s; start_times are of a monotonic clock
(perf_counter), so that they count from no date: runs on one machine compare. `date` is when the run ended, to
the second and without a zone, and is not used. Older versions have no latencies: an answer then lasts until
its last token (ttft and itls).
Pitfalls: a failed request has times and outputs of 0, which are unknown, and the length of its prompt; an
error is the reason phrase of an HTTP status or a traceback, of which the class alone is read. A run does not
say whether the server or the client's tokenizer counted. Without --save-detailed there are totals only. In
some versions itls are of chunks, which may hold several tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import msgspec
import numpy as np

from agentctl.errors import InputError
from agentctl.formats._cells import number, text, whole
from agentctl.formats._columns import Columns
from agentctl.formats._failures import status_of_error, status_of_http
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import LineDecoder
from agentctl.ingest.source import Chunk

NAME = "vllm_bench"
TITLE = "vllm bench serve --save-result --save-detailed (input_lens, ttfts, itls, start_times)"
CARRIES = (
    "request_id", "arrival_s", "ttft_s", "e2e_s", "prompt_tokens", "output_tokens", "model", "status",
    "http_status",
)  # fmt: skip
LACKS = "No dates, prompts, sessions, cached tokens, tenants, finish reasons, engine times or placement."
ONE_RECORD_A_LINE = False

_ARRAYS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors")
_TOTALS = {"date", "backend", "num_prompts", "duration", "request_throughput", "total_input_tokens"}
# Reason phrases of RFC 9110 that servers of models send, and of their proxies (client closed request).
_CODES = {
    "bad request": 400, "unauthorized": 401, "forbidden": 403, "not found": 404, "method not allowed": 405,
    "request timeout": 408, "content too large": 413, "request entity too large": 413,
    "unprocessable content": 422, "unprocessable entity": 422, "too many requests": 429,
    "client closed request": 499, "internal server error": 500, "not implemented": 501, "bad gateway": 502,
    "service unavailable": 503, "gateway timeout": 504,
}  # fmt: skip
_DATE = re.compile(r"[0-9][0-9T:-]{5,30}")
_REASON_CHARS = 64  # of a reason phrase; a longer text is something else


class Run(msgspec.Struct):
    date: str | None = None
    duration: Any = None
    model_id: str | None = None
    input_lens: list[Any] | None = None
    output_lens: list[Any] | None = None
    ttfts: list[Any] | None = None
    itls: list[Any] | None = None
    latencies: list[Any] | None = None
    start_times: list[Any] | None = None
    errors: list[Any] | None = None


def recognises(sample: Sample) -> bool:
    return sample.mostly(lambda keys: {*_ARRAYS[:4]} <= keys or keys >= _TOTALS)


def read(reading: Reading) -> Iterator[Batch]:
    decoder = LineDecoder(Run, reading.quarantine)
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        for line, run in zip(lines.lines.tolist(), lines.rows, strict=True):
            if batch := _batch(reading, chunk, line, run):
                yield batch


def _batch(reading: Reading, chunk: Chunk, line: int, run: Run) -> Batch | None:
    """The requests of one run; None where its arrays do not fit together."""
    arrays = [getattr(run, name) for name in _ARRAYS]
    if run.duration is not None and all(array is None for array in arrays):
        raise InputError(
            "holds the totals of a benchmark and no requests",
            place=f"{reading.source.name}:{line}",
            expected="the arrays " + ", ".join(_ARRAYS),
            hint="vllm bench serve --save-result --save-detailed writes them",
        )
    for name, array in zip(_ARRAYS, arrays, strict=True):
        if array is None or len(array) != len(arrays[0] or ()):
            reading.reject(chunk, line, "missing_field" if array is None else "array_length", f"$.{name}")
            return None
    n = len(arrays[0])
    places = [f"$[{k}]" for k in range(n)]  # of a request, in each of the arrays
    columns = Columns(reading, chunk, np.full(n, line, dtype=np.int64), within=places)
    _put(columns, run)
    return columns.batch()


def _put(columns: Columns, run: Run) -> None:
    """Ids are made of the run's date and a request's time and place: no two runs share them, and a run that
    is given twice shows."""
    prompt = columns.parse(whole, run.input_lens or (), "$.input_lens")
    output = columns.parse(whole, run.output_lens or (), "$.output_lens")
    start = columns.parse(number, run.start_times or (), "$.start_times")
    ttft = columns.parse(number, run.ttfts or (), "$.ttfts")
    gaps = columns.parse(_sum, run.itls or (), "$.itls")
    errors = columns.parse(text, run.errors or (), "$.errors")
    latencies = run.latencies or ()
    has_latencies = len(latencies) == columns.n
    lasted = columns.parse(number, latencies if has_latencies else [None] * columns.n, "$.latencies")
    known = [error is None for error in errors]
    columns.arrival(start, "$.start_times", "s")
    date = run.date if _DATE.fullmatch(run.date or "") else None  # nothing else is copied into a name
    columns.text("request_id", [f"{date}-{at}-{k}" for k, at in enumerate(start)])
    columns.tokens("prompt_tokens", [n or None for n in prompt], "$.input_lens")
    columns.tokens("output_tokens", _where(known, output), "$.output_lens")
    columns.seconds("ttft_s", [first or None for first in ttft], "$.ttfts")
    ends = [
        (first or 0.0) + (rest or 0.0) if end is None and first is not None else end
        for first, rest, end in zip(ttft, gaps, lasted, strict=True)
    ]
    columns.seconds("e2e_s", [end or None for end in ends], "$.latencies")
    columns.text("model", list(repeat(run.model_id, columns.n)))
    codes = [_CODES.get((error or "").strip().lower()) for error in errors]
    columns.put("status", [_status(*pair) for pair in zip(errors, codes, strict=True)])
    columns.tokens("http_status", codes, "$.errors")


def _where(known: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    return [value if is_known else None for value, is_known in zip(values, known, strict=True)]


def _sum(gaps: Any) -> float | None:
    """Seconds from the first token to the last."""
    if gaps is None:
        return None
    if not isinstance(gaps, list):
        raise ValueError
    return sum(number(gap) or 0.0 for gap in gaps)


def _status(error: str | None, code: int | None) -> str:
    if error is None:
        return "ok"
    if code is not None:
        return status_of_http(code) or "error"
    last = error.strip().split("\n")[-1].split(":")[0]
    return status_of_error(last) if len(last) <= _REASON_CHARS else "error"
