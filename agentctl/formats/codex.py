"""Codex rollout file (~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl): everything that happened, a row each.

    {"timestamp": "2026-03-21T10:05:59.326Z", "type": "session_meta", "payload": {"id": "01a7c9e4-...", ...}}
    {"timestamp": "...", "type": "turn_context", "payload": {"turn_id": "01a7c9e4-...", "model": "gpt-5.4"}}
    {"timestamp": "...", "type": "response_item", "payload": {"type": "function_call_output", ...}}
    {"timestamp": "...", "type": "event_msg", "payload": {"type": "token_count", "info": {
      "last_token_usage": {"input_tokens": 9324, "cached_input_tokens": 6912, "output_tokens": 444,
        "reasoning_output_tokens": 199}, "total_token_usage": {..., "total_tokens": 9768}}}}

Source: openai/codex 0.114 (codex-rs, RolloutItem). A token_count with an `info` ends a call; its last usage
is the call's. Input counts hold the cached tokens, output counts the reasoning.
arrival   the latest input (message, tool output) before the call's first output
e2e       until the token_count
Pitfalls:
- A token_count may be repeated, or have info null: totals that did not grow are no call.
- Totals are cumulative. They check the last usage; where they differ, a warning counts it.
- Files of sub-agents and forks begin with a copy of their parent's rows, stamped with the time of the copy or
  not (ccusage #950: counted 91 times). Ids are UUIDs of version 7, which begin with their time: a turn whose
  id is older than the file's session id is copied; where turns have no ids, several token_counts of one time.
- No first-token time; no tool definitions and encrypted reasoning, so the text is no prompt: it is not looked
  at, and no blocks are made of it. Calls that failed or were interrupted have no usage and no row.
The order of the lines is the order of events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from agentctl.formats._cells import NS_PER, instant
from agentctl.formats._columns import Columns
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import Fault, LineDecoder, ValueDecoder
from agentctl.ingest.source import Chunk

NAME = "codex"
TITLE = "Codex rollout JSONL (timestamp, type, payload; token_count events)"
CARRIES = (
    "request_id", "arrival_s", "e2e_s", "prompt_tokens", "output_tokens", "cached_tokens",
    "reasoning_tokens", "session_id", "agent_path", "parent_request_id", "model",
     "n_assistant", "n_tool_calls_out",
)  # fmt: skip
LACKS = "No first-token times, tool definitions or failed calls, so no block chains; no placement."
ONE_RECORD_A_LINE = False

_TOOL_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS = ("reasoning", "web_search_call", "agent_message", "agent_reasoning", *_TOOL_CALLS)
_MATTERS = ("session_meta", "turn_context", "event_msg")  # rows whose payload must be readable
_UUID7 = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-", re.IGNORECASE)
_KINDS = (b'"session_meta"', b'"turn_context"', b'"response_item"', b'"event_msg"')


class Usage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int | None = None
    reasoning_output_tokens: int | None = None


class Info(msgspec.Struct):
    last_token_usage: Usage | None = None
    total_token_usage: Usage | None = None


class Spawn(msgspec.Struct):
    parent_thread_id: str | None = None


class SubAgent(msgspec.Struct):
    thread_spawn: Spawn | None = None


class Source(msgspec.Struct):
    subagent: SubAgent | str | None = None


class Payload(msgspec.Struct):
    """Of any kind of row, as far as it matters."""

    type: str | None = None
    id: str | None = None
    role: str | None = None
    model: str | None = None
    turn_id: str | None = None
    parent_thread_id: str | None = None
    forked_from_id: str | None = None
    source: Source | str | None = None
    info: Info | None = None


class Row(msgspec.Struct):
    timestamp: str
    type: str
    payload: msgspec.Raw


class Call(NamedTuple):
    line: int
    session: str | None
    parent: str | None  # session that started this one
    number: int  # in its session
    arrival: int  # ns since 1970
    end: int
    model: str | None
    n_tools: int
    n_assistant: int
    usage: Usage


def recognises(sample: Sample) -> bool:
    return any(kind in sample.text for kind in _KINDS) and sample.mostly(
        {"timestamp", "type", "payload"}.issubset
    )


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin = "absolute"
    decoder, rollout = LineDecoder(Row, reading.quarantine), _Rollout(reading)
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        calls = []
        for row, line in zip(lines.rows, lines.lines.tolist(), strict=True):
            if (call := rollout.add(row, line, chunk)) is not None:
                calls.append(call)
        if calls:
            yield _batch(calls, reading, chunk)
    if rollout.n_differ:
        reading.warnings.append(
            f"{reading.source.name}: {rollout.n_differ:,} calls do not add to the totals what they say"
        )


class _Rollout:
    """Where the reading of a file stands."""

    _payload = ValueDecoder(Payload)

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._start(None, None)
        self.n_differ = 0  # calls whose usage is not the growth of the totals

    def _start(self, session: str | None, parent: str | None) -> None:
        self._session, self._parent = session, parent
        self._is_fork = parent is not None
        self._is_copy = False  # inside rows copied from the parent
        self._copied_at: int | None = None  # when the head of the file was written
        self._number = self._n_assistant = 0
        self._total: Usage | None = None
        self._model: str | None = None
        self._last_end: int | None = None
        self._await_call(None)

    def _await_call(self, latest_input: int | None) -> None:
        self._input = latest_input
        self._next_input: int | None = None  # after the first output: the next call's
        self._has_output, self._n_tools = False, 0

    def add(self, row: Row, line: int, chunk: Chunk) -> Call | None:
        """The call that this row ends, if it does."""
        payload = self._payload.decode(row.payload)
        if isinstance(payload, Fault):
            if row.type in _MATTERS:
                path = "$.payload" + (payload.path or "$").removeprefix("$")
                self._reading.reject(chunk, line, payload.reason, path)
                return None
            payload = Payload()
        if (time := _time(row.timestamp)) is None:
            self._reading.reject(chunk, line, "wrong_type", "$.timestamp")
            return None
        if row.type == "event_msg" and payload.type == "token_count" and payload.info:
            return self._end_call(payload.info, time, line)
        self._reading.n_other_lines += 1
        self._see(row.type, payload, time)
        return None

    def _see(self, kind: str, payload: Payload, time: int) -> None:
        """A row between calls, or inside one."""
        if kind == "session_meta":
            self._see_session(payload, time)
        elif payload.type in _OUTPUTS or (payload.type == "message" and payload.role == "assistant"):
            self._has_output = True
            self._n_tools += kind == "response_item" and payload.type in _TOOL_CALLS
        elif kind in ("response_item", "turn_context", "compacted") or payload.type == "user_message":
            if self._has_output:
                self._next_input = time
            else:
                self._input = time
        if kind == "compacted":
            self._n_assistant = 0
        if kind == "turn_context":
            self._model = payload.model or self._model
        if kind == "turn_context" or payload.type == "task_started":
            is_older = _is_older(payload.turn_id, self._session)
            self._is_copy = self._is_copy if is_older is None else is_older

    def _see_session(self, payload: Payload, time: int) -> None:
        """The first one is the file's own, an older one its parent's; a younger one begins another file."""
        is_copied = self._session is not None and _is_older(payload.id, self._session) is not False
        if not is_copied:
            self._start(payload.id, _parent(payload))
        self._is_fork = self._is_fork or is_copied or payload.forked_from_id is not None
        self._copied_at = time

    def _end_call(self, info: Info, time: int, line: int) -> Call | None:
        usage, total, before = info.last_token_usage, info.total_token_usage, self._total
        if usage is None or (total is not None and total == before):
            self._reading.drop("repeated_usage")
            return None
        is_copy = self._is_copy or (self._is_fork and time in (self._copied_at, self._last_end))
        arrival = self._last_end if self._input is None else self._input
        n_tools, n_assistant = self._n_tools, self._n_assistant
        self._total, self._last_end, self._n_assistant = total, time, n_assistant + 1
        self._await_call(self._next_input)
        if is_copy or arrival is None:
            self._reading.drop("copied_history" if is_copy else "input_not_in_file")
            return None
        if before or not self._is_fork:
            self.n_differ += _differs(usage, total, before)
        self._number += 1
        about = (self._model, n_tools, n_assistant, usage)
        return Call(line, self._session, self._parent, self._number - 1, min(arrival, time), time, *about)


def _time(timestamp: str) -> int | None:
    try:
        time = instant(timestamp)
    except ValueError:
        return None
    return time and time.ns


def _is_older(one: str | None, other: str | None) -> bool | None:
    """Whether one UUID of version 7 was made before another (to the ms); None: they do not say."""
    first, second = _UUID7.match(one or ""), _UUID7.match(other or "")
    return None if first is None or second is None else first.groups() < second.groups()


def _parent(payload: Payload) -> str | None:
    """The session that started this sub-agent."""
    subagent = payload.source.subagent if isinstance(payload.source, Source) else None
    spawn = subagent.thread_spawn if isinstance(subagent, SubAgent) else None
    return spawn.parent_thread_id if spawn and spawn.parent_thread_id else payload.parent_thread_id


def _differs(usage: Usage, total: Usage | None, before: Usage | None) -> bool:
    if total is None:
        return False
    base = before or Usage(0, 0)
    growth = (total.input_tokens - base.input_tokens, total.output_tokens - base.output_tokens)
    return growth != (usage.input_tokens, usage.output_tokens)


def _batch(calls: list[Call], reading: Reading, chunk: Chunk) -> Batch:
    columns = Columns(reading, chunk, np.array([call.line for call in calls], dtype=np.int64))
    columns.arrival([call.arrival for call in calls], "$.timestamp", "ns")
    columns.seconds("e2e_s", [call.end - call.arrival for call in calls], "$.timestamp", NS_PER["s"])
    columns.text("request_id", [_name(call, call.number) for call in calls])
    columns.text("link", [_name(call, call.number) for call in calls])
    columns.text("previous_link", [_name(call, call.number - 1) for call in calls])
    columns.text("agent_line", [call.session for call in calls])
    columns.text("parent_agent_line", [call.parent for call in calls])
    columns.text("model", [call.model for call in calls])
    columns.tokens("n_tool_calls_out", [call.n_tools for call in calls], "$.payload")
    columns.tokens("n_assistant", [call.n_assistant for call in calls], "$.payload")
    for column, field, low in (
        ("prompt_tokens", "input_tokens", 1),
        ("cached_tokens", "cached_input_tokens", 0),
        ("output_tokens", "output_tokens", 0),
        ("reasoning_tokens", "reasoning_output_tokens", 0),
    ):
        values = [getattr(call.usage, field) for call in calls]
        columns.tokens(column, values, f"$.payload.info.last_token_usage.{field}", low=low)
    return columns.batch()


def _name(call: Call, number: int) -> str | None:
    return None if call.session is None or number < 0 else f"{call.session}/{number}"
