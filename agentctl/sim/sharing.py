"""What requests of a group had before each other: sessions that come back, engines that hold the same.

Prefixes are paths of lines (agentctl.sim.content), of which a request covers the first blocks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agentctl.sim.content import Content
from agentctl.sim.jit import entry

I64 = NDArray[np.int64]


def seen_before(content: Content, order: I64, group: I64) -> tuple[I64, I64]:
    """(blocks of each request's path that an earlier one of its group had, and that none had).

    order  requests to look at, one group after the other, each in its order; the others get 0. One that is in
           several groups has the sum of what it finds
    group  of each of `order`, from 0
    """
    n = content.start.size - 1
    before, fresh = np.zeros(n, np.int64), np.zeros(n, np.int64)
    covered = np.zeros(content.n_lines, np.int64)
    covering = np.full(content.n_lines, -1, np.int64)
    _look(*content[:3], order, group, covered, covering, before, fresh)
    return before, fresh


@entry
def _look(start, line, length, order, group, covered, covering, before, fresh):  # type: ignore[no-untyped-def]
    """`covered` blocks of a line were seen in the group that `covering` names. Modified in place."""
    for at in range(order.size):
        r = order[at]
        mine, unbroken = group[at], True
        for i in range(start[r], start[r + 1]):
            x, blocks = line[i], np.int64(length[i])
            known = min(covered[x], blocks) if covering[x] == mine else np.int64(0)
            if unbroken:
                before[r] += known
            unbroken = unbroken and known == blocks
            fresh[r] += blocks - known
            if known < blocks:
                covered[x], covering[x] = blocks, mine


def session_tokens(
    content: Content,
    session: NDArray[np.int32],
    arrival_s: NDArray[np.float64],
    prompt_tokens: I64,
    block_tokens: int,
) -> I64:
    """Prompt tokens of each request, in whole blocks, that an earlier one of its session had in prompt or
    output."""
    n = session.size
    order = np.lexsort((np.arange(n), arrival_s, session))
    before, _ = seen_before(content, order, session[order].astype(np.int64))
    return np.minimum(before, prompt_tokens // block_tokens) * block_tokens


def copies(content: Content, done: NDArray[np.bool_], engine: I64, decode_engine: I64 | None) -> float | None:
    """On how many engines a block of the finished requests was, on average; None without blocks. One that was
    handed over was on both."""
    served = np.flatnonzero(done)
    where = engine[served]
    _, anywhere = seen_before(content, served, np.zeros_like(served))
    if decode_engine is not None:
        handed = np.flatnonzero(done & (decode_engine != engine))
        served, where = np.concatenate([served, handed]), np.concatenate([where, decode_engine[handed]])
    order = np.argsort(where, kind="stable")
    _, here = seen_before(content, served[order], where[order])
    return int(here.sum()) / int(anywhere.sum()) if anywhere.any() else None
