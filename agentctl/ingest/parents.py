"""Prefix parents inside an agent line: which earlier request does a prompt extend?

With block chains: the request of the same line whose full blocks reach deepest into this chain, the latest of
these. Without chains the lengths decide: the latest request of the line with a shorter prompt.

The last token of the earlier prompt is left out of its full blocks: it may merge with the answer when the
next prompt is tokenised, and then a block that it completes differs (tau-bench, 16 tokens: 9 of 327 turns).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.ingest.session_ids import first_block
from agentctl.ingest.sessions import NO_TIP, last_full_node, nearest_end

Bool = NDArray[np.bool_]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]


class Lines(NamedTuple):
    """Agent lines and the neighbours of each row in its own line; rows i32[n], -1 none."""

    line: I32  # number of the (session, agent) line
    order: I32  # rows by (line, row)
    previous: I32  # the row before it
    twin: I32  # the latest earlier row with the very same prompt
    retry_of: I32  # the failed attempt that it repeats


def find_lines(session: I32, agent: I32, prompt: I64, tip: U32, message: I32, failed: Bool) -> Lines:
    """Lines, twins and retries.

    Same prompt: the same messages where they are known (`message` is their node, -1 unknown), else the same
    tip and length. Where no block tells prompts apart, equal length counts as the same prompt only after a
    failed attempt. A request after a failed one of unknown prompt is its retry.
    """
    line = _numbered(session.astype(np.int64) * (int(agent.max(initial=-1)) + 2) + agent + 1)
    previous = previous_with_same(line)
    twin = previous_with_same(line, tip, prompt)
    after_failure = (twin >= 0) & failed[twin]
    has_block = (tip != NO_TIP) & (tip != 0)
    twin = np.where((prompt > 0) & (has_block | after_failure), twin, np.int32(-1))
    twin = np.where(message >= 0, previous_with_same(line, message), twin)
    blank = (previous >= 0) & failed[previous] & (prompt[previous] <= 0) & (message[previous] < 0)
    retry_of = np.where((twin >= 0) & failed[twin], twin, np.where(blank, previous, np.int32(-1)))
    return Lines(line, in_order_of(line), previous, twin, retry_of)


def in_order_of(key: NDArray[np.integer]) -> I32:
    """Rows by (key, row)."""
    return np.argsort(key, kind="stable").astype(np.int32)


def _numbered(key: I64) -> I32:
    """Numbers of the keys in their order, from 0."""
    order = in_order_of(key)
    is_new = key[order[1:]] != key[order[:-1]]
    number = np.zeros(key.size, np.int32)
    number[order[1:]] = np.cumsum(is_new, dtype=np.int32)
    return number


def previous_with_same(*keys: NDArray[np.integer]) -> I32:
    """The latest earlier row with the same keys, -1 if none."""
    previous = np.full(keys[0].size, -1, np.int32)
    order = np.lexsort(keys[::-1]).astype(np.int32)
    same = np.ones(max(order.size - 1, 0), np.bool_)
    for key in keys:
        same &= key[order[1:]] == key[order[:-1]]
    previous[order[1:][same]] = order[:-1][same]
    return previous


def prefix_parents(
    lines: Lines,
    named: I32,
    spawn: I32,
    prompt: I64,
    tip: U32,
    fit: Bool,
    parent_node: U32,
    depth: I32,
    block_tokens: int | None,
) -> I32:
    """The request that each prompt extends (i32[n], -1).

    A prompt sent again has the parent of the first time, also where the log or a block chain names the
    earlier attempt as the parent, and so has the retry of an unknown prompt that extends nothing; else a
    parent that the log names wins, then the chain. A row that extends nothing takes its place after the
    latest row of its line (a compacted or edited prompt), if the two begin with the same block as far as is
    known and nobody else continues that row. A request that spawned a sub-agent is the parent of the
    sub-agent's first request only when that prompt extends it (a forked context): a parent's output is named
    by its first child, and that is the next turn of its own line.

    fit: rows that can be extended, because an answer to them may be part of a later prompt
    """
    full = last_full_node(prompt, tip, parent_node, depth, block_tokens or 1)
    held = last_full_node(prompt - 1, tip, parent_node, depth, block_tokens or 1)
    end = nearest_end(held, parent_node)
    extends = _extended_row(lines.order, lines.line, prompt, full, held, fit, end, parent_node)
    del end
    first = (lines.previous < 0) & (spawn >= 0)
    extends[first] = _spawner_if_extended(np.flatnonzero(first), spawn, prompt, full, held, parent_node)
    del full, held
    head = first_block(parent_node)[np.where(tip == NO_TIP, np.uint32(0), tip)]  # the root has 0
    return _settle(named, lines.twin, lines.retry_of, extends, lines.line, head, fit)


@njit(cache=True, nogil=True)
def _extended_row(order, line, prompt, full, held, fit, end, parent_node):
    """The earlier row of the line with a shorter prompt whose full blocks reach deepest into the row's path.

    The latest of these, -1 if none.
    Lines come one after the other; `owner` tells whether `top` of a node belongs to the current one. The rows
    that end in a node form a list (`top`, `below`) from which a later row with a shorter prompt drops others.
    """
    found = np.full(line.size, -1, np.int32)
    owner = np.full(parent_node.size, -1, np.int32)
    top = np.full(parent_node.size, -1, np.int32)
    below = np.full(line.size, -1, np.int32)
    for row in order:
        node = end[full[row]]
        while True:
            if owner[node] == line[row] and prompt[row] > 0:
                other = top[node]
                while other >= 0 and prompt[other] >= prompt[row]:
                    other = below[other]
                if other >= 0:
                    found[row] = other
                    break
            if node == 0:
                break
            node = end[parent_node[node]]
        if fit[row] and prompt[row] > 0:
            node = held[row]
            other = top[node] if owner[node] == line[row] else -1
            while other >= 0 and prompt[other] >= prompt[row]:
                other = below[other]
            owner[node], top[node], below[row] = line[row], row, other
    return found


@njit(cache=True, nogil=True)
def _spawner_if_extended(rows, spawn, prompt, full, held, parent_node):
    """For first requests of sub-agents the request that spawned them if their chain contains it, else -1."""
    found = np.full(rows.size, -1, np.int32)
    for i in range(rows.size):
        row, other = rows[i], spawn[rows[i]]
        node = full[row]
        while node > held[other]:  # numbers fall towards the root
            node = parent_node[node]
        if node != 0 and node == held[other] and prompt[other] < prompt[row]:
            found[i] = other
    return found


@njit(cache=True, nogil=True)
def _settle(named, twin, retry_of, extends, line, head, fit):
    """Choose among the candidates, row by row."""
    parent = np.full(named.size, -1, np.int32)
    continued = np.zeros(named.size, np.bool_)
    for row in range(named.size):
        claim = named[row] if named[row] >= 0 else extends[row]
        if claim >= 0:
            continued[claim] = True
    latest = np.full(named.size, -1, np.int32)  # by line
    for row in range(named.size):
        before = latest[line[row]]
        if twin[row] >= 0 and (named[row] < 0 or named[row] == twin[row]):
            parent[row] = parent[twin[row]]
        elif named[row] >= 0:
            parent[row] = named[row]
        elif extends[row] >= 0:
            parent[row] = extends[row]
        elif retry_of[row] >= 0:  # of an attempt whose prompt is unknown
            parent[row] = parent[retry_of[row]]
        elif before >= 0 and not continued[before] and _may_share(head[row], head[before]):
            parent[row] = before
        if fit[row]:
            latest[line[row]] = row
    return parent


@njit(cache=True, nogil=True)
def _may_share(head, other):
    return head == other or head == 0 or other == 0
