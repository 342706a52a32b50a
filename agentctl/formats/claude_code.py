"""Claude Code session file (~/.claude/projects/PROJECT/SESSION.jsonl, its sub-agents' files beside it).

    {"type": "assistant", "uuid": "...", "parentUuid": "...", "sessionId": "...", "requestId": "req_...",
     "isSidechain": false, "timestamp": "2026-06-01T05:40:29.420Z",
     "message": {"id": "msg_...", "model": "...", "stop_reason": "tool_use", "content": [{...}],
       "usage": {"input_tokens": 2892, "cache_creation_input_tokens": 2163,
                 "cache_read_input_tokens": 27217, "output_tokens": 931}}}

Source: Claude Code 2.1 (rows user, assistant, system, attachment, ... form a tree by parentUuid). A row is
written for every content block when it is complete; all blocks of one LLM call have one message.id and repeat
its usage, so that rows are put together (10 calls in 25 rows of the sample; summed by row, tokens come out 2
to 4 times too high: ccusage #976, #994). The three input counts are disjoint: the prompt is their sum.
arrival   when the input was complete: the latest row between the previous call and this one's first block
e2e       until the last block was written
previous  the nearest call up the tree; over a compact_boundary by logicalParentUuid
Pitfalls:
- No first-token time: the first block, often a long one, is only an upper bound. ttft stays unknown.
- No system prompt and no tool definitions, tens of thousands of tokens: the text here is the smaller part of
  a prompt. So no blocks are made of it; reuse is what cached_tokens report. The text is not looked at.
- Usage on early rows may be partial: the largest output counts (ccusage #797).
- requestId may be missing; some gateways send one constant message.id: then other input counts behind
  another row mean another call.
- Resumed sessions may copy their history into a new file: ingest drops what it has seen under the same id.
- Sub-agents (isSidechain, agentId) are in the session that started them, in old versions in its own file.
- <synthetic> answers and API errors are no calls that an engine served: left out and counted.
Memory grows with the number of rows (half a kilobyte each), not with their text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from agentctl.formats._cells import NS_PER, instant
from agentctl.formats._columns import Columns
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import Fault, LineDecoder, ValueDecoder
from agentctl.ingest.source import Chunk

NAME = "claude_code"
TITLE = "Claude Code session JSONL (sessionId, parentUuid, message.usage; one call over several rows)"
CARRIES = (
    "request_id", "arrival_s", "e2e_s", "prompt_tokens", "output_tokens", "cached_tokens",
    "cache_write_tokens", "session_id", "agent_path", "parent_request_id", "model", "finish_reason",
    "n_assistant", "n_tool_calls_out",
)  # fmt: skip
LACKS = "No first-token times, system prompts or tools, so no block chains; no failed calls or placement."
ONE_RECORD_A_LINE = False

_SYNTHETIC = "<synthetic>"
_CALLS_A_BATCH = 4096


class Usage(msgspec.Struct):
    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def inputs(self) -> tuple[int | None, ...]:
        return self.input_tokens, self.cache_creation_input_tokens, self.cache_read_input_tokens


class Block(msgspec.Struct):
    type: str | None = None


class Message(msgspec.Struct):
    id: str
    model: str | None = None
    stop_reason: str | None = None
    usage: Usage = msgspec.field(default_factory=Usage)
    content: msgspec.Raw = msgspec.Raw(b"null")


class Row(msgspec.Struct):
    type: str
    uuid: str | None = None
    parentUuid: str | None = None
    logicalParentUuid: str | None = None
    sessionId: str | None = None
    agentId: str | None = None
    requestId: str | None = None
    isSidechain: bool | None = None
    isApiErrorMessage: bool | None = None
    timestamp: str | None = None
    message: msgspec.Raw = msgspec.Raw(b"null")


class Answer(NamedTuple):
    """What one row of a call says."""

    uuid: str
    line: int
    time: int  # ns since 1970
    session: str | None
    agent: str | None  # None: the main line; "": a sub-agent without a name
    name: str  # of the call
    model: str | None
    usage: Usage
    stop_reason: str | None
    n_tools: int


class Entry(NamedTuple):
    """A row as a node of the tree."""

    parent: str | None
    logical_parent: str | None
    time: int | None


class Call(NamedTuple):
    """Rows of one call, in order of time, and what the tree says of it."""

    rows: list[Answer]
    name: str
    agent: str | None
    arrival: int
    previous: str | None  # name of the call that it continues
    n_assistant: int


def recognises(sample: Sample) -> bool:
    return b'"parentUuid"' in sample.text and sample.mostly(
        lambda keys: "type" in keys and not keys.isdisjoint({"sessionId", "snapshot", "leafUuid"})
    )


def read(reading: Reading) -> Iterator[Batch]:
    session = _Session(reading)
    reading.time_origin = "absolute"
    decoder = LineDecoder(Row, reading.quarantine)
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        for row, line in zip(lines.rows, lines.lines.tolist(), strict=True):
            session.add(row, line, chunk)
    calls = session.calls()
    for start in range(0, len(calls), _CALLS_A_BATCH):
        yield _batch(calls[start : start + _CALLS_A_BATCH], reading)


class _Session:
    """The tree of rows of one file, and its answers."""

    _message = ValueDecoder(Message)
    _blocks = ValueDecoder(list[Block])

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._entries: dict[str, Entry] = {}
        self._answers: dict[tuple[str | None, str], list[Answer]] = {}  # by session and name

    def add(self, row: Row, line: int, chunk: Chunk) -> None:
        time = _time(row.timestamp)
        if row.type != "assistant" or row.uuid is None or row.uuid in self._entries:
            self._reading.n_other_lines += 1
        elif isinstance(message := self._message.decode(row.message), Fault):
            path = (message.path or "$").removeprefix("$")
            self._reading.reject(chunk, line, message.reason, f"$.message{path}")
        elif row.isApiErrorMessage or message.model == _SYNTHETIC:
            self._reading.drop("api_error" if row.isApiErrorMessage else "synthetic")
        elif time is None:
            self._reading.reject(chunk, line, "wrong_type", "$.timestamp")
        else:
            name = f"{message.id}:{row.requestId}" if row.requestId else message.id
            agent = row.agentId or ("" if row.isSidechain else None)
            blocks = self._blocks.decode(message.content)
            n_tools = 0 if isinstance(blocks, Fault) else sum(block.type == "tool_use" for block in blocks)
            about = (message.model, message.usage, message.stop_reason, n_tools)
            answer = Answer(row.uuid, line, time, row.sessionId, agent, name, *about)
            self._answers.setdefault((row.sessionId, name), []).append(answer)
        if row.uuid is not None:
            self._entries.setdefault(row.uuid, Entry(row.parentUuid, row.logicalParentUuid, time))

    def calls(self) -> list[Call]:
        """All calls in the order of their first blocks."""
        groups = [rows for answers in self._answers.values() for rows in self._split(answers)]
        groups.sort(key=lambda rows: (rows[0].time, rows[0].line))
        call_of: dict[str, Call] = {}  # by uuid of a row
        n_named: Counter[tuple[str | None, str]] = Counter()
        found = []
        for rows in groups:
            key = rows[0].session, rows[0].name
            n_named[key] += 1
            name = key[1] if n_named[key] == 1 else f"{key[1]}#{n_named[key]}"
            self._reading.n_continuation_lines += len(rows) - 1
            call = self._place(rows, name, call_of)
            if call is None:
                self._reading.drop("input_not_in_file")
                continue
            call_of |= {row.uuid: call for row in rows}
            found.append(call)
        return found

    def _split(self, answers: list[Answer]) -> list[list[Answer]]:
        """Rows of one name as calls: those that follow one another in the tree or repeat the input counts."""
        calls: list[list[Answer]] = []
        by_row: dict[str | None, list[Answer]] = {}
        by_inputs: dict[tuple[int | None, ...], list[Answer]] = {}
        for answer in sorted(answers, key=lambda answer: (answer.time, answer.line)):
            inputs = answer.usage.inputs
            rows = by_row.get(self._entries[answer.uuid].parent) or by_inputs.get(inputs)
            if rows is None:
                calls.append(rows := [])
            rows.append(answer)
            by_row[answer.uuid] = by_inputs[inputs] = rows
        return calls

    def _place(self, rows: list[Answer], name: str, call_of: dict[str, Call]) -> Call | None:
        """Walk up the tree from the first block to the call before; None where nothing comes before it."""
        arrival, is_compacted, previous = None, False, None
        at, root = self._entries[rows[0].uuid].parent, rows[0].uuid
        seen = {row.uuid for row in rows}
        while at is not None and at in self._entries and at not in seen:
            if previous := call_of.get(at):
                break
            seen.add(at)
            entry, root = self._entries[at], at
            if entry.time is not None and not is_compacted:
                arrival = max(entry.time, arrival or entry.time)
            is_compacted = is_compacted or (entry.parent is None and entry.logical_parent is not None)
            at = entry.parent if entry.parent is not None else entry.logical_parent
        if arrival is None and previous:  # nothing between the two: the answer before was all it waited for
            arrival = self._entries[at].time if at else None
        if arrival is None:
            return None
        agent = rows[0].agent
        if agent == "":
            agent = previous.agent if previous else root
        n_assistant = 0 if previous is None or is_compacted else previous.n_assistant + 1
        return Call(rows, name, agent, min(arrival, rows[0].time), previous and previous.name, n_assistant)


def _time(timestamp: str | None) -> int | None:
    try:
        time = instant(timestamp or "")
    except ValueError:
        return None
    return time and time.ns


def _batch(calls: list[Call], reading: Reading) -> Batch:
    columns = Columns(reading, None, np.array([call.rows[0].line for call in calls], dtype=np.int64))
    columns.arrival([call.arrival for call in calls], "$.timestamp", "ns")
    lasts = [call.rows[-1].time - call.arrival for call in calls]
    columns.seconds("e2e_s", lasts, "$.timestamp", per_second=NS_PER["s"])
    columns.text("request_id", [call.name for call in calls])
    columns.text("link", [call.name for call in calls])
    columns.text("previous_link", [call.previous for call in calls])
    columns.text("session_id", [call.rows[0].session for call in calls])
    columns.text("agent_path", [call.agent for call in calls])
    columns.text("model", [call.rows[-1].model for call in calls])
    stops = [[row.stop_reason for row in call.rows if row.stop_reason] for call in calls]
    columns.text("finish_reason", [reasons[-1] if reasons else None for reasons in stops])
    columns.tokens("n_assistant", [call.n_assistant for call in calls], "$.uuid")
    columns.tokens("n_tool_calls_out", [sum(row.n_tools for row in call.rows) for call in calls], "$.message")
    usages = [
        max((row.usage for row in call.rows), key=lambda usage: usage.output_tokens or 0) for call in calls
    ]
    for column, field in (
        ("cached_tokens", "cache_read_input_tokens"),
        ("cache_write_tokens", "cache_creation_input_tokens"),
        ("output_tokens", "output_tokens"),
    ):
        values = [getattr(usage, field) for usage in usages]
        columns.tokens(column, values, f"$.message.usage.{field}")
    columns.tokens(
        "prompt_tokens", [_prompt(usage) for usage in usages], "$.message.usage.input_tokens", low=1
    )
    return columns.batch()


def _prompt(usage: Usage) -> int | None:
    """The whole prompt: what was read from the cache, what was written to it, and what is in neither."""
    if usage.input_tokens is None:
        return None
    return (
        usage.input_tokens + (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
    )
