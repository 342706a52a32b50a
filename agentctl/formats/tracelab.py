"""TraceLab round trace: LLM calls of coding agents, one a line, made from session files of their clients.

    {"provider": "claude", "session_id": "claude:92ee5b8a-...", "round_index": 0, "round_id": "msg_...",
     "model": "...", "input_tokens_total": 32272, "prefix_tokens": 27217, "newly_append_tokens": 5055,
     "claude_cache_creation_input_tokens": 2163, "output_tokens": 931, "reasoning_output_tokens": null,
     "timing_events": [{"event_type": "user_message", "timestamp": "2026-06-01T05:40:20.151Z"},
                       {"event_type": "reasoning", "timestamp": "2026-06-01T05:40:29.420Z"}, ...],
     "tools": [{...}]}

Source: uw-syfi/TraceLab, data release. `prefix_tokens` were read from the cache; the whole prompt is their
sum with newly_append_tokens; output holds the reasoning. Arrival is the last input (user_message,
tool_result) before the first output event, the end is the last event: a usage_report in Codex' rounds, in
Claude Code's the last block, which is why no first-token time is known.
Pitfalls: sub-agents have session ids of their own and no link to who started them; no hashes. A total that is
not the sum says that a column is not what its name says: the row is set aside.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from agentctl.formats._cells import NS_PER
from agentctl.formats._columns import Columns
from agentctl.formats._dates import between, dates
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import LineDecoder
from agentctl.ingest.source import Chunk

NAME = "tracelab"
TITLE = "TraceLab round trace JSONL (session_id, round_index, prefix_tokens, timing_events, tools)"
CARRIES = (
    "request_id", "arrival_s", "e2e_s", "prompt_tokens", "output_tokens", "cached_tokens",
    "cache_write_tokens", "reasoning_tokens", "session_id", "turn_index", "model", "n_tool_calls_out",
)  # fmt: skip
LACKS = "No first-token times, prompts, block ids, placement or failed calls; sub-agents stand alone."

_INPUTS = ("user_message", "tool_result")


class Event(msgspec.Struct):
    event_type: str
    timestamp: str


class Round(msgspec.Struct):
    session_id: str
    round_index: int
    input_tokens_total: int
    prefix_tokens: int
    newly_append_tokens: int
    output_tokens: int
    timing_events: list[Event]
    round_id: str | None = None
    model: str | None = None
    claude_cache_creation_input_tokens: int | None = None
    reasoning_output_tokens: int | None = None
    tools: list[msgspec.Raw] = []


def recognises(sample: Sample) -> bool:
    return sample.mostly({"session_id", "round_index", "prefix_tokens", "timing_events"}.issubset)


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin = "absolute"
    decoder = LineDecoder(Round, reading.quarantine)
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        if lines.rows:
            yield _batch(lines.rows, Columns(reading, chunk, lines.lines), reading, chunk)


def _batch(rounds: list[Round], columns: Columns, reading: Reading, chunk: Chunk) -> Batch:
    texts = [_bounds(row.timing_events) for row in rounds]
    arrival = dates(columns, reading, [first for first, _ in texts], "$.timing_events", required=True)
    end = dates(columns, reading, [last for _, last in texts], "$.timing_events")
    columns.arrival(arrival, "$.timing_events", "ns")
    columns.seconds("e2e_s", between(arrival, end), "$.timing_events", NS_PER["s"])
    columns.text("request_id", [f"{row.session_id}/{row.round_index}" for row in rounds])
    columns.text("session_id", [row.session_id for row in rounds])
    columns.tokens("turn_number", [row.round_index for row in rounds], "$.round_index")
    columns.text("model", [row.model for row in rounds])
    differs = [row.prefix_tokens + row.newly_append_tokens != row.input_tokens_total for row in rounds]
    columns.reject(np.array(differs, dtype=np.bool_), "total_differs", "$.input_tokens_total")
    columns.tokens("n_tool_calls_out", [len(row.tools) for row in rounds], "$.tools")
    for column, field, low in (
        ("prompt_tokens", "input_tokens_total", 1),
        ("cached_tokens", "prefix_tokens", 0),
        ("cache_write_tokens", "claude_cache_creation_input_tokens", 0),
        ("output_tokens", "output_tokens", 0),
        ("reasoning_tokens", "reasoning_output_tokens", 0),
    ):
        columns.tokens(column, [getattr(row, field) for row in rounds], f"$.{field}", low=low)
    return columns.batch()


def _bounds(events: list[Event]) -> tuple[str | None, str | None]:
    """Time of the last input before the first output, and of the last event if it is an output."""
    arrival = None
    for event in events:
        if event.event_type not in _INPUTS:
            return arrival, events[-1].timestamp
        arrival = event.timestamp
    return arrival, None
