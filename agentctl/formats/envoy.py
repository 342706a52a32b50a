"""Access log of the Envoy AI Gateway, JSON lines. Operators choose its fields; --map names other ones.

    {"start_time": "2026-11-12T09:00:12.043Z", "duration": 474, "method": "POST", "response_code": 200,
     "response_flags": "-", "x-envoy-origin-path": "/v1/chat/completions", "upstream_host": "10.42.7.4:8000",
     "gen_ai.request.model": "...", "gen_ai.response.model": "...", "gen_ai.usage.input_tokens": 1281,
     "gen_ai.usage.output_tokens": 26, "gen_ai.usage.cached_input_tokens": 0, "x-request-id": "698d51a1-...",
     "session.id": "sess-8f4d3e27"}

Source: envoyproxy/ai-gateway, examples/access-log/basic.yaml and its page on access logs; Envoy's access log
operators (START_TIME, DURATION, RESPONSE_FLAGS, UPSTREAM_HOST). `start_time` ISO, ms; `duration` ms to the
last byte; input tokens include cached ones; the session is the header agent-session-id. `--map COLUMN=FIELD`
takes a column from another field, `--join FIELD` the common id (else x-request-id).
Pitfalls:
- Tokens are null on failures, and where the gateway was not told to count them.
- A client that goes away is response_code 0 or 200 with the flag DC. UT, DT, SI: timeouts; RL, RLSE, UO, DO:
  refused. Without a flag the code decides.
- x-envoy-upstream-service-time is the time to the response's headers: near the first token of a stream, the
  whole response otherwise. It counts only when mapped (--map ttft_ms=x-envoy-upstream-service-time).
- Model lists, health checks, embeddings and tool calls are in the same log: left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentctl.formats._clock import Clock
from agentctl.formats._columns import Columns
from agentctl.formats._mapping import TIMES, Field, named
from agentctl.formats._tables import Cells, tables
from agentctl.formats._text import address
from agentctl.formats.base import Batch, Reading, ReadOptions, Sample
from agentctl.formats.generic import fill, status_of, take_time

NAME = "envoy"
TITLE = "Envoy AI Gateway access log, JSON lines (start_time, duration, response_code, gen_ai.usage.*)"
CARRIES = (
    "arrival_s", "e2e_s", "ttft_s", "request_id", "session_id", "model", "instance", "prompt_tokens",
    "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "status", "http_status",
)  # fmt: skip
LACKS = "No prompts, queueing or prefill times; first-token times and token details only where configured."
ROLE = "gateway"
MAPPABLE = True

# Column -> fields that may hold it, the first that is there wins.
_FIELDS: dict[str, tuple[str, ...]] = {
    "arrival": ("start_time",),
    "e2e_ms": ("duration",),
    "ttft_ms": ("token_latency_ttft",),
    "request_id": ("x-request-id",),
    "session_id": ("session.id", "agent-session-id"),
    "model": ("gen_ai.response.model", "gen_ai.request.model"),
    "instance": ("upstream_host",),
    "prompt_tokens": ("gen_ai.usage.input_tokens", "llm_input_token"),
    "output_tokens": ("gen_ai.usage.output_tokens", "llm_output_token"),
    "cached_tokens": (
        "gen_ai.usage.cached_input_tokens", "gen_ai.usage.cache_read.input_tokens", "llm_cached_input_token",
    ),
    "cache_write_tokens": (
        "gen_ai.usage.cache_creation_input_tokens", "gen_ai.usage.cache_creation.input_tokens",
        "llm_cache_creation_input_token",
    ),
    "reasoning_tokens": ("gen_ai.usage.reasoning_tokens", "gen_ai.usage.reasoning.output_tokens"),
    "http_status": ("response_code",),
}  # fmt: skip
_BESIDE = {
    "method": ("method",),
    "path": ("x-envoy-origin-path", "path"),
    "flags": ("response_flags",),
}
_COMPLETIONS = (
    "/completions", "/messages", "/responses", ":generateContent", ":streamGenerateContent", "/converse",
    "/converse-stream", "/invoke", "/invoke-with-response-stream",
)  # fmt: skip
_BY_FLAG = (
    ("aborted", {"DC"}),
    ("timeout", {"UT", "DT", "SI"}),
    ("rejected", {"RL", "RLSE", "UO", "DO"}),
    ("error", {"UF", "UH", "UR", "UC", "LR", "LH", "NR", "URX", "UPE", "DPE", "FI", "NC"}),
)  # fmt: skip


def recognises(sample: Sample) -> bool:
    return sample.mostly(
        lambda keys: (
            {"start_time", "response_code"} <= keys
            and any(key.startswith(("gen_ai.", "llm_")) for key in keys)
        )
    )


def read(reading: Reading) -> Iterator[Batch]:
    own, sources = _sources(reading.options)
    asked = [
        Field(f"{name}/{k}", path, None) for name, paths in sources.items() for k, path in enumerate(paths)
    ]
    clocks = {name: Clock(field, reading) for name, field in own.items() if name in TIMES}
    for cells in tables(reading, asked):
        values = {name: _first(cells, name, len(paths)) for name, paths in sources.items()}
        kinds = zip(values["method"], values["path"], strict=True)
        keep = np.array([_is_completion(reading, *kind) for kind in kinds], dtype=np.bool_)
        if keep.any():
            yield _batch(reading, own, clocks, cells, keep, values)
            take_time(reading, clocks["arrival"])


def _sources(options: ReadOptions) -> tuple[dict[str, Field], dict[str, tuple[str, ...]]]:
    """The columns, and the fields in which each of them, and what decides about a record, is looked for."""
    own = named(options.column_map)
    mapped = {name: (field.path,) for name, field in own.items()}
    defaults = named({name: paths[0] for name, paths in _FIELDS.items()})
    paths = dict(zip(defaults, _FIELDS.values(), strict=True))
    own = defaults | own
    own["join_id"] = Field("join_id", options.join or "x-request-id", None)
    return own, paths | mapped | _BESIDE | {"join_id": (own["join_id"].path,)}


def _first(cells: Cells, name: str, n: int) -> list[Any]:
    """The first known value of each record; Envoy writes "-" for what it does not know."""
    known = [None] * cells.lines.size
    for k in range(n):
        values = cells.values[f"{name}/{k}"]
        known = [
            new if old is None and new not in ("", "-") else old
            for old, new in zip(known, values, strict=True)
        ]
    return known


def _is_completion(reading: Reading, method: Any, path: Any) -> bool:
    """The record is of a request to a model that generates; else it is counted and left out."""
    if isinstance(path, str):
        path = path.partition("?")[0]
        if path.endswith("/embeddings"):
            reading.drop("embedding")
            return False
    if method not in (None, "POST") or (isinstance(path, str) and not path.endswith(_COMPLETIONS)):
        reading.drop("not_a_completion")
        return False
    return True


def _batch(
    reading: Reading,
    own: dict[str, Field],
    clocks: dict[str, Clock],
    cells: Cells,
    keep: NDArray[np.bool_],
    values: Mapping[str, Sequence[Any]],
) -> Batch:
    columns = Columns(reading, cells.chunk, cells.lines[keep])
    kept = {name: list(compress(column, keep)) for name, column in values.items()}
    kept["http_status"] = [None if code in (0, "0") else code for code in kept["http_status"]]
    kept["prompt_tokens"] = [None if n in (0, "0") else n for n in kept["prompt_tokens"]]
    fill(columns, own, clocks, kept)
    columns.put("session_header", [True if id_ else None for id_ in kept["session_id"]])
    columns.text("instance", [address(str(host)) if host else None for host in kept["instance"]])
    if "status" not in own:
        columns.put("status", [_status(*row) for row in zip(kept["flags"], kept["http_status"], strict=True)])
    return columns.batch()


def _status(flags: Any, code: Any) -> str | None:
    given = set(flags.split(",")) if isinstance(flags, str) else set()
    by_flag = next((status for status, known in _BY_FLAG if given & known), None)
    try:
        return by_flag or status_of(None if code is None else int(code))
    except (TypeError, ValueError):  # already set aside
        return None
