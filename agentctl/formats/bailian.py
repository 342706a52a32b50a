"""Bailian usage trace: one request a line, linked to the request that it continues.

    {"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "input_length": 521, "output_length": 132,
     "type": "text", "turn": 2, "hash_ids": [1089, 1090, ...]}

Source: alibaba-edu/qwen-bailian-usagetraces-anon. `parent_chat_id` -1 at the root of a conversation;
`timestamp` s from the start of the trace; `turn` from 1; lengths in tokens; `hash_ids` one per 16 tokens, the
last block usually partial. `type` (text, search, image, file, coder, thinking) has no column of ours.
`agentctl export` writes an unknown `output_length` as null.
Pitfalls: every row holds the whole prompt, so that turns do not add up (ai-dynamo/aiperf PR 1393: they were
replayed as increments); the last block may change and reasoning vanish between turns; a parent can lie
outside the trace's window; the block size is not in the file.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from agentctl.formats._columns import Columns
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import LineDecoder, Lines
from agentctl.ingest.source import Chunk

NAME = "bailian"
TITLE = "Bailian JSONL (chat_id, parent_chat_id, timestamp, input_length, output_length, turn, hash_ids)"
CARRIES = ("arrival_s", "prompt_tokens", "output_tokens", "hash_ids", "turn_index", "parent_request_id")
LACKS = "No latencies, so no think times; no model, status or placement; parents outside the window are gone."

_ROOT = "-1"


class Row(msgspec.Struct):
    chat_id: int | str
    parent_chat_id: int | str
    timestamp: int | float
    input_length: int
    output_length: int | None
    turn: int | None = None
    hash_ids: msgspec.Raw = msgspec.Raw(b"null")


def recognises(sample: Sample) -> bool:
    return sample.mostly(
        {"chat_id", "parent_chat_id", "timestamp", "input_length", "output_length"}.issubset,
    )


def read(reading: Reading) -> Iterator[Batch]:
    decoder = LineDecoder(Row, reading.quarantine)
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        if lines.rows:
            yield _batch(reading, chunk, lines)


def _batch(reading: Reading, chunk: Chunk, lines: Lines) -> Batch:
    rows: list[Row] = lines.rows
    columns = Columns(reading, chunk, lines.lines)
    columns.tokens("prompt_tokens", [row.input_length for row in rows], "$.input_length", low=1)
    columns.tokens("output_tokens", [row.output_length for row in rows], "$.output_length")
    columns.arrival([row.timestamp for row in rows], "$.timestamp", "s")
    columns.ids([row.hash_ids for row in rows], "$.hash_ids")
    columns.text("link", [row.chat_id for row in rows])
    parents = [str(row.parent_chat_id) for row in rows]
    columns.text("parent_link", [None if parent == _ROOT else parent for parent in parents])
    turns = [row.turn for row in rows]
    columns.tokens("turn_number", turns, "$.turn", low=1)
    columns.put("turn_number", [None if turn is None else turn - 1 for turn in turns])
    return columns.batch()
