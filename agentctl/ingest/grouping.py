"""Which session each row belongs to, from which evidence, and how sure that is.

In this order: the format's own session (ids that mean something only inside it), session ids that pass the
test, links between requests, message chains, block chains, and alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from agentctl.errors import InputError
from agentctl.ingest.evidence import Evidence
from agentctl.ingest.message_chains import KINDS
from agentctl.ingest.options import IngestOptions
from agentctl.ingest.rows import Rows
from agentctl.ingest.session_ids import check_explicit_ids
from agentctl.ingest.trie import NumberedTree
from agentctl.ingest.turns import PARENT_MISSING, PARENT_UNKNOWN
from agentctl.schema import SESSION_SOURCES

if TYPE_CHECKING:
    from agentctl.ingest.write import Names

_EXPLICIT, _HEADER, _LINK, _RESPONSE, _MESSAGES, _BLOCKS, _SINGLE = range(7)
assert SESSION_SOURCES == (
    "explicit", "header", "parent_link", "response_chain", "message_chain", "block_chain", "single",
)  # fmt: skip


@dataclass
class Grouping:
    """One entry per sorted row; sessions are numbered from 0 in order of their first row."""

    session: NDArray[np.int32]
    source: NDArray[np.int8]  # index into SESSION_SOURCES
    confidence: NDArray[np.float32]
    named_parent: NDArray[np.int32]  # row that the log or the chains name, or PARENT_UNKNOWN / PARENT_MISSING
    spawn: NDArray[np.int32]  # row that started this row's sub-agent, -1
    explicit: NDArray[np.int32]  # code of the log's own session id, -1
    explicit_names: list[str]
    message: NDArray[np.int32]  # last message of the prompt in the tree of messages, -1
    document: dict[str, Any]  # the `sessions` part of dataset.json
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def first_row(self) -> NDArray[np.int64]:
        """First row of each session."""
        return np.flatnonzero(np.diff(np.maximum.accumulate(self.session), prepend=-1)).astype(np.int32)

    def names(self, names: Names, positions: NDArray[np.int64]) -> pa.Array:
        """Session ids: the log's own where they count, else the first request's id."""
        source = self.source[positions]
        own = np.where((source == _EXPLICIT) | (source == _HEADER), self.explicit[positions], -1)
        given = pa.array(self.explicit_names, pa.string()).take(pa.array(own, mask=own < 0))
        return pc.coalesce(given, names.requests(self.first_row[self.session[positions]]))

    def source_names(self, positions: NDArray[np.int64]) -> pa.Array:
        indices = pa.array(self.source[positions].astype(np.int32))
        return pa.DictionaryArray.from_arrays(indices, pa.array(SESSION_SOURCES)).cast(pa.string())


def group(
    rows: Rows,
    arrival: NDArray[np.float64],
    end: NDArray[np.float64],
    tree: NumberedTree,
    block_tokens: int | None,
    options: IngestOptions,
    messages: NumberedTree | None = None,
) -> Grouping:
    """Find the sessions of all rows as --sessions asks.

    messages: the tree of message chains of logs that hold prompts; a row's tip there is the last message of
    its prompt, so that a prompt is a proper prefix of another where its tip is a proper ancestor
    """
    n = len(rows)
    evidence = Evidence(rows, arrival, end, tree, block_tokens, messages)
    explicit, explicit_names = rows.codes("session_id")
    named_parent, spawn, warnings = _links(rows)
    grouping = Grouping(
        session=np.full(n, -1, dtype=np.int32),
        source=np.full(n, _SINGLE, dtype=np.int8),
        confidence=np.zeros(n, dtype=np.float32),
        named_parent=named_parent,
        spawn=spawn,
        explicit=explicit,
        explicit_names=explicit_names,
        message=evidence.message_node,
        document={"method": options.sessions, "id_test": None, "band": [], "message_links": None},
        warnings=warnings,
    )
    before = np.full(n, -1, dtype=np.int32)
    if options.sessions == "none":
        named_parent[:] = PARENT_UNKNOWN  # every request its own session, no parents
        grouping.spawn[:] = -1
    elif options.sessions == "explicit":
        if not explicit_names:
            raise InputError("no record has a session id", hint="--sessions auto derives sessions")
        _set_explicit(grouping, evidence)
    elif rows.time_origin == "session":  # the format is made of sessions: nothing to doubt or derive
        _set_explicit(grouping, evidence)
    else:
        _test_explicit(grouping, evidence)
        before = _derive(grouping, evidence)
    grouping.session = _number(grouping.session, before)
    _describe(grouping)
    return grouping


def _test_explicit(grouping: Grouping, evidence: Evidence) -> None:
    """Use the log's session ids if they look like sessions."""
    if not grouping.explicit_names:
        return
    everyone = np.arange(len(evidence.rows))
    chain_session: NDArray[np.integer] | None = None
    conversation = None
    if chains := evidence.message_chains(everyone >= 0, evidence.rows.codes("tenant")[0]):
        chain_session = chains.session
        begun = np.unique(chain_session[evidence.rows.ints("n_assistant") == 0])
        conversation = np.where(np.isin(chain_session, begun), chain_session, -1)
    elif evidence.block_tokens is not None:
        chain_session = evidence.block_chains(everyone).session
    test = check_explicit_ids(
        grouping.explicit,
        evidence.arrival,
        evidence.end,
        evidence.tree.tips,
        evidence.tree.parent,
        chain_session,
        conversation,
    )
    grouping.document["id_test"] = test._asdict()
    if test.accepted:
        _set_explicit(grouping, evidence)
        if test.is_blind:
            grouping.confidence[grouping.explicit >= 0] = 0.5
            grouping.warnings.append(
                f"{test.numbers['single_request_ids_share']:.1%} of the log's session ids have one request, "
                "and without prompts or block ids nothing tells if they are sessions (some proxies make up "
                "one a request): --join a log that has them"
            )
    else:
        grouping.warnings.append(f"the log's session ids are not used: {test.reason}")


def _set_explicit(grouping: Grouping, evidence: Evidence) -> None:
    """The log's ids are the sessions; inside one, messages tell what continues what where no link does."""
    has_id = grouping.explicit >= 0
    from_header = evidence.rows.flags("session_header")
    grouping.session[has_id] = grouping.explicit[has_id]
    grouping.source[has_id] = np.where(from_header, _HEADER, _EXPLICIT)[has_id]
    grouping.confidence[has_id] = 1.0
    if chains := evidence.message_chains(has_id, grouping.explicit):
        nameless = has_id & (grouping.named_parent == PARENT_UNKNOWN)
        grouping.named_parent[nameless] = chains.parent_row[nameless]


def _derive(grouping: Grouping, evidence: Evidence) -> NDArray[np.int32]:
    """For rows without a session yet the row that each one continues (i32[n], -1), by the best evidence."""
    rest, rows = grouping.session < 0, evidence.rows
    before, source, confidence = np.full(len(rows), -1, dtype=np.int32), grouping.source, grouping.confidence
    linked = rest & (grouping.named_parent != PARENT_UNKNOWN)
    if rows.has("parent_link"):  # a request with a name that continues none starts a session
        has_name = rows.take("link", np.arange(len(rows))).is_valid().to_numpy(zero_copy_only=False)
        linked |= rest & has_name & (evidence.message_node < 0)
    if chains := evidence.message_chains(rest, rows.codes("tenant")[0]):
        known = rest & (evidence.message_node >= 0)
        before[known] = np.maximum(chains.retry_of, chains.parent_row)[known]
        source[known], confidence[known] = _MESSAGES, chains.confidence[known]
        nameless = known & ~linked
        grouping.named_parent[nameless] = chains.parent_row[nameless]
        kinds = np.bincount(chains.kind[nameless], minlength=len(KINDS)).tolist()
        grouping.document["message_links"] = dict(zip(KINDS, kinds, strict=True))
    if (alone := np.flatnonzero(rest & ~linked & evidence.has_blocks_alone)).size:
        blocks = evidence.block_chains(alone)
        before[alone] = np.where(blocks.parent_row >= 0, alone[blocks.parent_row], -1)
        source[alone], confidence[alone] = _BLOCKS, blocks.confidence
        grouping.named_parent[alone] = before[alone]
        del blocks
    del alone
    if not linked.all():
        grouping.document["band"] = evidence.band()
    before[linked] = np.maximum(grouping.named_parent, -1)[linked]
    source[linked] = np.where(rows.flags("is_response_link"), _RESPONSE, _LINK)[linked]
    confidence[linked] = 1.0
    start = np.flatnonzero(linked & (before >= 0))[::-1]  # a link names the session of what it leads to, too
    start = start[(source[before[start]] == _MESSAGES) & ~linked[before[start]]]
    source[before[start]] = source[start]
    return before


@njit(cache=True, nogil=True)
def _number(session, before):  # type: ignore[no-untyped-def]
    """Sessions numbered by first row; a row without one has that of the row before it, or its own."""
    number = np.full(session.max() + 1 if session.size else 0, -1, np.int32)
    numbered = np.empty(session.size, np.int32)
    count = 0
    for row in range(session.size):
        if session[row] >= 0:
            if number[session[row]] < 0:
                number[session[row]] = count
                count += 1
            numbered[row] = number[session[row]]
        elif before[row] >= 0:
            numbered[row] = numbered[before[row]]
        else:
            numbered[row] = count
            count += 1
    return numbered


def _describe(grouping: Grouping) -> None:
    """Count sessions for dataset.json."""
    sizes = np.bincount(grouping.session)
    by_source = np.bincount(grouping.source, minlength=len(SESSION_SOURCES))
    grouping.document |= {
        "count": int(sizes.size),
        "multi_turn": int(np.count_nonzero(sizes > 1)),
        "source": {name: int(count) for name, count in zip(SESSION_SOURCES, by_source, strict=True) if count},
    }


def _links(rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32], list[str]]:
    """Rows that the log names as parent and as spawner; a link to a later row or to none is missing."""
    n = len(rows)
    parent = np.full(n, PARENT_UNKNOWN, dtype=np.int32)
    spawn = np.full(n, -1, dtype=np.int32)
    if not rows.has("link"):
        return parent, spawn, []
    everyone = np.arange(n)
    links = rows.take("link", everyone)
    warnings = []
    for name, target in (("parent_link", parent), ("previous_link", parent), ("spawn_link", spawn)):
        if not rows.has(name):
            continue
        wanted = rows.take(name, everyone)
        found = pc.fill_null(pc.index_in(wanted, value_set=links), -1).to_numpy().astype(np.int64)
        is_named = wanted.is_valid().to_numpy(zero_copy_only=False)
        is_forward = is_named & (found >= everyone)
        target[is_named] = np.where((found < 0) | is_forward, PARENT_MISSING, found)[is_named]
        if is_forward.any():
            warnings.append(f"{int(is_forward.sum()):,} requests name a parent that arrives later: not used")
    spawn[spawn < 0] = -1
    return parent, spawn, warnings
