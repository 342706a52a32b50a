"""Weka / kv-cache-tester capture: one coding-agent session an object, its sub-agents nested.

    {"id": "trace_0277", "block_size": 64, "hash_id_scope": "local", "requests": [
      {"t": 0.0, "type": "n", "model": "...", "in": 19560, "out": 1017, "hash_ids": [1, 2, ...],
       "input_types": ["text"], "stop": "tool_use", "api_time": 18.78, "think_time": 0.0},
      {"t": 79.224, "type": "subagent", "agent_id": "agent_001", "status": "completed", "duration_ms": 59750,
       "requests": [...]}]}

Source: callanjfox/kv-cache-tester, traces/ (also published as cc-traces). `t` s since the session's start, of
requests in whole seconds; `type` n (not streamed), s (streamed, may have `ttft` s) or subagent; `in` is the
whole prompt; floor(in / block_size) ids; `think_time` s from the end of the line's previous request; `stop`
"" is unknown. Sessions have no absolute time: their starts are synthesised.
Pitfalls:
- ids of scope local mean nothing outside their session.
- `t` of a completed sub-agent is when its result came back; it began `duration_ms` earlier, when the request
  that spawned it ended (within 0.1 to 1.1 s for all 32 of the first half of the public files). Of a sub-agent
  launched in the background, and in older files, `t` is the start itself. The one that fits the spawning
  request's end is taken.
- Times inside a sub-agent count from its start in some files and from the session's in others: any below the
  start means the former.
- `think_time` of a line's first request means nothing; api_time and think_time can be null; outputs can be 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from agentctl.formats._columns import Columns
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import Fault, LineDecoder, ValueDecoder
from agentctl.ingest.source import Chunk

NAME = "weka"
TITLE = "Weka / kv-cache-tester JSON, one session an object (id, block_size, requests[t, in, out, hash_ids])"
CARRIES = (
    "request_id", "arrival_s", "ttft_s", "e2e_s", "gap_s", "prompt_tokens", "output_tokens", "hash_ids",
    "block_tokens", "session_id", "agent_path", "origin", "model", "finish_reason", "stream",
)  # fmt: skip
LACKS = (
    "No absolute times, so session starts are synthesised; no reuse across sessions; no placement or errors."
)
ONE_RECORD_A_LINE = False

MAX_NESTING = 8  # sub-agents of sub-agents
_SPAWN_SLACK = 2.0  # s between the end of a request and the start of what it spawns; t is rounded to 1 s


class Session(msgspec.Struct):
    id: str | int
    requests: list[msgspec.Raw]
    block_size: int
    hash_id_scope: str = "local"


class Request(msgspec.Struct, tag_field="type", tag="n"):
    t: float
    prompt: int = msgspec.field(name="in")
    output: int = msgspec.field(name="out")
    hash_ids: msgspec.Raw = msgspec.Raw(b"null")
    model: str | None = None
    input_types: list[str] | None = None
    stop: str | None = None
    api_time: float | None = None
    think_time: float | None = None
    ttft: float | None = None


class Streamed(Request, tag="s"):
    pass


class SubAgent(msgspec.Struct, tag_field="type", tag="subagent"):
    t: float
    requests: list[msgspec.Raw]
    agent_id: str | int | None = None
    duration_ms: float | None = None


def recognises(sample: Sample) -> bool:
    return sample.mostly({"id", "block_size", "requests"}.issubset)


class Placed(NamedTuple):
    """A request and what its place in the session says about it."""

    request: Request
    path: str  # in the line
    session: Session
    line: int
    agent: str | None
    link: str
    turn: int  # in its agent line
    arrival: float
    spawn_link: str | None


def read(reading: Reading) -> Iterator[Batch]:
    decoder = LineDecoder(Session, reading.quarantine)
    reading.time_origin, reading.resolution_s = "session", 1.0
    reading.hash_scope = ""  # as the first session says
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        placed: list[Placed] = []
        for session, line in zip(lines.rows, lines.lines.tolist(), strict=True):
            placed += _unfold(session, line, reading, chunk)
        if placed:
            yield _batch(placed, reading, chunk)
    reading.hash_scope = reading.hash_scope or "session"


def _unfold(session: Session, line: int, reading: Reading, chunk: Chunk) -> list[Placed]:
    """The requests of one session, those of its sub-agents in their place."""
    scope = "global" if session.hash_id_scope == "global" else "session"
    if session.id == "":
        reading.reject(chunk, line, "missing_field", "$.id")
    elif not 1 <= session.block_size <= 1 << 20:
        reading.reject(chunk, line, "out_of_range", "$.block_size")
    elif (reading.hash_scope or scope) != scope:
        reading.reject(chunk, line, "mixed_hash_scope", "$.hash_id_scope")
    else:
        reading.hash_scope = scope
        unfolding = _Unfolding(session, line, reading, chunk)
        unfolding.add(session.requests, "$.requests")
        if not unfolding.placed and not unfolding.n_bad:
            reading.drop("session_without_requests")
        return unfolding.placed
    return []


class _Unfolding:
    """Walks through a session. `placed`: requests so far, in the order of the file."""

    decoder = ValueDecoder(Request | Streamed | SubAgent)

    def __init__(self, session: Session, line: int, reading: Reading, chunk: Chunk) -> None:
        self._session, self._line, self._reading, self._chunk = session, line, reading, chunk
        self._turns: Counter[str | None] = Counter()
        self.placed: list[Placed] = []
        self.n_bad = 0

    def add(
        self,
        items: Sequence[msgspec.Raw],
        path: str,
        agent: str | None = None,
        origin: float = 0.0,
        spawn_link: str | None = None,
        depth: int = 0,
    ) -> None:
        """Requests and sub-agents of one list; their `t` counts from `origin`."""
        previous: Placed | None = None
        for index, raw in enumerate(items):
            item, place = self.decoder.decode(raw), f"{path}[{index}]"
            if isinstance(item, Fault):
                self._reject(item.reason, place + (item.path or "$").removeprefix("$"))
            elif isinstance(item, Request):
                turn = self._turns[agent]
                link = "/".join(str(part) for part in (self._session.id, agent, turn) if part is not None)
                previous = Placed(
                    item, place, self._session, self._line, agent, link, turn, origin + item.t, spawn_link
                )
                self.placed.append(previous)
                self._turns[agent] += 1
            elif depth == MAX_NESTING:
                self._reject("nested_too_deep", place)
            else:
                name = f"agent_{index}" if item.agent_id is None else str(item.agent_id)
                start = _start(item, previous)
                if not _counts_from_start(item, start):
                    start = 0.0
                self.add(
                    item.requests,
                    f"{place}.requests",
                    name if agent is None else f"{agent}/{name}",
                    origin + start,
                    previous.link if previous else spawn_link,
                    depth + 1,
                )

    def _reject(self, reason: str, path: str) -> None:
        self.n_bad += 1
        self._reading.reject(self._chunk, self._line, reason, path)


class _Time(msgspec.Struct):
    t: float = math.inf


_time = ValueDecoder(_Time)


def _start(agent: SubAgent, spawner: Placed | None) -> float:
    """When a sub-agent began, on the clock of its `t`."""
    if agent.duration_ms is None or spawner is None:
        return agent.t
    began = agent.t - agent.duration_ms / 1000.0
    after = began - spawner.request.t
    if spawner.request.api_time is None:
        return began if after >= 0 else agent.t
    return began if abs(after - spawner.request.api_time) <= _SPAWN_SLACK else agent.t


def _counts_from_start(agent: SubAgent, start: float) -> bool:
    """The times inside the sub-agent count from its start, not from where its own `t` does."""
    times = [item for raw in agent.requests if not isinstance(item := _time.decode(raw), Fault)]
    return any(item.t < math.floor(start) for item in times)


def _batch(placed: list[Placed], reading: Reading, chunk: Chunk) -> Batch:
    requests = [row.request for row in placed]
    lines = np.array([row.line for row in placed], dtype=np.int64)
    columns = Columns(reading, chunk, lines, within=[row.path for row in placed])
    columns.tokens("prompt_tokens", [request.prompt for request in requests], "$.in")
    columns.tokens("output_tokens", [request.output for request in requests], "$.out")
    columns.arrival([row.arrival for row in placed], "$.t", "s")
    columns.ids([request.hash_ids for request in requests], "$.hash_ids")
    columns.seconds("e2e_s", [request.api_time for request in requests], "$.api_time")
    columns.seconds("ttft_s", [request.ttft for request in requests], "$.ttft")
    thinks = [row.request.think_time if row.turn else None for row in placed]
    columns.seconds("think_s", thinks, "$.think_time")
    columns.text("model", [request.model for request in requests])
    columns.text("finish_reason", [request.stop for request in requests])
    columns.put("stream", [isinstance(request, Streamed) for request in requests])
    columns.text("session_id", [row.session.id for row in placed])
    columns.put("block_tokens", np.array([row.session.block_size for row in placed], dtype=np.int64))
    columns.text("agent_path", [row.agent for row in placed])
    columns.text("request_id", [row.link for row in placed])
    columns.text("link", [row.link for row in placed])
    columns.text("spawn_link", [row.spawn_link for row in placed])
    columns.put("is_resumed", [_is_resumed(row) for row in placed])
    return columns.batch()


def _is_resumed(row: Placed) -> bool:
    """A session cannot begin with the result of a tool."""
    is_first = row.turn == 0 and row.agent is None
    return is_first and "tool_result" in (row.request.input_types or ())
