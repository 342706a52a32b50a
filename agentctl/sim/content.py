"""Which KV blocks hold the same content: every request's blocks as a path through lines of blocks.

Engines cache blocks by content. Prompts are known by their chains in the prefix tree; outputs carry no ids
and are named by the child, the first later request whose parent this one is, as far as its prompt confirms
them (design, "Output tokens"). What nothing names is the request's own and matched by nobody else.

Blocks form a tree, and the tree is cut into *lines*: from a head downwards, at each node on to the child with
the most descendants. A path from the root crosses few lines (at most the logarithm of the nodes) and takes a
beginning of each. Engines therefore keep, per line, how many of its first blocks they hold.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.errors import ConfigError
from agentctl.workload import Workload

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


class Content(NamedTuple):
    """Paths of n requests. Request r's full blocks, prompt and output, are the first `length[i]` blocks of
    line `line[i]` for i in start[r]..start[r + 1], one range after the other from the root."""

    start: I64  # n + 1
    line: I32
    length: I32
    n_lines: int


class _Trunks(NamedTuple):
    """The trace's tree, laid out so that the node some levels up is found in a few steps."""

    parent: NDArray[np.uint32]
    depth: NDArray[np.int32]
    head: I64  # first node of each node's trunk
    place: I64  # number of each node; those of a trunk are consecutive
    node: I64  # at each place


class _Naming(NamedTuple):
    """What names the blocks of each request: first its chain, then its child, then itself."""

    tip: NDArray[np.uint32]
    child: I32
    n_blocks: I64  # full blocks of prompt and output that get KV
    named: I64  # of these, by the request's own chain
    confirmed: I64  # ... and up to here by its child
    own_first: I64  # place of its first own block
    own_line: I64  # line of its own blocks
    split: int
    group: int


def compile_content(workload: Workload, block_tokens: int) -> Content:
    """Paths for engines with `block_tokens` (B) per block; trace blocks hold T tokens, T = k B or B = k T.

    Raises ConfigError when neither size divides the other.
    """
    requests, tree, trace_block = workload.requests, workload.tree, workload.block_tokens
    split, group = block_ratio(trace_block, block_tokens)
    trunks = _Trunks(tree.parent, tree.depth, *_lay_out(tree.parent))
    prompt, output, child = requests.prompt_tokens, requests.output_tokens, requests.confirmed_child
    confirmed = np.zeros(prompt.size, np.int64)
    first = np.arange(tree.parent.size * split)
    if trace_block is not None:
        _confirm(confirmed, prompt, output, child, requests.tip, trace_block, trunks)
        if split > 1:
            merge = (prompt, child, requests.tip, confirmed)
            _merge_tails(first, *merge, trace_block, block_tokens, split, trunks)
    parent = _parents(trunks, split, group, first)
    line, offset, heads = _lines(parent, first)
    n_blocks = (prompt + output - 1) // block_tokens
    in_chain = tree.depth[requests.tip].astype(np.int64) * split // group
    named = np.minimum(prompt // block_tokens, in_chain)
    own_first = np.maximum(named, confirmed // block_tokens)
    has_own = n_blocks > own_first
    own_line = heads.size + np.cumsum(has_own) - has_own
    naming = _Naming(
        requests.tip, child, n_blocks, named, confirmed // block_tokens, own_first, own_line, split, group
    )
    names = (naming, trunks, first, parent, line, offset, heads)
    start = np.zeros(prompt.size + 1, np.int64)
    _count_ranges(*names, start[1:])
    np.cumsum(start, out=start)
    path_line, path_length = np.empty(start[-1], np.int32), np.empty(start[-1], np.int32)
    _fill_ranges(*names, start, path_line, path_length)
    return Content(start, path_line, path_length, heads.size + int(has_own.sum()))


def block_ratio(trace_block: int | None, engine_block: int) -> tuple[int, int]:
    """(engine blocks per trace block, trace blocks per engine block); one of them is 1."""
    if trace_block is None or trace_block == engine_block:
        return 1, 1
    if trace_block % engine_block == 0:
        return trace_block // engine_block, 1
    if engine_block % trace_block == 0:
        return 1, engine_block // trace_block
    raise ConfigError(
        f"engine blocks of {engine_block} tokens do not fit the trace's blocks of {trace_block}",
        place="block_tokens",
        expected=f"a divisor or a multiple of {trace_block}",
    )


@njit(cache=True, nogil=True)
def _lay_out(parent):
    """(head, place, node) of _Trunks: every node is followed by its child with the most descendants."""
    n = parent.size
    size = np.ones(n, np.int64)
    for node in range(n - 1, 0, -1):
        size[parent[node]] += size[node]
    heir = np.zeros(n, np.int64)  # 0: none
    for node in range(1, n):
        above = parent[node]
        if heir[above] == 0 or size[node] > size[heir[above]]:
            heir[above] = node
    head = np.zeros(n, np.int64)
    place = np.zeros(n, np.int64)
    at = np.zeros(n, np.int64)
    free = 0
    for node in range(n):
        if node == 0 or heir[parent[node]] != node:
            below = node
            while True:
                head[below], place[below], at[free] = node, free, below
                free += 1
                below = heir[below]
                if below == 0:
                    break
    return head, place, at


@njit(cache=True, nogil=True)
def _ancestor(tip, depth, trunks):
    """The node at `depth` on the chain of `tip` (0 at depth 0), -1 when the chain is shorter."""
    if trunks.depth[tip] < depth:
        return -1
    node = np.int64(tip)
    while trunks.depth[trunks.head[node]] > depth:
        node = np.int64(trunks.parent[trunks.head[node]])
    return trunks.node[trunks.place[node] - (trunks.depth[node] - depth)]


@njit(cache=True, nogil=True)
def _confirm(confirmed, prompt, output, child, tip, trace_block, trunks):
    """Fill in the tokens of every request's KV whose content its child's prompt repeats."""
    for r in range(prompt.size):
        c = child[r]
        if c < 0:
            continue
        full = prompt[r] // trace_block
        mine = _ancestor(tip[r], full, trunks)
        if mine < 0 or mine != _ancestor(tip[c], full, trunks):
            continue
        whole = prompt[r] + output[r]
        # the token sampled last has no KV
        confirmed[r] = whole - 1 if prompt[c] >= whole else min(prompt[r], prompt[c])


@njit(cache=True, nogil=True)
def _merge_tails(first, prompt, child, tip, confirmed, trace_block, block_tokens, split, trunks):
    """A hashed partial last block and the child's block at that place begin with the same content.

    `first` becomes the first of all equal names, in place.
    """
    for r in range(prompt.size):
        if confirmed[r] == 0:
            continue
        c = child[r]
        full = prompt[r] // trace_block
        tail = min(prompt[r], prompt[c]) - full * trace_block
        a, b = _ancestor(tip[r], full + 1, trunks), _ancestor(tip[c], full + 1, trunks)
        if tail < block_tokens or a < 0 or b < 0:
            continue
        for part in range(tail // block_tokens):
            x, y = a * split + part, b * split + part
            while first[x] != x:
                x = first[x]
            while first[y] != y:
                y = first[y]
            first[max(x, y)] = min(x, y)
    for name in range(first.size):  # a link always points down, to a name that is final already
        first[name] = first[first[name]]


_NOT_A_BLOCK = -2


@njit(cache=True, nogil=True)
def _parents(trunks, split, group, first):
    """For every name node * split + part the name before it, -1 at the root (i32)."""
    parent = np.full(first.size, _NOT_A_BLOCK, np.int32)
    for node in range(1, trunks.parent.size):
        if group > 1:
            if trunks.depth[node] % group == 0:
                above = _ancestor(node, trunks.depth[node] - group, trunks)
                parent[node] = above if above > 0 else -1
            continue
        above = np.int64(trunks.parent[node])
        parent[node * split] = first[above * split + split - 1] if above > 0 else -1
        for name in range(node * split + 1, (node + 1) * split):
            parent[name] = first[name - 1]
    return parent


@njit(cache=True, nogil=True)
def _lines(parent, first):
    """Cut the tree of names into lines: (line of each name, its place in the line, head of each line).

    Names that are not the first of their equals are left out.
    """
    n = parent.size
    size = np.ones(n, np.int32)
    for name in range(n - 1, -1, -1):
        if parent[name] >= 0 and first[name] == name:
            size[parent[name]] += size[name]
    heir = np.full(n, -1, np.int32)
    n_lines = 0
    for name in range(n):
        above = parent[name]
        if first[name] != name or above == _NOT_A_BLOCK:
            continue
        if above < 0 or heir[above] >= 0:
            n_lines += 1  # one of the two lines that meet here begins
        if above >= 0 and (heir[above] < 0 or size[name] > size[heir[above]]):
            heir[above] = name
    line = np.full(n, -1, np.int32)
    offset = np.zeros(n, np.int32)
    heads = np.empty(n_lines, np.int32)
    n_lines = 0
    for name in range(n):
        above = parent[name]
        if first[name] != name or above == _NOT_A_BLOCK:
            continue
        if above >= 0 and heir[above] == name:
            line[name], offset[name] = line[above], offset[above] + 1
        else:
            heads[n_lines] = name
            line[name] = n_lines
            n_lines += 1
    return line, offset, heads


@njit(cache=True, nogil=True)
def _name(r, j, naming, trunks, first):
    """(-1, name) of block j of request r, or (owner, place) when it is an own block of `owner`."""
    while True:
        if j < naming.named[r]:
            if naming.group > 1:
                return np.int64(-1), _ancestor(naming.tip[r], (j + 1) * naming.group, trunks)
            node = _ancestor(naming.tip[r], j // naming.split + 1, trunks)
            return np.int64(-1), first[node * naming.split + j % naming.split]
        if j >= naming.confirmed[r]:
            return np.int64(r), j - naming.own_first[r]
        r = np.int64(naming.child[r])


@njit(cache=True, nogil=True)
def _walk(r, naming, trunks, first, parent, line, offset, heads, path_line, path_length, at):
    """Write the ranges of request r's path, from the root to its last block, in front of place `at`.

    Nothing is written with at < 0. Returns the number of ranges.
    """
    n = 0
    owner, name = np.int64(-1), np.int64(-1)
    if naming.n_blocks[r] > 0:
        owner, name = _name(r, naming.n_blocks[r] - 1, naming, trunks, first)
    while name >= 0:
        n += 1
        if owner >= 0:
            here, length = naming.own_line[owner], name + 1
            before = naming.own_first[owner] - 1
            name = np.int64(-1)
            if before >= 0:
                owner, name = _name(owner, before, naming, trunks, first)
        else:
            here, length = np.int64(line[name]), np.int64(offset[name]) + 1
            name = np.int64(parent[heads[here]])
        if at >= 0:
            path_line[at - n], path_length[at - n] = here, length
    return n


@njit(cache=True, nogil=True)
def _count_ranges(naming, trunks, first, parent, line, offset, heads, count):
    for r in range(count.size):
        count[r] = _walk(r, naming, trunks, first, parent, line, offset, heads, line, line, -1)


@njit(cache=True, nogil=True)
def _fill_ranges(naming, trunks, first, parent, line, offset, heads, start, path_line, path_length):
    for r in range(start.size - 1):
        _walk(r, naming, trunks, first, parent, line, offset, heads, path_line, path_length, start[r + 1])
