"""LLMServingSim: workloads with token ids, and what a real vLLM did with them.

    {"input_toks": 2358, "output_toks": 531, "arrival_time_ns": 46926808, "input_tok_ids": [5971, ...]}
    {"session_id": .., "arrival_time_ns": .., "sub_requests": [{"input_toks": .., "output_toks": ..,
     "tool_duration_ns": ..}]}
    {"request_id": "bench-0", "input_toks": .., "output_toks": .., "arrival_time": 1777142838.338653,
     "queued_ts": .., "scheduled_ts": .., "first_token_ts": .., "last_token_ts": ..}

Source: casys-kaist/LLMServingSim @5daddb2, workloads/ (its README and router.py) and bench/examples.
A workload's times are ns from its start. `tool_duration_ns` comes *after* its call: the next one starts that
long after its end. `input_tok_ids` are the prompt's tokens: they give exact blocks of --block-tokens (16).
A measured run has two clocks: `arrival_time` is wall clock, the `_ts` are the engine's, monotonic. They are
never mixed: durations count from `queued_ts`, some 20 ms after the arrival.
Pitfalls: `output_toks` are output alone here (inside the simulator they include the input); a later call of a
session has no time of its own: it is placed that many ns after its predecessor's arrival, a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from agentctl.formats._columns import Columns
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.hashing import DEFAULT_BLOCK_TOKENS, token_blocks
from agentctl.ingest.lines import LineDecoder
from agentctl.ingest.source import Chunk

NAME = "llmserving"
TITLE = "LLMServingSim JSONL: workloads with token ids or sub_requests, and measured vLLM runs"
CARRIES = (
    "request_id", "arrival_s", "ttft_s", "e2e_s", "queue_s", "prefill_s", "decode_s", "gap_s",
    "prompt_tokens", "output_tokens", "session_id", "turn_index", "block_tokens", "hash_ids",
)  # fmt: skip
LACKS = "No model, status or placement; latencies in measured runs only, blocks in workloads with token ids."
ONE_RECORD_A_LINE = False

_MAX_TOKEN_ID = (1 << 32) - 1


class Call(msgspec.Struct):
    input_toks: int | None = None
    output_toks: int | None = None
    input_tok_ids: list[int] | None = None
    tool_duration_ns: int | None = None


class Row(Call):
    request_id: str | int | None = None
    session_id: str | int | None = None
    sub_requests: list[Call] | None = None
    arrival_time_ns: int | None = None
    arrival_time: float | None = None
    queued_ts: float | None = None
    scheduled_ts: float | None = None
    first_token_ts: float | None = None
    last_token_ts: float | None = None


class Placed(NamedTuple):
    """A call, where it stands, and what its session says of its time."""

    call: Call
    line: int
    within: str
    row: Row
    turn: int | None = None
    later_ns: int = 0  # than the session's start, at least
    gap_ns: int | None = None


def recognises(sample: Sample) -> bool:
    return sample.mostly(
        lambda keys: (
            ({"input_toks", "output_toks"} <= keys and not keys.isdisjoint({"arrival_time_ns", "queued_ts"}))
            or {"sub_requests", "arrival_time_ns"} <= keys
        )
    )


def read(reading: Reading) -> Iterator[Batch]:
    is_measured = Sample(reading.source.sample).mostly(lambda keys: "queued_ts" in keys)
    reading.time_origin = "absolute" if is_measured else "relative"
    reading.hash_kind = "token"
    decoder = LineDecoder(Row, reading.quarantine)
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        calls = []
        for line, row in zip(lines.lines.tolist(), lines.rows, strict=True):
            if row.sub_requests == []:
                reading.reject(chunk, line, "missing_field", "$.sub_requests")
            calls += _calls(line, row)
        if calls:
            yield _batch(reading, chunk, calls, is_measured)


def _calls(line: int, row: Row) -> list[Placed]:
    if row.sub_requests is None:
        return [Placed(row, line, "$", row)]
    calls, later, gap = [], 0, None
    for turn, call in enumerate(row.sub_requests):
        calls.append(Placed(call, line, f"$.sub_requests[{turn}]", row, turn, later, gap))
        gap = call.tool_duration_ns or 0
        later += max(gap, 0)
    return calls


def _batch(reading: Reading, chunk: Chunk, calls: list[Placed], is_measured: bool) -> Batch:
    lines = np.array([placed.line for placed in calls], dtype=np.int64)
    columns = Columns(reading, chunk, lines, [placed.within for placed in calls])
    rows = [placed.row for placed in calls]
    for name, field in (("prompt_tokens", "input_toks"), ("output_tokens", "output_toks")):
        counts = [getattr(placed.call, field) for placed in calls]
        missing = np.array([count is None for count in counts], dtype=np.bool_)
        columns.reject(missing, "missing_field", f"$.{field}")
        columns.tokens(name, counts, f"$.{field}", low=int(field == "input_toks"))
    columns.text("request_id", [_name(placed) for placed in calls])
    _put_durations(columns, rows)
    if is_measured:
        columns.arrival([row.arrival_time for row in rows], "$.arrival_time", "s")
        return columns.batch()
    starts = [row.arrival_time_ns for row in rows]
    times = [
        None if start is None else start + placed.later_ns
        for start, placed in zip(starts, calls, strict=True)
    ]
    columns.arrival(times, "$.arrival_time_ns", "ns")
    if any(placed.turn is not None for placed in calls):
        columns.text("session_id", [_session(placed) for placed in calls])
        columns.tokens("turn_number", [placed.turn for placed in calls], "$.sub_requests")
        columns.seconds("think_s", [placed.gap_ns for placed in calls], "$.tool_duration_ns", 1e9)
    return _with_blocks(reading, columns, [placed.call for placed in calls])


def _name(placed: Placed) -> str | int | None:
    return placed.row.request_id if placed.turn is None else f"{_session(placed)}:{placed.turn}"


def _session(placed: Placed) -> str | None:
    """The session's id; sessions without one are named by their line."""
    if placed.turn is None:
        return None
    return str(placed.line) if placed.row.session_id is None else str(placed.row.session_id)


def _put_durations(columns: Columns, rows: Sequence[Row]) -> None:
    durations = {
        "queue_s": ("queued_ts", "scheduled_ts"),
        "prefill_s": ("scheduled_ts", "first_token_ts"),
        "decode_s": ("first_token_ts", "last_token_ts"),
        "ttft_s": ("queued_ts", "first_token_ts"),
        "e2e_s": ("queued_ts", "last_token_ts"),
    }
    for name, (begin, end) in durations.items():
        pairs = [(getattr(row, begin), getattr(row, end)) for row in rows]
        columns.seconds(name, [None if None in pair else pair[1] - pair[0] for pair in pairs], f"$.{end}")


def _with_blocks(reading: Reading, columns: Columns, calls: list[Call]) -> Batch:
    """Exact blocks of the prompts that are given as token ids."""
    lists = [call.input_tok_ids for call in calls]
    if not any(tokens is not None for tokens in lists):
        return columns.batch()
    block_tokens = reading.options.block_tokens or DEFAULT_BLOCK_TOKENS
    bad = np.array([not _are_tokens(tokens) for tokens in lists], dtype=np.bool_)
    columns.reject(bad, "bad_token_id", "$.input_tok_ids")
    short = [call.input_tok_ids is not None and len(call.input_tok_ids) != call.input_toks for call in calls]
    columns.reject(np.array(short, dtype=np.bool_), "token_count", "$.input_tok_ids")
    usable = [None if is_bad else tokens for tokens, is_bad in zip(lists, bad, strict=True)]
    columns.put("block_tokens", np.full(len(lists), block_tokens, dtype=np.int64))
    columns.chains(token_blocks(usable, block_tokens, reading.options.hashing.salt))
    return columns.batch()


def _are_tokens(tokens: Any) -> bool:
    return not tokens or (min(tokens) >= 0 and max(tokens) <= _MAX_TOKEN_ID)
