"""Part of a trace to send to a server: whole sessions from its start, and what their prompts are made of.

Prompts come from the trace's block identities alone: the same block, the same tokens, so that two requests
share in the server's cache what they shared in the log, and lengths are exact. What the server answers is
in no later prompt; its place is taken by the blocks that the log has there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agentctl.errors import InputError
from agentctl.workload import Requests, Workload, take_sessions
from agentctl.workload.arrays import first_children

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

PRIVATE = 1 << 50  # identities of content that no block names begin there
MOST_UNITS = 1 << 24  # of one request


@dataclass(frozen=True)
class Slice:
    """workload: what is sent, arrivals from 0; left_out: requests of the sessions taken, by reason."""

    workload: Workload
    left_out: dict[str, int]
    sessions: int
    too_long_sessions: int  # of more requests than were allowed, passed over

    @property
    def n_requests(self) -> int:
        return self.workload.n_requests


def cut(workload: Workload, requests: int, seconds: float, speed: float, max_context: int | None) -> Slice:
    """The first sessions that are `requests` together, as far as they fall into `seconds`.

    speed        session starts come so many times as fast as in the log; gaps between turns stay
    max_context  tokens of prompt and output that the server takes: a longer request is left out, and what
                 waits for it
    Raises InputError where nothing is left.
    """
    starts = workload.session_starts()
    order = np.argsort(starts, kind="stable")
    first = float(starts[order[0]])
    due = workload.requests.arrival - starts[workload.requests.session]
    due += (starts[workload.requests.session] - first) / speed
    sizes = np.bincount(workload.requests.session[due < seconds], minlength=starts.size)
    taken, total, too_long = [], 0, 0
    for session in order.tolist():
        if sizes[session] > requests:
            too_long += 1
        elif total + sizes[session] > requests:
            break
        elif sizes[session]:
            taken.append(session)
            total += int(sizes[session])
    if not taken:
        raise InputError(
            f"none of {starts.size:,} sessions fits: the shortest has {sizes[sizes > 0].min():,} requests "
            f"within {seconds:g} s",
            place="--requests", expected="at least that many",
        )  # fmt: skip
    chosen = np.array(taken)
    part = take_sessions(workload, chosen, (starts[chosen] - first) / speed)
    why = _why_not(part.requests, seconds, max_context)
    kept = subset(part, np.array([reason is None for reason in why]))
    if not kept.n_requests:
        raise InputError(
            f"all {part.n_requests:,} requests are longer than the server takes ({max_context:,} tokens)",
            place="--max-context", hint="start the server with a longer context, or take another trace",
        )  # fmt: skip
    left_out = Counter(reason for reason in why if reason)
    return Slice(kept, dict(left_out), len(set(kept.requests.session.tolist())), too_long)


def _why_not(requests: Requests, seconds: float, max_context: int | None) -> list[str | None]:
    """Why each request is left out; None: it is sent."""
    tokens = requests.prompt_tokens + requests.output_tokens
    found: list[str | None] = []
    for r in range(tokens.size):
        deps = requests.deps[requests.deps_start[r] : requests.deps_start[r + 1]].tolist()
        before = next((found[d] for d in deps if found[d]), None)
        if max_context is not None and tokens[r] > max_context:
            found.append("longer than the server's context")
        elif requests.arrival[r] >= seconds:
            found.append("after the time allowed, by the log")
        elif before:
            found.append("after one that is left out")
        else:
            found.append(None)
    return found


def subset(workload: Workload, keep: Mask) -> Workload:
    """The requests in `keep`, whose dependencies are among them; a prefix parent may be missing."""
    old = workload.requests
    number = np.where(keep, np.cumsum(keep) - 1, -1)
    part = {
        name: values[keep] for name, values in old._asdict().items() if name not in ("deps", "deps_start")
    }
    n_deps = np.diff(old.deps_start)
    parent = np.where(part["parent"] >= 0, number[part["parent"]], -1).astype(np.int32)
    part["parent"], part["confirmed_child"] = parent, first_children(parent)
    part["deps"] = number[old.deps[np.repeat(keep, n_deps)]].astype(np.int32)
    part["deps_start"] = np.concatenate([[0], np.cumsum(n_deps[keep])]).astype(np.int64)
    ids = [name for name, kept in zip(workload.request_ids, keep.tolist(), strict=True) if kept]
    return replace(workload, requests=Requests(**part), request_ids=ids, as_logged=None)


class Contents:
    """What each prompt of a workload is made of: names of the trace's blocks, and of the rest after them.

    The rest is less than a block, or all of it in a trace without blocks. Where a later turn goes on from
    it, it is the beginning of what that turn has there (design, output tokens); else content of its own.
    """

    def __init__(self, workload: Workload) -> None:
        self.block = workload.block_tokens or 0
        self._prompt = workload.requests.prompt_tokens
        n = workload.n_requests
        self._chains: list[I64] = [np.empty(0, np.int64)] * n
        own = [-r - 1 for r in range(n)]  # names of the rests: a node, or below 0 one of the request's own
        for r in range(n) if self.block else ():
            chain = _path(workload, int(workload.requests.tip[r]))
            whole = min(chain.size, int(self._prompt[r]) // self.block)
            own[r] = int(chain[whole]) if chain.size > whole else own[r]
            self._chains[r] = chain[:whole]
        self._goes_on = self._continued(workload, own)
        self._rest = [self._name(name) for name in own]

    def pieces(self, r: int) -> Iterator[tuple[str, int]]:
        """The prompt as names and tokens, in order."""
        yield from ((str(node), self.block) for node in self._chains[r].tolist())
        if rest := int(self._prompt[r]) - self._chains[r].size * self.block:
            yield str(self._rest[r]), rest

    def identities(self, r: int, unit: int, tokens: int | None = None) -> list[int]:
        """The same as numbers, one for each whole `unit` tokens; unit divides the block.

        tokens  of the prompt as the server counts them; what is beyond the log's is nobody else's"""
        own = int(self._prompt[r])
        tokens = own if tokens is None else tokens
        per = self.block // unit
        whole = (self._chains[r][:, None] * per + np.arange(per)).ravel().tolist()
        name = self._rest[r]
        begin = name * per if name >= 0 else PRIVATE + (-name - 1) * MOST_UNITS
        found = whole + list(range(begin, begin + own // unit - len(whole)))
        beyond = PRIVATE + (r + 1) * MOST_UNITS - 1
        return (found + [beyond - k for k in range(tokens // unit - len(found))])[: tokens // unit]

    def _continued(self, workload: Workload, own: list[int]) -> dict[int, int]:
        """{name of a rest: what the first turn that goes on from it has there}."""
        requests, whole_blocks = workload.requests, {int(v) for chain in self._chains for v in chain}
        found: dict[int, int] = {}
        for r, child in enumerate(requests.confirmed_child.tolist()):
            mine = self._chains[r]
            if (
                child < 0
                or own[r] in whole_blocks
                or requests.prompt_tokens[child] < requests.prompt_tokens[r]
            ):
                continue
            theirs = self._chains[child]
            if np.array_equal(theirs[: mine.size], mine):
                found.setdefault(own[r], int(theirs[mine.size]) if theirs.size > mine.size else own[child])
        return found

    def _name(self, name: int) -> int:
        seen = {name}
        while (following := self._goes_on.get(name, name)) not in seen:
            name = following
            seen.add(name)
        return name


def _path(workload: Workload, tip: int) -> I64:
    """Nodes from the root's child to the tip."""
    parent, nodes = workload.tree.parent, []
    while tip:
        nodes.append(tip)
        tip = int(parent[tip])
    return np.array(nodes[::-1], np.int64)
