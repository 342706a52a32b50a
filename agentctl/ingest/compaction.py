"""Compacted histories: a first prompt that most likely goes on with an old session under a shorter history.

An agent whose context is full replaces old messages by a summary. No old list of messages is the beginning of
the new one, so that message chains see a new session. Both rules below want exactly one old session to fit;
they are wrong for a user who drops a task and at once begins another. Such links have a low confidence and
are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.ingest.sessions import number_sessions

if TYPE_CHECKING:
    from agentctl.ingest.message_chains import MessageLog

I64 = NDArray[np.int64]

# The same system prompt and task: condensers that keep the first messages (OpenHands). Users may pause here.
TASK_WITHIN = 3600.0  # s between the old session's last end and the new prompt
# The same system prompt alone: the old session stopped with a tool call that nobody answered, ...
SYSTEM_WITHIN = 120.0  # s ... the new prompt comes soon, ...
LONG_TOKENS = 32_768  # ... the old one was long, as nobody summarises a short history, ...
SHRINKS_TO = 0.5  # ... the new prompt has at most half its tokens, but more than the old session's first, ...
FEW_ANSWERS = 2  # ... and next to no answers. All of these are guesses on the careful side


class _Leaves(NamedTuple):
    """Rows that no row continues, sorted by (group, end)."""

    row: I64
    end: NDArray[np.float64]
    start: I64  # of each group in `row`, one more at the end


def compacted_rows(log: MessageLog, before: I64, head: I64, second: I64) -> I64:
    """For rows that continue nothing the last row of the old session that they go on with (i64[n], -1).

    before  the row that each row continues or repeats, -1
    head    node of the first message, second: of the second one; -1 without one

    Same task: both lists begin with the same two messages and go on; the new prompt has fewer tokens and
    fewer answers. Same system prompt: see the constants above; the tenant must be known.
    """
    n = before.size
    is_leaf = log.node >= 0
    is_leaf[before[before >= 0]] = False
    ended = np.where(np.isnan(log.end), log.arrival, log.end)
    found = np.full(n, -1, np.int64)
    session = number_sessions(before)
    first = log.prompt[np.unique(session, return_index=True)[1]][session]
    for by, within, by_task in ((second, TASK_WITHIN, True), (head, SYSTEM_WITHIN, False)):
        eligible = is_leaf & (by >= 0) & (log.prompt > 0)
        if not by_task:
            eligible &= log.calls_tool & (log.party >= 0) & (log.prompt >= LONG_TOKENS)
        group = _groups(log.party, by, eligible)
        leaves = _leaves(np.flatnonzero(eligible), group, ended)
        wanted = np.flatnonzero((before < 0) & (found < 0) & (group >= 0) & (log.prompt > 0))
        if by_task:
            wanted = wanted[log.node[wanted] != second[wanted]]
        else:
            few = (log.assistants[wanted] >= 0) & (log.assistants[wanted] <= FEW_ANSWERS)
            wanted = wanted[few]
        _link(log, first, wanted, group, leaves, is_leaf, within, by_task, found)
    return found


def _groups(party: I64, node: I64, eligible: NDArray[np.bool_]) -> I64:
    """Number of each row's (party, node), -1 where no eligible row has the same."""
    used, number = np.unique((party + 1) * (node.max(initial=0) + 2) + node + 1, return_inverse=True)
    has_leaf = np.zeros(used.size, np.bool_)
    has_leaf[number[eligible]] = True
    return np.where(has_leaf[number], np.cumsum(has_leaf)[number] - 1, -1).astype(np.int64)


def _leaves(rows: I64, group: I64, ended: NDArray[np.float64]) -> _Leaves:
    rows = rows[np.lexsort((ended[rows], group[rows]))]
    start = np.searchsorted(group[rows], np.arange(group.max(initial=-1) + 2))
    return _Leaves(rows, ended[rows], start)


@njit(cache=True, nogil=True)
def _link(log, first, wanted, group, leaves, is_leaf, within, by_task, found):  # type: ignore[no-untyped-def]
    """Fill `found` for the rows of `wanted`, and clear `is_leaf` of what they go on with; in place."""
    for row in wanted:
        low, high = leaves.start[group[row]], leaves.start[group[row] + 1]
        at = low + np.searchsorted(leaves.end[low:high], log.arrival[row] - within)
        fitting = -1
        while at < high and leaves.end[at] <= log.arrival[row]:
            other = leaves.row[at]
            if other < row and is_leaf[other] and _shrinks(log, first, row, other, by_task):
                if fitting >= 0:
                    fitting = -1
                    break
                fitting = other
            at += 1
        if fitting >= 0:
            found[row] = fitting
            is_leaf[fitting] = False


@njit(cache=True, nogil=True)
def _shrinks(log, first, row, other, by_task):  # type: ignore[no-untyped-def]
    if by_task:
        return log.prompt[row] < log.prompt[other] and log.assistants[row] < log.assistants[other]
    return first[other] < log.prompt[row] <= SHRINKS_TO * log.prompt[other]
