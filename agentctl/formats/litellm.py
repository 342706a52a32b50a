"""LiteLLM's own books: the table LiteLLM_SpendLogs as CSV or JSON lines, and what its callbacks log.

    request_id,call_type,prompt_tokens,completion_tokens,startTime,endTime,completionStartTime,model,metadata,...
    {"id": "chatcmpl-...", "call_type": "acompletion", "startTime": 1794474012.043, ..., "trace_id": "..."}

Source: BerriAI/litellm 1.110, schema.prisma (LiteLLM_SpendLogs) and types/utils.py (StandardLoggingPayload,
the second form: times in unix s). Tokens include cached ones; details are in metadata.usage_object and
additional_usage_values, the tenant in metadata.user_api_key_team_alias, failures in error_information.
request_id is the id of the answer, which carries the engine's id (chatcmpl-...). Messages are there when
store_prompts_in_spend_logs is on, in `messages` or in `proxy_server_request` by version.
Pitfalls:
- session_id is one per request unless callers send their own (issue 40851): ingest tests it.
- completionStartTime equals endTime when nothing was streamed: no first-token time.
- Failures have 0 tokens, and in some versions one time for start and end (issue 24888): unknown, not 0.
- cache_hit True: answered from the proxy's cache, never seen by an engine; status proxy_cache.
- call_type mixes embeddings, images, batches, tools: left out and counted, as are the proxy's health checks.
- Strings beyond 2,048 characters are cut ("litellm_truncated") unless configured: such prompts are unknown.
- Exports come newest first, cells exceed 128 KiB, and times without a zone are UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentctl.formats._cells import NS_PER, Instant, decimal, instant, nanoseconds, text, whole
from agentctl.formats._columns import Columns
from agentctl.formats._csv import read_csv
from agentctl.formats._failures import status_of_error, status_of_http
from agentctl.formats._litellm_metadata import DETAILS, ErrorInformation, Metadata, detail
from agentctl.formats._stored_bodies import json_text, sent_and_answered
from agentctl.formats._text import address
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import Fault, LineDecoder, ValueDecoder
from agentctl.ingest.source import Chunk

NAME = "litellm"
TITLE = "LiteLLM SpendLogs, CSV or JSON lines, and its callbacks' payload (request_id, call_type, startTime)"
CARRIES = (
    "arrival_s", "ttft_s", "e2e_s", "request_id", "session_id", "tenant", "model", "instance",
    "prompt_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens",
    "max_tokens", "status", "http_status", "finish_reason", "stream", "prompts",
)  # fmt: skip
LACKS = "No queueing or prefill times, and prompts only where the proxy stores them."
ROLE = "gateway"

_GENERATING = frozenset(
    {
        "completion", "acompletion", "text_completion", "atext_completion", "anthropic_messages", "responses",
        "aresponses", "generate_content", "agenerate_content", "generate_content_stream",
        "agenerate_content_stream", "",
    }
)  # fmt: skip
_EMBEDDING = frozenset({"embedding", "aembedding"})
_HEALTH_CHECK = "litellm-internal-health-check"  # team or key of the proxy's own probes
_NULL = msgspec.Raw(b"null")


class Row(msgspec.Struct):
    """The fields of both forms that are looked at; what is Any is checked cell by cell."""

    request_id: Any = None
    id: Any = None
    call_type: Any = None
    startTime: Any = None
    endTime: Any = None
    completionStartTime: Any = None
    prompt_tokens: Any = None
    completion_tokens: Any = None
    model: Any = None
    custom_llm_provider: Any = None
    api_base: Any = None
    team_id: Any = None
    session_id: Any = None
    trace_id: Any = None
    status: Any = None
    cache_hit: Any = None
    stream: Any = None
    metadata: msgspec.Raw = _NULL
    error_information: msgspec.Raw = _NULL
    model_parameters: msgspec.Raw = _NULL
    messages: msgspec.Raw = _NULL
    proxy_server_request: msgspec.Raw = _NULL
    response: msgspec.Raw = _NULL


_metadata = ValueDecoder(Metadata | None)
_error = ValueDecoder(ErrorInformation | None)

_NEEDED = ("request_id", "call_type", "startTime", "endTime", "prompt_tokens", "completion_tokens")


def recognises(sample: Sample) -> bool:
    if sample.csv_header:
        return set(_NEEDED) <= set(sample.csv_header)
    return sample.mostly(lambda keys: set(_NEEDED[1:]) <= keys and not keys.isdisjoint({"request_id", "id"}))


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin = "absolute"
    if Sample(reading.source.sample).csv_header and not reading.options.json_document:
        for table in read_csv(reading, _NEEDED):
            empty: tuple[Any, ...] = (None,) * table.lines.size
            cells = {name: table.cells.get(name, empty) for name in Row.__struct_fields__}
            yield from _batches(reading, table.chunk, table.lines, cells)
        return
    decoder = LineDecoder(Row, reading.quarantine, reading.folding("messages"))
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        if lines.rows:
            by_name = {name: [getattr(row, name) for row in lines.rows] for name in Row.__struct_fields__}
            yield from _batches(reading, chunk, lines.lines, by_name)


def _batches(
    reading: Reading, chunk: Chunk, lines: NDArray[np.int64], cells: Mapping[str, Sequence[Any]]
) -> Iterator[Batch]:
    """One batch of the records that generate; the others are dropped first."""
    found = [_metadata.decode(json_text(cell)) for cell in cells["metadata"]]
    kinds = zip(cells["call_type"], cells["team_id"], found, strict=True)
    keep = np.array([_generates(reading, *kind) for kind in kinds], dtype=np.bool_)
    if keep.any():
        kept = {name: list(compress(values, keep)) for name, values in cells.items()}
        yield _batch(reading, Columns(reading, chunk, lines[keep]), kept, list(compress(found, keep)))


def _generates(reading: Reading, call_type: Any, team: Any, metadata: Metadata | Fault | None) -> bool:
    if isinstance(call_type, str) and call_type not in _GENERATING:
        reading.drop("embedding" if call_type in _EMBEDDING else "not_a_completion")
        return False
    key = metadata.user_api_key_alias if isinstance(metadata, Metadata) else None
    if _HEALTH_CHECK in (team, key):
        reading.drop("health_check")
        return False
    return True


def _batch(
    reading: Reading, columns: Columns, cells: dict[str, list[Any]], found: list[Metadata | Fault | None]
) -> Batch:
    columns.reject(
        np.array([isinstance(one, Fault) for one in found], dtype=np.bool_), "wrong_type", "metadata"
    )
    metadata = [one if isinstance(one, Metadata) else Metadata() for one in found]
    status = _put_status(columns, cells, metadata)
    _put_times(reading, columns, cells, status)
    _put_tokens(columns, cells, metadata, status)
    _put_names(columns, cells, metadata)
    _put_sent(columns, cells)
    return columns.batch()


def _put_times(reading: Reading, columns: Columns, cells: dict[str, list[Any]], status: list[str]) -> None:
    start, end, first = (
        columns.parse(_reading(cells[name]), cells[name], name, required=name != "completionStartTime")
        for name in ("startTime", "endTime", "completionStartTime")
    )
    if any(time is not None and not time.zoned for time in start):
        reading.tz_assumed = "UTC"
    columns.arrival([time and time.ns for time in start], "startTime", "ns")
    lasts = [e and s and e.ns - s.ns for s, e in zip(start, end, strict=True)]
    unmeasured = [n == 0 and state in _FAILED for n, state in zip(lasts, status, strict=True)]
    e2e = [None if unknown else n for n, unknown in zip(lasts, unmeasured, strict=True)]
    columns.seconds("e2e_s", e2e, "endTime", NS_PER["s"])
    ttft = [
        f.ns - s.ns if s and e and f and f.ns != e.ns else None
        for s, e, f in zip(start, end, first, strict=True)
    ]
    columns.seconds("ttft_s", ttft, "completionStartTime", NS_PER["s"])


def _put_tokens(
    columns: Columns, cells: dict[str, list[Any]], metadata: list[Metadata], status: list[str]
) -> None:
    prompt, output = (
        columns.parse(whole, cells[name], name) for name in ("prompt_tokens", "completion_tokens")
    )
    unknown = [state in _FAILED and not n for n, state in zip(prompt, status, strict=True)]
    columns.tokens("prompt_tokens", [n or None for n in prompt], "prompt_tokens")
    columns.tokens("output_tokens", _unless(unknown, output), "completion_tokens")
    for name, paths in DETAILS.items():
        place = f"metadata.{paths[-1]}"
        counts = columns.parse(whole, _unless(unknown, [detail(one, paths) for one in metadata]), place)
        columns.tokens(name, counts, place)


def _unless(unknown: list[bool], values: list[Any]) -> list[Any]:
    return [None if is_unknown else value for value, is_unknown in zip(values, unknown, strict=True)]


def _put_names(columns: Columns, cells: dict[str, list[Any]], metadata: list[Metadata]) -> None:
    def names(*fields: str) -> list[str | None]:
        known = [columns.parse(text, cells[field], field) for field in fields]
        return [next((name for name in row if name), None) for row in zip(*known, strict=True)]

    request_ids = names("request_id", "id")
    columns.text("request_id", request_ids)
    columns.text("join_id", request_ids)
    columns.text("session_id", names("session_id", "trace_id"))
    pairs = zip(names("model"), names("custom_llm_provider"), strict=True)
    columns.text("model", [model and model.removeprefix(f"{provider}/") for model, provider in pairs])
    columns.text("instance", [address(url) for url in names("api_base")])
    teams = zip(metadata, names("team_id"), strict=True)
    columns.text(
        "tenant", [one.user_api_key_team_alias or team or one.user_api_key_team_id for one, team in teams]
    )


def _put_status(columns: Columns, cells: dict[str, list[Any]], metadata: list[Metadata]) -> list[str]:
    """Columns status and http_status; returns the status of each record."""
    words = columns.parse(text, cells["status"], "status")
    strange = [word not in (None, "success", "failure") for word in words]
    columns.reject(np.array(strange, dtype=np.bool_), "unknown_status", "status")
    own = [
        _error.decode(json_text(cell)) for cell in cells["error_information"]
    ]  # the callbacks' place for it
    columns.reject(np.array([isinstance(one, Fault) for one in own]), "wrong_type", "error_information")
    status: list[str] = []
    codes: list[int | None] = []
    for word, hit, one, error in zip(words, cells["cache_hit"], metadata, own, strict=True):
        if not isinstance(error, ErrorInformation):
            error = one.error_information or ErrorInformation()
        code = str(error.error_code)
        known = int(code) if code.isascii() and code.isdigit() and 100 <= int(code) <= 599 else None
        codes.append(known)
        status.append(_status(word, str(hit).lower() == "true", known, str(error.error_class)))
    columns.put("status", list(status))
    columns.tokens("http_status", codes, "error_code")
    return status


def _status(word: str | None, is_hit: bool, code: int | None, error_class: str) -> str:
    if is_hit:
        return "proxy_cache"
    if by_code := status_of_http(code):
        return by_code
    return status_of_error(error_class) if word == "failure" else "ok"


_FAILED = ("error", "aborted", "timeout", "rejected")


def _put_sent(columns: Columns, cells: dict[str, list[Any]]) -> None:
    fields = ("messages", "proxy_server_request", "model_parameters", "response", "stream")
    sent = [sent_and_answered(*row) for row in zip(*(cells[field] for field in fields), strict=True)]
    columns.put("stream", [one.stream for one in sent])
    columns.tokens("max_tokens", [one.max_tokens for one in sent], "max_tokens")
    columns.text("finish_reason", [one.finish_reason for one in sent])
    if any(one.prompt for one in sent):
        columns.prompts([one.prompt for one in sent])


def _reading(cells: list[Any]) -> Callable[[Any], Instant | None]:
    """How times are read: all at once where they are dates."""
    return instant if set(map(type, cells)) == {str} else _instant


def _instant(value: Any) -> Instant | None:
    """Unix seconds, or a date, which is UTC when it does not say otherwise."""
    if isinstance(value, str):
        return instant(value)
    seconds = decimal(value)
    return None if seconds is None else Instant(nanoseconds(seconds, "s"), True)
