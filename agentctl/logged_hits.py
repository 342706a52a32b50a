"""Prefix hits as the log has them, where it says how many tokens were cached but not which.

An engine reports `cached_tokens` to every client; the blocks that it found are in no answer. The simulator
finds hits by content. So content is made up that gives those hits: a request with c cached tokens shares its
first c tokens with an earlier request that has them, the last one of its session or else the last one of its
engine that had its first token by then. Which one it was decides nothing but what is evicted when.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.trace import PrefixTree
from agentctl.workload import Requests, Workload
from agentctl.workload.arrays import first_children

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


LOOK_BACK = 256  # requests of an engine among which a lender is looked for


class Shared(NamedTuple):
    """lender  of every request: the earlier one whose first blocks it shares, -1
    blocks  how many
    parent  the lender where its output is shared too, -1
    """

    lender: I64
    blocks: I64
    parent: I64


def with_logged_hits(
    workload: Workload, cached_tokens: F64, ttft_s: F64, engine: I64, block_tokens: int
) -> Workload:
    """The same requests with chains of blocks that give the logged hits: in whole blocks, never the whole
    prompt. NaN: none."""
    shared = _lenders(workload.requests, cached_tokens, ttft_s, engine, block_tokens)
    tree, tip = _chains(workload.requests, shared, block_tokens)
    parent = shared.parent.astype(np.int32)
    requests = workload.requests._replace(tip=tip, parent=parent, confirmed_child=first_children(parent))
    return replace(workload, requests=requests, tree=tree, block_tokens=block_tokens)


def _lenders(requests: Requests, cached: F64, ttft_s: F64, engine: I64, block_tokens: int) -> Shared:
    prompt, session = requests.prompt_tokens, requests.session
    whole = prompt // block_tokens
    left = (
        prompt + requests.output_tokens - 1
    ) // block_tokens  # blocks that a request leaves, output and all
    wanted = np.minimum(np.nan_to_num(cached).astype(np.int64), prompt - 1) // block_tokens
    ready = requests.arrival + np.nan_to_num(ttft_s)
    shared = Shared(np.full(wanted.size, -1), np.zeros(wanted.size, np.int64), np.full(wanted.size, -1))
    served: dict[int, list[int]] = {}
    has_child: set[int] = set()
    for r, n in enumerate(wanted.tolist()):
        before = served.setdefault(int(engine[r]), [])
        near = [q for q in reversed(before[-LOOK_BACK:]) if ready[q] <= requests.arrival[r]] if n else []
        near.sort(key=lambda q: session[q] != session[r])  # its own session first, of these the last
        for q in near:
            continues = (
                session[q] == session[r] and q not in has_child
                and prompt[r] >= prompt[q] + requests.output_tokens[q]
            )  # fmt: skip
            if whole[q] >= n or (continues and left[q] >= n):
                shared.lender[r], shared.blocks[r] = q, min(n, whole[q])
                if whole[q] < n:
                    shared.parent[r] = q
                    has_child.add(q)
                break
        before.append(r)
    return shared


def _chains(requests: Requests, shared: Shared, block_tokens: int) -> tuple[PrefixTree, NDArray[np.uint32]]:
    """A tree of nodes for requests that lend or share; the others' content is theirs alone."""
    n = shared.lender.size
    tip, depth, first_row = np.zeros(n, np.uint32), [np.zeros(1, np.int32)], [np.full(1, -1)]
    above = [np.zeros(1, np.uint32)]
    chains: dict[int, NDArray[np.uint32]] = {}
    lenders, next_node = set(shared.lender.tolist()), 1
    for r in range(n):
        if r not in lenders and shared.lender[r] < 0:
            continue
        whole = int(requests.prompt_tokens[r]) // block_tokens
        begin = (
            chains[int(shared.lender[r])][: shared.blocks[r]]
            if shared.lender[r] >= 0
            else np.zeros(0, np.uint32)
        )
        fresh = np.arange(next_node, next_node + whole - begin.size, dtype=np.uint32)
        next_node += fresh.size
        chains[r] = np.concatenate([begin, fresh])
        if whole:
            tip[r] = chains[r][-1]
        above.append(
            np.concatenate([begin[-1:] if begin.size else np.zeros(1, np.uint32), fresh])[: fresh.size]
        )
        depth.append(np.arange(begin.size + 1, whole + 1, dtype=np.int32))
        first_row.append(np.full(fresh.size, r))
    nodes = np.arange(next_node, dtype=np.uint64)
    return PrefixTree(np.concatenate(above), np.concatenate(depth), nodes, np.concatenate(first_row)), tip
