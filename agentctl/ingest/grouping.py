"""Which session each row belongs to, from which evidence, and how sure that is.

In this order: the format's own session (ids that mean something only inside it), links between requests,
session ids that pass the test, block chains, and alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from agentctl.errors import InputError
from agentctl.ingest.options import IngestOptions
from agentctl.ingest.rows import Rows
from agentctl.ingest.session_ids import check_explicit_ids
from agentctl.ingest.sessions import derive_block_chain_sessions, number_sessions, session_band
from agentctl.ingest.trie import UNKNOWN_TIP, NumberedTree
from agentctl.ingest.turns import PARENT_MISSING, PARENT_UNKNOWN
from agentctl.schema import SESSION_SOURCES

if TYPE_CHECKING:
    from agentctl.ingest.write import Names

_EXPLICIT = SESSION_SOURCES.index("explicit")
_LINK = SESSION_SOURCES.index("parent_link")
_CHAIN = SESSION_SOURCES.index("block_chain")
_SINGLE = SESSION_SOURCES.index("single")


@dataclass
class Grouping:
    """One entry per sorted row; sessions are numbered from 0 in order of their first row."""

    session: NDArray[np.int64]
    source: NDArray[np.int64]  # index into SESSION_SOURCES
    confidence: NDArray[np.float32]
    named_parent: NDArray[np.int64]  # row that the log or the chains name, or PARENT_UNKNOWN / PARENT_MISSING
    spawn: NDArray[np.int64]  # row that started this row's sub-agent, -1
    explicit: NDArray[np.int64]  # code of the log's own session id, -1
    explicit_names: list[str]
    document: dict[str, Any]  # the `sessions` part of dataset.json
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def first_row(self) -> NDArray[np.int64]:
        """First row of each session."""
        return np.unique(self.session, return_index=True)[1]

    def names(self, names: Names, positions: NDArray[np.int64]) -> pa.Array:
        """Session ids: the log's own where they count, else the first request's id."""
        own = np.where(self.source[positions] == _EXPLICIT, self.explicit[positions], -1)
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
    explicit, explicit_names = rows.codes("session_id")
    named_parent, spawn, warnings = _links(rows)
    grouping = Grouping(
        session=np.full(n, -1, dtype=np.int64),
        source=np.full(n, _SINGLE, dtype=np.int64),
        confidence=np.zeros(n, dtype=np.float32),
        named_parent=named_parent,
        spawn=spawn,
        explicit=explicit,
        explicit_names=explicit_names,
        document={"method": options.sessions, "id_test": None, "band": []},
        warnings=warnings,
    )
    if options.sessions == "none":
        named_parent[:] = PARENT_UNKNOWN  # every request its own session, no parents
        grouping.spawn[:] = -1
        _set(grouping, np.arange(n), np.arange(n), _SINGLE, np.float32(0.0))
    elif options.sessions == "explicit":
        if not explicit_names:
            raise InputError("no record has a session id", hint="--sessions auto derives sessions")
        _set_explicit(grouping)
    else:
        _automatic(grouping, rows, arrival, end, tree, block_tokens)
    _finish(grouping)
    return grouping


def _automatic(
    grouping: Grouping,
    rows: Rows,
    arrival: NDArray[np.float64],
    end: NDArray[np.float64],
    tree: NumberedTree,
    block_tokens: int | None,
) -> None:
    if rows.time_origin == "session":  # the format is made of sessions: nothing to doubt or derive
        _set_explicit(grouping)
        return
    if rows.has("parent_link"):
        everyone = np.arange(len(rows))
        parent = np.maximum(grouping.named_parent, -1)
        _set(grouping, everyone, number_sessions(parent), _LINK, np.float32(1.0))
        return
    chains = None
    if block_tokens is not None:
        prompt, output = rows.ints("prompt_tokens"), rows.ints("output_tokens")
        shape = (tree.parent, tree.depth, block_tokens)
        chains = derive_block_chain_sessions(arrival, prompt, output, tree.tips, *shape)
        band = session_band(arrival, prompt, output, tree.tips, *shape)
        grouping.document["band"] = [row._asdict() for row in band]
    if grouping.explicit_names:
        test = check_explicit_ids(
            grouping.explicit,
            arrival,
            end,
            tree.tips,
            tree.parent,
            None if chains is None else chains.session,
        )
        grouping.document["id_test"] = test._asdict()
        if test.accepted:
            _set_explicit(grouping)
        else:
            grouping.warnings.append(f"the log's session ids are not used: {test.reason}")
    rest = np.flatnonzero((grouping.session < 0) & (tree.tips != UNKNOWN_TIP))
    if chains is None or not rest.size:
        return
    if rest.size < len(rows):  # some rows have good ids: chains are for the others alone
        chains = derive_block_chain_sessions(
            arrival[rest], prompt[rest], output[rest], tree.tips[rest], *shape
        )
    grouping.named_parent[rest] = np.where(chains.parent_row >= 0, rest[chains.parent_row], PARENT_UNKNOWN)
    _set(grouping, rest, chains.session, _CHAIN, chains.confidence)


def _set(
    grouping: Grouping, rows: NDArray[np.int64], session: NDArray[np.int64], source: int, confidence: Any
) -> None:
    """Rows get sessions that nobody else has so far."""
    grouping.session[rows] = session + grouping.session.max(initial=-1) + 1
    grouping.source[rows] = source
    grouping.confidence[rows] = confidence


def _set_explicit(grouping: Grouping) -> None:
    rows = np.flatnonzero(grouping.explicit >= 0)
    _set(grouping, rows, grouping.explicit[rows], _EXPLICIT, np.float32(1.0))


def _finish(grouping: Grouping) -> None:
    """Rows without any evidence are alone; sessions are numbered by first row and counted."""
    alone = np.flatnonzero(grouping.session < 0)
    _set(grouping, alone, np.arange(alone.size), _SINGLE, np.float32(0.0))
    _, first, inverse = np.unique(grouping.session, return_index=True, return_inverse=True)
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(first.size)
    grouping.session = rank[inverse]
    sizes = np.bincount(grouping.session)
    by_source = np.bincount(grouping.source, minlength=len(SESSION_SOURCES))
    grouping.document |= {
        "count": int(sizes.size),
        "multi_turn": int(np.count_nonzero(sizes > 1)),
        "source": {name: int(count) for name, count in zip(SESSION_SOURCES, by_source, strict=True) if count},
    }


def _links(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
    """Rows that the log names as parent and as spawner; a link to a later row or to none is missing."""
    n = len(rows)
    parent = np.full(n, PARENT_UNKNOWN, dtype=np.int64)
    spawn = np.full(n, -1, dtype=np.int64)
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
