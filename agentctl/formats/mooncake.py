"""Mooncake trace: one request a line with the ids of its prompt's blocks.

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, ...]}

Source: kvcache-ai/Mooncake, FAST'25 traces. `timestamp` ms from the start of the trace; lengths in tokens;
`hash_ids` global, one per 512 tokens, the last block usually partial. Variants in use add `session_id`,
`turn` or `delay` (ms after the previous turn's end, in place of a timestamp on later turns).
`agentctl export` writes an unknown `output_length` as null.
Pitfalls: thousands of equal timestamps (file order decides); ids above 2^53; no session id in the original;
the block size is not in the file, and other sizes than 512 occur.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from agentctl.formats._columns import Columns
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import LineDecoder, Lines
from agentctl.ingest.source import Chunk

NAME = "mooncake"
TITLE = "Mooncake JSONL (timestamp, input_length, output_length, hash_ids; optional session_id, turn, delay)"
CARRIES = (
    "arrival_s", "gap_s", "prompt_tokens", "output_tokens", "hash_ids", "session_id", "turn_index",
)  # fmt: skip
LACKS = "No latencies, model, status or placement; sessions, turns and delays only in later variants."


class Row(msgspec.Struct):
    input_length: int
    output_length: int | None
    hash_ids: msgspec.Raw = msgspec.Raw(b"null")
    timestamp: int | float | None = None
    session_id: str | int | None = None
    turn: int | None = None
    delay: int | float | None = None


def recognises(sample: Sample) -> bool:
    return sample.mostly(
        lambda keys: (
            {"input_length", "output_length"} <= keys
            and not keys.isdisjoint({"timestamp", "delay"})
            and "chat_id" not in keys
        )
    )


def read(reading: Reading) -> Iterator[Batch]:
    decoder = LineDecoder(Row, reading.quarantine)
    last_arrival: dict[Any, float] = {}
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        if lines.rows:
            yield _batch(reading, chunk, lines, last_arrival)


def _batch(reading: Reading, chunk: Chunk, lines: Lines, last_arrival: dict[Any, float]) -> Batch:
    rows: list[Row] = lines.rows
    columns = Columns(reading, chunk, lines.lines)
    columns.tokens("prompt_tokens", [row.input_length for row in rows], "$.input_length", low=1)
    columns.tokens("output_tokens", [row.output_length for row in rows], "$.output_length")
    columns.arrival(_arrivals(rows, last_arrival), "$.timestamp", "ms")
    columns.ids([row.hash_ids for row in rows], "$.hash_ids")
    if any(row.session_id is not None for row in rows) or last_arrival:
        columns.text("session_id", [row.session_id for row in rows])
    if any(row.turn is not None for row in rows):
        columns.tokens("turn_number", [row.turn for row in rows], "$.turn")
    if any(row.delay is not None for row in rows):
        columns.seconds("think_s", [row.delay for row in rows], "$.delay", per_second=1000.0)
    return columns.batch()


def _arrivals(rows: list[Row], last: dict[Any, float]) -> list[Any]:
    """Timestamps in ms; a turn that only has a delay is placed that long after its session's previous turn.

    The service time between the two is not in such a file: the placement is a lower bound, and only the
    delay (think_s) is used when turns wait for each other.
    """
    times = [row.timestamp for row in rows]
    if None not in times and all(row.delay is None for row in rows):
        return times
    placed: list[Any] = []
    for row in rows:
        time = row.timestamp
        if time is None and row.delay is not None and row.session_id in last:
            time = last[row.session_id] + row.delay
        if time is not None and row.session_id is not None:
            last[row.session_id] = time
        placed.append(time)
    return placed
