"""Are the session ids of a log sessions? Four ways in which they are known not to be.

Proxies write a fresh id on every row, a constant on all rows, the id of a tenant or of a process. Each rule
below looks for one of these and abstains when it lacks the data. The thresholds are conventions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]

NO_TIP = 0xFFFFFFFF
MAX_SINGLE_SHARE = 0.95  # of ids with one request each
MANY_TURNS = 0.2  # of those requests in a chain session of two or more: the chains "show many turns"
MAX_ID_SHARE = 0.5  # of all rows under one id
ENOUGH_IDS = 10  # below, one id may hold most rows: a log of a few sessions
ENOUGH_ROWS = 5_000  # ... unless it holds more requests than one agent task makes (Weka's largest: 514)
MAX_IN_FLIGHT = 64  # requests of one id at once: more than a task with its sub-agents
ENOUGH_CONVERSATIONS = 10  # of messages, each from its first turn on: more than a session with its sub-agents
MAX_UNRELATED_SHARE = 0.5  # of ids whose prompts all begin differently (one turn and one sub-agent call do)


class IdTest(NamedTuple):
    """What came of testing a log's session ids."""

    accepted: bool
    reason: str | None  # a sentence, when rejected: the first rule that failed
    numbers: dict[str, Any]  # what the rules measured, null where one abstained; plain JSON values

    @property
    def is_blind(self) -> bool:
        """Nearly every request has an id of its own, and no prompt tells whether it is a turn of others."""
        alone, split = (
            self.numbers.get(f"single_request_{name}_share") for name in ("ids", "rows_in_chains")
        )
        return bool(
            alone and alone > MAX_SINGLE_SHARE and split is None and self.numbers["ids"] >= ENOUGH_IDS
        )


def check_explicit_ids(
    session_key: NDArray[np.integer],
    arrival: F64,
    end: F64,
    tip: U32,
    parent_node: U32,
    chain_session: NDArray[np.integer] | None,
    conversation: NDArray[np.integer] | None = None,
) -> IdTest:
    """Test the session ids of a log against its prompts and times.

    session_key    i64[n], -1 where a row has none
    arrival, end   f64[n] s, end NaN unknown
    tip            u32[n], NO_TIP unknown; parent_node u32[m] (a root alone when the log has no chains)
    chain_session  i64[n], sessions of the same rows by prefix or message chains; None without chains
    conversation   i64[n], those by message chains that begin with a first turn, -1 elsewhere; None without
                   messages
    """
    has_id = session_key >= 0
    key = np.full(session_key.size, -1, np.int64)
    key[has_id] = np.unique(session_key[has_id], return_inverse=True)[1]
    sizes = np.bincount(key[has_id])
    if sizes.size == 0:
        return IdTest(False, "no row has a session id", {"ids": 0, "rows_without_id": int(key.size)})

    single = float((sizes == 1).mean())
    split = split_turns_share(key, sizes, chain_session)
    largest = int(sizes.max())
    in_flight = most_in_flight(key, arrival, end)
    unrelated = unrelated_share(key, tip, parent_node)
    conversations = most_conversations(key, sizes, conversation)
    numbers = {
        "ids": int(sizes.size),
        "rows_without_id": int((~has_id).sum()),
        "single_request_ids_share": single,
        "single_request_rows_in_chains_share": split,
        "largest_id_rows_share": largest / key.size,
        "most_in_flight": in_flight,
        "unrelated_ids_share": unrelated,
        "largest_id_conversations": conversations,
    }
    reasons = (
        differs_on_every_row(single, split),
        one_for_all(largest, sizes.size, key.size),
        many_conversations(largest, key.size, conversations),
        too_many_at_once(in_flight),
        nothing_in_common(unrelated),
    )
    reason = next((reason for reason in reasons if reason), None)
    return IdTest(reason is None, reason, numbers)


def differs_on_every_row(single: float, split: float | None) -> str | None:
    """Rule 1: almost every id has one request, and chains show that these requests are turns of sessions.

    Looking only at requests that are alone under their id spares a log of one-shot calls with a few sessions.
    """
    if split is None or single <= MAX_SINGLE_SHARE or split < MANY_TURNS:
        return None
    return (
        f"{single:.1%} of the ids have one request, but {split:.1%} of these are turns of a chain of prompts"
    )


def one_for_all(largest: int, ids: int, rows: int) -> str | None:
    """Rule 2: one id covers more than half of the rows.

    A log of one or a few sessions looks like that too, so it takes ENOUGH_IDS ids, or ENOUGH_ROWS rows under
    the id, to reject.
    """
    if largest <= MAX_ID_SHARE * rows or (ids < ENOUGH_IDS and largest < ENOUGH_ROWS):
        return None
    return f"one id covers {largest / rows:.1%} of the rows"


def many_conversations(largest: int, rows: int, conversations: int | None) -> str | None:
    """Rule 2 where messages tell: one id covers more than half of the rows, and many conversations."""
    if conversations is None or conversations < ENOUGH_CONVERSATIONS or largest <= MAX_ID_SHARE * rows:
        return None
    return f"one id covers {largest / rows:.1%} of the rows, which are {conversations} conversations"


def too_many_at_once(in_flight: int | None) -> str | None:
    """Rule 3: one id has more requests in flight than an agent task. Abstains without end times."""
    if in_flight is None or in_flight <= MAX_IN_FLIGHT:
        return None
    return f"one id has {in_flight} requests in flight at once"


def nothing_in_common(unrelated: float | None) -> str | None:
    """Rule 4: the prompts of most ids share no prefix. Abstains without chains.

    Sub-agents need not share one with the main line, so an id is unrelated only when no two of its prompts
    do, and most ids must be.
    """
    if unrelated is None or unrelated <= MAX_UNRELATED_SHARE:
        return None
    return f"the prompts of {unrelated:.1%} of the ids share no prefix"


def split_turns_share(key: I64, sizes: I64, chain_session: NDArray[np.integer] | None) -> float | None:
    """Share of the requests alone under their id that chains put into a session of two or more.

    None: no such request, or no chains.
    """
    alone = (key >= 0) & (sizes[key] == 1)
    if chain_session is None or not alone.any():
        return None
    return float((np.bincount(chain_session)[chain_session[alone]] > 1).mean())


def most_conversations(key: I64, sizes: I64, conversation: NDArray[np.integer] | None) -> int | None:
    """Conversations of two or more requests under the id with the most rows; None without messages."""
    if conversation is None:
        return None
    within = conversation[(key == int(np.argmax(sizes))) & (conversation >= 0)]
    return int(np.count_nonzero(np.bincount(within) > 1)) if within.size else 0


def most_in_flight(key: I64, arrival: F64, end: F64) -> int | None:
    """Most requests of one id between arrival and end at one instant; None without any end.

    Rows without end are not counted; an end comes before an arrival at the same instant.
    """
    known = (key >= 0) & (end >= arrival)
    if not known.any():
        return None
    ids = np.concatenate([key[known], key[known]])
    times = np.concatenate([arrival[known], end[known]])
    change = np.repeat([1, -1], int(known.sum()))
    by_id_and_time = np.lexsort((change, times, ids))
    return int(np.cumsum(change[by_id_and_time]).max())  # every id adds up to 0, so one sum serves all


def unrelated_share(key: I64, tip: U32, parent_node: U32) -> float | None:
    """Share of the ids with two or more chains of which no two begin alike; None: no such id."""
    known = (key >= 0) & (tip != NO_TIP) & (tip != 0)
    if not known.any():
        return None
    head = first_block(parent_node)[tip[known]].astype(np.int64)
    ids = key[known]
    pairs = np.unique(ids * parent_node.size + head)
    heads = np.bincount(pairs // parent_node.size, minlength=ids.max() + 1)
    chains = np.bincount(ids)
    several = chains > 1
    return float((heads == chains)[several].mean()) if several.any() else None


@njit(cache=True, nogil=True)
def first_block(parent_node):
    """The node of depth 1 above each node (u32[m]); 0 for the root."""
    head = np.zeros(parent_node.size, np.uint32)
    for node in range(1, parent_node.size):
        head[node] = node if parent_node[node] == 0 else head[parent_node[node]]
    return head
