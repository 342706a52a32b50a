"""Turns of a session: what each request extends, what released it, and after which gap.

An *agent line* is the requests of one (session, agent): the main line, or one sub-agent. Two relations are
kept apart. The *prefix parent* is the request whose prompt (and answer) this prompt contains. The request
that a row comes *after* is the one that released it: it had ended when the row arrived, or is overlapped.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.ingest.parents import Lines, find_lines, in_order_of, prefix_parents
from agentctl.schema import GAP_KINDS, ORIGINS, STATUSES

Bool = NDArray[np.bool_]
F64 = NDArray[np.float64]
I8 = NDArray[np.int8]
I16 = NDArray[np.int16]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]

PARENT_UNKNOWN = -1
PARENT_MISSING = -2  # the log names a parent that it does not hold

TOOL, USER, RETRY, SUBAGENT, OVERLAP, UNKNOWN = (
    GAP_KINDS.index(kind) for kind in ("tool", "user", "retry", "subagent", "overlap", "unknown")
)
NEW, RESUMED, COMPACTED, ORPHAN = (ORIGINS.index(o) for o in ("new", "resumed", "compacted", "orphan"))
FAILED = np.array([status in ("error", "aborted", "timeout", "rejected") for status in STATUSES])
UNANSWERED = np.array([status in ("error", "rejected") for status in STATUSES])

TOOL_STOPS = ("tool_use", "tool_calls", "tool_call", "function_call")
USER_STOPS = ("end_turn", "stop")

# A first prompt longer than this is taken for a session picked up in its middle, where the log does not tell.
# Our convention. First prompts of 356 Claude Code captures: 203 up to 30,000 tokens (most 10,000-25,000), 6
# from 30,000 to 40,000, 147 above (86 beyond 100,000): the valley between the two lies here.
RESUMED_TOKENS = 32_768


class Log(NamedTuple):
    """n rows sorted by (arrival, file digest, row). Unknown: -1 in counts and rows, NaN in times."""

    session: I32  # number, never -1
    agent: I32  # sub-agent inside the session, -1: the main line
    arrival: F64
    end: F64  # one before the arrival counts as unknown
    prompt: I64
    status: I8  # index into schema.STATUSES
    stop: I8  # `stop_kind` of the finish reason
    tip: U32  # sessions.NO_TIP: unknown
    message: I32  # equal for equal prompts, where these are known
    named_parent: I32  # row that the log names as parent; PARENT_UNKNOWN, PARENT_MISSING
    spawn: I32  # in rows of a sub-agent the row that spawned it, -1
    think: F64  # the log's own time from the end of the line's previous request to this arrival
    named_turn: I32  # from 0
    n_assistant: I32  # assistant messages in the prompt
    resumed: Bool  # the log says that the session was taken up again


class Turns(NamedTuple):
    """One entry per row of the log."""

    parent_row: I32  # -1 none
    turn_index: I32  # logical turns of the line before this one, or the log's own number
    attempt: I16  # 0 first
    origin: I8  # index into schema.ORIGINS
    after_row: I32  # -1 none
    gap: F64  # s, >= 0, NaN without after_row
    gap_kind: I8  # index into schema.GAP_KINDS, -1 without after_row
    line: I32  # number of the agent line


def stop_kind(finish_reason: str | None) -> int:
    """Index into GAP_KINDS of what a finish reason announces (tool or user), -1 for nothing."""
    if finish_reason in TOOL_STOPS:
        return TOOL
    return USER if finish_reason in USER_STOPS else -1


def order_turns(
    log: Log, parent_node: U32, depth: I32, block_tokens: int | None, resolution: float = 0.0
) -> Turns:
    """Parents, turns, attempts, origins and gaps of all rows.

    parent_node, depth  the prefix tree (a root alone when the log has no chains)
    resolution          s; arrivals were cut to multiples of it, so that an end up to this much after an
                        arrival counts as before it (Weka: 1)

    A named parent or spawner counts when it is an earlier row of the same session.
    Time O(n log n + m + nodes walked).
    """
    spawn, named = earlier_in_session(log.spawn, log), earlier_in_session(log.named_parent, log)
    named[named == spawn] = -1  # a link to the spawner says who started it, not what it extends
    failed, fit = FAILED[log.status], ~UNANSWERED[log.status]
    lines = find_lines(log.session, log.agent, log.prompt, log.tip, log.message, failed)
    parent = prefix_parents(lines, named, spawn, log.prompt, log.tip, fit, parent_node, depth, block_tokens)
    del named, failed, fit
    turn, attempt = _count_turns(lines.line, lines.retry_of, log.named_turn)
    after, gap, kind = release(log, lines, parent, spawn, resolution)
    return Turns(parent, turn, attempt, origins(log, lines, parent), after, gap, kind, lines.line)


def origins(log: Log, lines: Lines, parent: I32) -> I8:
    """How each request came to its prompt (index into ORIGINS).

    compacted  shorter than its parent's prompt, in the same line
    orphan     the log names a parent that it does not hold
    resumed    no parent, not spawned, and the log says so, or the prompt holds assistant messages, or, where
               their number is unknown, more than RESUMED_TOKENS tokens
    new        everything else, ordinary later turns included
    """
    alone = parent < 0
    shorter = (log.prompt > 0) & (log.prompt < log.prompt[parent]) & (lines.line == lines.line[parent])
    history = (log.n_assistant > 0) | ((log.n_assistant < 0) & (log.prompt > RESUMED_TOKENS))
    resumed = alone & (log.spawn < 0) & (log.resumed | history)
    cases = [~alone & shorter, alone & (log.named_parent == PARENT_MISSING), resumed]
    return np.select(cases, [np.int8(COMPACTED), np.int8(ORPHAN), np.int8(RESUMED)], np.int8(NEW))


def release(log: Log, lines: Lines, parent: I32, spawn: I32, resolution: float) -> tuple[I32, F64, I8]:
    """(after_row, gap, gap_kind): which request released each one.

    A request that arrived before its predecessor ended overlaps it: gap = arrival - predecessor's start. The
    predecessor is the attempt it repeats, else its parent, else the line's previous row, else the spawner.
    Otherwise the main line comes after the latest request of the session that had ended (it waits for its
    sub-agents), a sub-agent after its own line's, or first after the request that spawned it (parallel
    sub-agents do not wait for each other): gap = arrival - end, or the log's own think time when that was
    measured from the same request.

    Kinds, first that holds: overlap; retry; subagent when the two are in different lines; what the finish
    reason of the request before announces (tool, user); unknown.
    """
    late = log.end < log.arrival
    end = np.where(late, np.nan, log.end) if late.any() else log.end
    before = first_known(lines.retry_of, parent, lines.previous, spawn)
    overlap = (before >= 0) & (end[before] > log.arrival + resolution)

    in_session = _latest_ended(in_order_of(log.session), log.session, log.arrival, end, resolution)
    in_line = _latest_ended(lines.order, lines.line, log.arrival, end, resolution)
    spawned = (spawn >= 0) & (end[spawn] <= log.arrival + resolution)
    after = first_known(in_line, np.where(spawned, spawn, np.int32(-1)), in_session)
    after = np.where(overlap, before, np.where(log.agent < 0, in_session, after))
    del before, in_session, in_line, spawned

    gap = log.arrival - np.where(overlap, log.arrival[after], end[after])
    del end
    np.round(gap, 9, out=gap)  # logs tell ns at most
    np.maximum(gap, 0.0, out=gap)
    by_log = ~overlap & (log.think >= 0) & (after == lines.previous)
    gap[by_log] = log.think[by_log]
    gap[after < 0] = np.nan
    kind = np.select(
        [overlap, lines.retry_of >= 0, lines.line != lines.line[after], log.stop[after] >= 0],
        [np.int8(OVERLAP), np.int8(RETRY), np.int8(SUBAGENT), log.stop[after]],
        np.int8(UNKNOWN),
    )
    return after, gap, np.where(after >= 0, kind, np.int8(-1))


def earlier_in_session(rows: I32, log: Log) -> I32:
    """The rows that a log points to where they are earlier and in the same session, else -1."""
    valid = (rows >= 0) & (rows < np.arange(rows.size, dtype=np.int32))
    valid &= log.session[np.where(valid, rows, 0)] == log.session
    return np.where(valid, rows, np.int32(-1))


def first_known(*rows: I32) -> I32:
    """Elementwise the first that is not -1."""
    known = rows[0]
    for other in rows[1:]:
        known = np.where(known >= 0, known, other)
    return known


@njit(cache=True, nogil=True)
def _count_turns(line, retry_of, named_turn):
    """Turn and attempt of every row; a retry keeps the turn, the log's own number wins."""
    turn, attempt = np.zeros(line.size, np.int32), np.zeros(line.size, np.int16)
    following = np.zeros(line.size, np.int32)  # by line
    for row in range(line.size):
        turn[row] = following[line[row]]
        if retry_of[row] >= 0:
            turn[row], attempt[row] = turn[retry_of[row]], attempt[retry_of[row]] + 1
        if named_turn[row] >= 0:
            turn[row] = named_turn[row]
        following[line[row]] = max(following[line[row]], turn[row] + 1)
    return turn, attempt


@njit(cache=True, nogil=True)
def _latest_ended(order, group, arrival, end, resolution):
    """The earlier row of the group that ended last (then the later row) among those with end <= arrival +
    resolution, -1. `order` sorts the rows by (group, row); those still running wait in a heap."""
    latest_of = np.full(order.size, -1, np.int32)
    running = [(0.0, 0)]
    latest, current = -1, -1
    for row in order:
        if group[row] != current:
            current, latest = group[row], -1
            running.clear()
        while len(running) > 0 and running[0][0] <= arrival[row] + resolution:
            ended_at, ended = heappop(running)
            if latest < 0 or (ended_at, ended) > (end[latest], latest):
                latest = ended
        latest_of[row] = latest
        if end[row] >= arrival[row]:
            heappush(running, (end[row], np.int64(row)))  # type: ignore[misc]
    return latest_of
