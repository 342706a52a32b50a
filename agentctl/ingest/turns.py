"""Turns of a session: what each request extends, what released it, and after which gap.

An *agent line* is the requests of one (session, agent): the main line, or one sub-agent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I8 = NDArray[np.int8]
I16 = NDArray[np.int16]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]

PARENT_UNKNOWN = -1
PARENT_MISSING = -2  # the log names a parent that it does not hold


class Log(NamedTuple):
    """n rows sorted by (arrival, file digest, row). Unknown: -1 in counts and rows, NaN in times."""

    session: I64  # number, not -1
    agent: I64  # sub-agent key inside the session, -1 main line
    arrival: F64
    end: F64
    prompt: I64
    status: I8  # index into schema.STATUSES
    stop: I8  # index into schema.GAP_KINDS of what the finish reason announces: tool, user, or -1
    tip: U32  # sessions.NO_TIP unknown
    named_parent: I64  # row that the log names as parent; PARENT_UNKNOWN, PARENT_MISSING
    spawn: I64  # for requests of a sub-agent: row of the request that spawned it, -1
    think: F64  # the log's own end-to-start time after the previous request of the line
    named_turn: I64  # from 0, -1
    n_assistant: I64  # assistant messages in the prompt, -1
    resumed: NDArray[np.bool_]  # the format says that the session was taken up again


class Turns(NamedTuple):
    parent_row: I64  # -1
    turn_index: I32
    attempt: I16
    origin: I8  # index into schema.ORIGINS
    after_row: I64  # the request that releases this one, -1
    gap: F64  # seconds, NaN
    gap_kind: I8  # index into schema.GAP_KINDS, -1 null


def stop_kind(finish_reason: str | None) -> int:
    """Index into GAP_KINDS of what a finish reason announces (tool, user), or -1."""
    raise NotImplementedError


def order_turns(
    log: Log, parent_node: U32, depth: I32, block_tokens: int | None, resolution: float = 0.0
) -> Turns:
    """Stub. resolution: arrivals are rounded down to multiples of it (Weka: 1 s)."""
    raise NotImplementedError
