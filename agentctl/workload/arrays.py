"""What the simulator replays, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.trace import PrefixTree, Trace
from agentctl.workload.fleet import Fleet
from agentctl.workload.process import Process

REPLAYS = ("timestamps", "causal", "thinktime", "closed-loop")

AT_ARRIVAL, AFTER_END, AFTER_START = 0, 1, 2  # Requests.release


class Requests(NamedTuple):
    """One value per request, in workload order (by logged arrival). Times are seconds.

    release    AT_ARRIVAL: when logged, not before the `deps` ended; AFTER_END: `gap` after the last of its
               `deps` ended; AFTER_START: `gap` after its dependency's own arrival
    deps       numbers of the requests that release request r: deps[deps_start[r]:deps_start[r + 1]]
    """

    arrival: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]  # at least 1
    session: NDArray[np.int32]
    turn: NDArray[np.int32]
    parent: NDArray[np.int32]  # the earlier request whose prompt this one extends, -1
    release: NDArray[np.int8]
    gap: NDArray[np.float64]
    deps_start: NDArray[np.int64]  # n + 1
    deps: NDArray[np.int32]
    tip: NDArray[np.uint32]  # last node of its chain, 0: no blocks
    confirmed_child: NDArray[np.int32]  # first request whose parent this is, -1: names the output's KV
    priority: NDArray[np.int32]  # smaller is served first, as in vLLM


class LazyTree:
    """The tree of a trace, read when one of its arrays is asked for: stored content needs none."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        """With its arrays, for workers elsewhere."""
        return PrefixTree, (self.parent, self.depth, self.hash, self.first_row)

    @property
    def parent(self) -> NDArray[np.uint32]:
        return self._trace.tree.parent

    @property
    def depth(self) -> NDArray[np.int32]:
        return self._trace.tree.depth

    @property
    def hash(self) -> NDArray[np.uint64]:
        return self._trace.tree.hash

    @property
    def first_row(self) -> NDArray[np.int64]:
        return self._trace.tree.first_row


@dataclass(frozen=True, eq=False)
class Workload:
    """Requests with the tree of their blocks. `counts` says what was left out, why, and what was assumed."""

    requests: Requests
    tree: PrefixTree | LazyTree
    block_tokens: int | None  # tokens per block of the tree
    request_ids: list[str]
    session_ids: list[str]  # by session number
    replay: str  # REPLAYS
    counts: dict[str, int]
    trace_name: str = ""
    trace_digest: str = ""
    starts_synthesised: bool = False  # the log has no session starts: they were drawn
    as_logged: Requests | None = None  # `requests` of the whole trace, None once scaled or redrawn
    fleet: Fleet | None = None  # what requests are on each of several models
    arriving: Process | None = None  # what made its starts, with its rate; None: not made here

    @property
    def n_requests(self) -> int:
        return int(self.requests.arrival.size)

    @property
    def n_sessions(self) -> int:
        return len(self.session_ids)

    def session_starts(self) -> NDArray[np.float64]:
        """Logged arrival of every session's first request, s."""
        starts = np.full(self.n_sessions, np.inf)
        np.minimum.at(starts, self.requests.session, self.requests.arrival)
        return starts


def first_children(parent: NDArray[np.int32]) -> NDArray[np.int32]:
    """For every request the first one whose parent it is, -1."""
    child = np.full(parent.size, -1, dtype=np.int32)
    later = np.flatnonzero(parent >= 0)[::-1].astype(np.int32)
    child[parent[later]] = later
    return child
