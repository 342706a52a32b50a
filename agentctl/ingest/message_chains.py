"""Sessions of a log that has prompts but no ids: derived from the lists of messages that were sent.

A request continues an earlier one when the earlier list of messages is the beginning of its own and an answer
follows there. The lists are paths in a tree: node 0 is the root, its children stand for what came before all
messages (cache group, tools), any other node is a message after all those before it, and `parent_node[node] <
node`. With different answers to equal questions only the answer tells two sessions
apart, so that it is compared where the log has it.

What it cannot see is a history that was edited on the way; `compaction` finds some of these.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.ingest.compaction import compacted_rows
from agentctl.ingest.sessions import nearest_end, number_sessions

Bool = NDArray[np.bool_]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I8 = NDArray[np.int8]
I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]

RETRY_WITHIN = 3600.0  # s; the same prompt later is a new task (a guess: clients try again within minutes)

KINDS = (
    "start", "resumed", "answered", "extended", "differs", "contested", "branch", "overlap", "retry",
    "unanswered", "compacted",
)  # fmt: skip
START, RESUMED, ANSWERED, EXTENDED, DIFFERS, CONTESTED, BRANCH, OVERLAP, RETRY, UNANSWERED, COMPACTED = range(
    11
)
CONFIDENCE = np.array(  # by kind of link; it ranks rows and is not a probability
    [
        0.95,  # START: nothing before it, no answers in it
        0.5,  # RESUMED: answers in it, but nothing before it
        1.0,  # ANSWERED: its prompt holds an earlier prompt and the very answer that the log has
        0.95,  # EXTENDED: it holds one earlier prompt that nobody else continues
        0.8,  # DIFFERS: as EXTENDED, but another answer follows than the log has
        0.6,  # CONTESTED: several equal earlier prompts could be the one
        0.7,  # BRANCH: the earlier prompt is continued by another request too
        0.5,  # OVERLAP: the earlier request had not ended
        0.9,  # RETRY: the same prompt after a failure
        0.5,  # UNANSWERED: it holds an earlier prompt that failed, and no new answer
        0.3,  # COMPACTED: see compaction.py
    ],
    dtype=np.float32,
)


class MessageLog(NamedTuple):
    """n rows sorted by (arrival, file digest, row). Unknown: -1 in integers, NaN in times."""

    node: I64  # last message of the prompt in the tree; unknown: the row is left alone
    reply: I64  # node of the logged answer below `node`
    party: I64  # rows of different parties (tenants) share no session
    arrival: F64
    end: F64
    assistants: I64  # assistant messages in the prompt
    prompt: I64  # tokens
    failed: Bool  # no whole answer: error, abort, timeout, rejection
    unanswered: Bool  # nothing of an answer can have reached the client
    calls_tool: Bool  # the answer asks for a tool: the session goes on


class MessageChains(NamedTuple):
    """One entry per row."""

    parent_row: I64  # the earlier request that this one continues, -1; none for a retry
    retry_of: I64  # the failed request with the same prompt that this one repeats, -1
    session: I64  # numbered from 0 in order of first row
    kind: I8  # START ... COMPACTED
    confidence: F32


def derive_message_chain_sessions(log: MessageLog, parent_node: U32) -> MessageChains:
    """The session and the parent of every row.

    A row repeats the latest failed row of the same party with the same list that nobody repeats yet.
    Otherwise its parent is the earlier row of the same party with the longest list that its own list begins
    with, where an answer follows: first of all one whose logged answer follows, then one that had ended, then
    one that nobody continues yet, then the latest. A prompt that failed may also be continued without an
    answer. Rows without any parent are looked at once more by `compacted_rows`.

    Time O(rows * messages of a prompt) at worst, mostly much less: the walk stops at prompts only.
    """
    places, own, answer = find_places(log, parent_node)
    parent, retry_of, kind = _follow(log, places, own, answer)
    head, second = first_nodes(log.node, parent_node)
    before = np.where(retry_of >= 0, retry_of, parent)
    parent_of_compacted = compacted_rows(log, before, head, second)
    is_compacted = parent_of_compacted >= 0
    parent = np.where(is_compacted, parent_of_compacted, parent)
    kind[is_compacted] = COMPACTED
    if np.count_nonzero(kind == DIFFERS) > np.count_nonzero(kind == ANSWERED):
        kind[kind == DIFFERS] = EXTENDED  # this log writes answers in another way than clients send them back
    session = number_sessions(np.where(is_compacted, parent, before))
    return MessageChains(parent, retry_of, session, kind, CONFIDENCE[kind])


class Places(NamedTuple):
    """Where lists of messages end, by party: sorted by (party, node)."""

    above: I64  # the nearest place of the same party above each, -1
    assistants: I64  # assistant messages in the list, -1 unknown (equal lists have equally many)
    is_task: Bool  # more than one message, which would be a system prompt


def find_places(log: MessageLog, parent_node: U32) -> tuple[Places, I64, I64]:
    """All places, and that of each row's prompt and of its prompt with the answer (-1 unknown)."""
    n_nodes = parent_node.size
    parties = np.unique(log.party, return_inverse=True)[1].astype(np.int64)
    codes = np.concatenate([parties * n_nodes + log.node, parties * n_nodes + log.reply])
    known = np.concatenate([log.node >= 0, log.reply >= 0])
    used, number = np.unique(codes[known], return_inverse=True)
    place = np.full(codes.size, -1, np.int64)
    place[known] = number
    own, answer = place[: log.node.size], place[log.node.size :]
    party, node = used // n_nodes, (used % n_nodes).astype(np.uint32)
    assistants = np.full(used.size, -1, np.int64)
    np.maximum.at(assistants, own[own >= 0], log.assistants[own >= 0])
    above = _places_above(party, node, parent_node, nearest_end(node, parent_node))
    is_task = parent_node[parent_node[node]] != 0
    return Places(above, assistants, is_task), own, answer


@njit(cache=True, nogil=True)
def _places_above(party, node, parent_node, end):  # type: ignore[no-untyped-def]
    """The nearest place of the same party above each place (i64, -1). `end`: nearest place of any party."""
    above = np.full(node.size, -1, np.int64)
    owner = np.full(parent_node.size, -1, np.int64)
    place_at = np.full(parent_node.size, -1, np.int64)
    for place in range(node.size):
        walk = np.int64(node[place])
        owner[walk], place_at[walk] = party[place], place
        while walk != 0:
            walk = np.int64(end[parent_node[walk]])
            if walk != 0 and owner[walk] == party[place]:
                above[place] = place_at[walk]
                break
    return above


@njit(cache=True, nogil=True)
def first_nodes(node, parent_node):  # type: ignore[no-untyped-def]
    """Nodes of the first and the second message of each row's list (i64[n], -1 without one)."""
    depth = np.zeros(parent_node.size, np.int32)
    first = np.full(parent_node.size, -1, np.int64)
    second = np.full(parent_node.size, -1, np.int64)
    for k in range(1, parent_node.size):
        above = parent_node[k]
        depth[k] = depth[above] + 1
        first[k] = k if depth[k] == 2 else first[above]
        second[k] = k if depth[k] == 3 else second[above]
    heads, seconds = np.full(node.size, -1, np.int64), np.full(node.size, -1, np.int64)
    for row in range(node.size):
        if node[row] >= 0:
            heads[row], seconds[row] = first[node[row]], second[node[row]]
    return heads, seconds


class _Lists(NamedTuple):
    """Rows by place, the latest first: `top` of a place, then `below`."""

    top: I64
    below: I64
    fresh: I64  # a row itself while nobody continues it, else one further down


@njit(cache=True, nogil=True)
def _follow(log, places, own, answer):  # type: ignore[no-untyped-def]
    """Parent, retried row and kind of link of every row."""
    n = log.node.size
    parent, retry_of = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    kind = np.zeros(n, np.int8)
    size = places.above.size
    asked = _Lists(np.full(size, -1, np.int64), np.full(n, -1, np.int64), np.arange(n))
    answered = _Lists(np.full(size, -1, np.int64), np.full(n, -1, np.int64), np.arange(n))
    failed = _Lists(np.full(size, -1, np.int64), np.full(n, -1, np.int64), np.arange(n))
    for row in range(n):
        place = own[row]
        if place < 0:
            kind[row] = START
            continue
        retry_of[row] = _failed_before(log, failed, place, row)
        if retry_of[row] >= 0:
            kind[row] = RETRY
            before = retry_of[row]
        else:
            parent[row], kind[row] = _parent(log, places, own, answer, row, asked, answered, failed)
            before = parent[row]
        if before >= 0:
            _use(asked, before)
            _use(answered, before)
            _use(failed, before)
        if not log.unanswered[row]:
            _push(asked, place, row)
            if answer[row] >= 0:
                _push(answered, answer[row], row)
        if log.failed[row]:
            _push(failed, place, row)
    return parent, retry_of, kind


@njit(cache=True, nogil=True)
def _parent(log, places, own, answer, row, asked, answered, failed):  # type: ignore[no-untyped-def]
    """The row that this one continues (-1) and how it was found."""
    at, answers = own[row], places.assistants[own[row]]
    while at >= 0:
        found, kind = _choose(log, answered, at, row)
        if found >= 0:
            return found, ANSWERED if kind == EXTENDED else kind
        if at != own[row]:
            if min(answers, places.assistants[at]) < 0 or places.assistants[at] < answers:
                found, kind = _choose(log, asked, at, row)
                if found >= 0:
                    return found, DIFFERS if kind == EXTENDED and answer[found] >= 0 else kind
            elif places.is_task[at]:
                found = _failed_before(log, failed, at, row)
                if found >= 0:
                    return found, UNANSWERED
        at = places.above[at]
    return -1, RESUMED if answers > 0 else START


@njit(cache=True, nogil=True)
def _choose(log, lists, place, row):  # type: ignore[no-untyped-def]
    """The row at a place to be continued by `row` (-1): ended, not continued yet, latest; and the kind."""
    found = running = -1
    other = _fresh(lists, lists.top[place])
    while other >= 0:
        if log.end[other] > log.arrival[row]:
            running = other if running < 0 else running
        elif found < 0:
            found = other
        else:
            return found, CONTESTED
        other = _fresh(lists, lists.below[other])
    if found >= 0:
        return found, EXTENDED
    other = lists.top[place]
    while other >= 0 and log.end[other] > log.arrival[row]:
        other = lists.below[other]
    if other >= 0:
        return other, BRANCH
    return running if running >= 0 else lists.top[place], OVERLAP


@njit(cache=True, nogil=True)
def _failed_before(log, failed, place, row):  # type: ignore[no-untyped-def]
    """The latest failed row at a place that had ended, not long ago, and that nobody repeats; -1."""
    other = _fresh(failed, failed.top[place])
    while other >= 0 and log.end[other] > log.arrival[row]:
        other = _fresh(failed, failed.below[other])
    if other >= 0 and log.arrival[row] - log.arrival[other] <= RETRY_WITHIN:
        return other
    return -1


@njit(cache=True, nogil=True)
def _push(lists, place, row):  # type: ignore[no-untyped-def]
    lists.below[row], lists.top[place] = lists.top[place], row


@njit(cache=True, nogil=True)
def _use(lists, row):  # type: ignore[no-untyped-def]
    """From now on the row is continued."""
    lists.fresh[row] = lists.below[row]


@njit(cache=True, nogil=True)
def _fresh(lists, row):  # type: ignore[no-untyped-def]
    """The first row not continued yet among `row` and those below it, -1."""
    while row >= 0 and lists.fresh[row] != row:
        onward = lists.fresh[row]
        if onward >= 0:
            lists.fresh[row] = lists.fresh[onward]
        row = onward
    return row
