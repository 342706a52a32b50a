"""Which KV blocks hold the same content: every request's blocks as a path through lines of blocks.

Engines cache blocks by content. Prompts are known by their chains in the prefix tree; outputs carry no ids
and are named by the child, the first later request whose parent this one is, as far as its prompt confirms
them (design, "Output tokens"). What nothing names is the request's own and matched by nobody else.

Blocks form a tree, and the tree is cut into *lines*: from a head downwards, at each node on to the child with
the most descendants. A path from the root crosses few lines (at most the logarithm of the nodes) and takes a
beginning of each. Engines therefore keep, per line, how many of its first blocks they hold.

A node of the trace's tree stands for `split` engine blocks, its *parts*, or is one of `group` that make one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.errors import ConfigError
from agentctl.sim.jit import entry, kernel
from agentctl.workload import Workload, store
from agentctl.workload.compile import CODE as REQUESTS_CODE
from agentctl.workload.compile import WORTH_STORING

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


class Content(NamedTuple):
    """Paths of n requests. Request r's full blocks, prompt and output, are the first `length[i]` blocks of
    line `line[i]` for i in start[r]..start[r + 1], one range after the other from the root. Lines are
    numbered in the order of their first use."""

    start: I64  # n + 1
    line: I32
    length: I32
    n_lines: int


NODE = np.dtype(
    [
        ("parent", "i4"), ("depth", "i4"),
        ("above", "i4"),  # node of the engine block before its first, 0: none, -1: it ends no block
        ("weight", "i4"),  # nodes from here downwards that end a block
        ("twin", "i4"), ("shared", "i4"),  # its first `shared` parts are those of its sibling `twin`
        ("heir", "i4"),  # the child that continues its line, 0: none
        ("head", "i4"),  # first node of its line
        ("start", "i4"),  # place in the line of its first part that is no twin's
        ("line", "i4"),  # number of the line that begins here, -1: not used yet
    ]
)  # fmt: skip

# What names the full blocks of a request: first its chain, then its child, then itself.
ASK = np.dtype(
    [
        ("tip", "i4"), ("child", "i4"),
        ("n_blocks", "i4"),  # of prompt and output, with KV
        ("named", "i4"),  # of these, by its own chain
        ("confirmed", "i4"),  # ... and up to here by its child
        ("line", "i4"),  # of its own blocks, -1: not used yet
    ]
)  # fmt: skip


def compile_content(workload: Workload, block_tokens: int) -> Content:
    """Paths for engines with `block_tokens` (B) per block; trace blocks hold T tokens, T = k B or B = k T.

    Those of a whole trace are stored, and read from the store. Raises ConfigError when neither size divides
    the other.
    """
    split, group = block_ratio(workload.block_tokens, block_tokens)
    is_whole = workload.requests is workload.as_logged and workload.fleet is None
    if not is_whole or workload.n_requests < WORTH_STORING:
        return _compile(workload, block_tokens, split, group)
    key: store.Key = {
        "kind": "content",
        "trace": workload.trace_digest,
        "block_tokens": block_tokens,
        "code": store.code_of(__file__, *REQUESTS_CODE),
    }
    if entry := store.load(key):
        arrays = entry.arrays
        return Content(arrays["start"], arrays["line"], arrays["length"], entry.facts["n_lines"])
    content = _compile(workload, block_tokens, split, group)
    paths: dict[str, np.ndarray] = {"start": content.start, "line": content.line, "length": content.length}
    store.save(key, {"n_lines": content.n_lines}, paths)
    return content


def _compile(workload: Workload, block_tokens: int, split: int, group: int) -> Content:
    requests, tree, trace_block = workload.requests, workload.tree, workload.block_tokens
    prompt, output, n = requests.prompt_tokens, requests.output_tokens, workload.n_requests
    nodes = np.zeros(tree.parent.size, NODE).view(np.recarray)
    nodes["parent"], nodes["depth"] = tree.parent, tree.depth
    _grow(nodes, group)
    asks = np.zeros(n, ASK).view(np.recarray)
    asks["tip"], asks["child"], asks["line"] = requests.tip, requests.confirmed_child, -1
    longest = workload.fleet.output_tokens.max(axis=1) if workload.fleet else output
    asks["n_blocks"] = (prompt + np.maximum(output, longest) - 1) // block_tokens
    in_chain = tree.depth[requests.tip].astype(np.int64) * split // group
    asks["named"] = np.minimum(prompt // block_tokens, in_chain)
    if trace_block is not None:
        twins = np.zeros((n, 3), np.int32)
        _confirm(asks, nodes, prompt, output, trace_block, block_tokens, twins)
        n_shared = twins[:, 2]
        pairs = twins[np.argsort(-n_shared, kind="stable")[: np.count_nonzero(n_shared)]]
        _join_twins(nodes, pairs)
    _draw_lines(nodes, split)
    start = np.zeros(n + 1, np.int64)
    line, length = np.empty(3 * n + 1, np.int32), np.empty(3 * n + 1, np.int32)
    n_lines = np.zeros(1, np.int64)
    done = 0
    while (done := _write_paths(nodes, asks, split, group, start, line, length, n_lines, done)) < n:
        line, length = (np.concatenate([values, np.empty_like(values)]) for values in (line, length))
    return Content(start, line[: start[n]], length[: start[n]], int(n_lines[0]))


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


@entry
def _grow(nodes, group):
    """Fill in above, weight and line of the nodes."""
    for x in range(nodes.size):
        nodes[x].line = nodes[x].above = -1
        if x > 0 and nodes[x].depth % group == 0:
            nodes[x].above = _up_to(nodes, x, nodes[x].depth - group)
            nodes[x].weight = 1
    for x in range(nodes.size - 1, 0, -1):
        if nodes[x].above > 0:
            nodes[nodes[x].above].weight += nodes[x].weight


@kernel
def _up_to(nodes, x, depth):
    """The node at `depth` on the chain of node x, x itself when the chain is shorter."""
    while nodes[x].depth > depth:
        x = np.int64(nodes[x].parent)
    return x


@entry
def _confirm(asks, nodes, prompt, output, trace_block, block_tokens, twins):
    """Fill in how many blocks of every request its child's prompt confirms.

    A hashed partial last block and the child's block at that place begin with the same content: into `twins`
    go these two nodes and the number of parts that they share.
    """
    for r in range(asks.size):
        c = asks[r].child
        if c < 0:
            continue
        full = prompt[r] // trace_block
        mine = _up_to(nodes, np.int64(asks[r].tip), full + 1)
        childs = _up_to(nodes, np.int64(asks[c].tip), full + 1)
        same = _up_to(nodes, mine, full)
        if nodes[same].depth < full or same != _up_to(nodes, childs, full):
            continue
        whole = prompt[r] + output[r]
        # the token sampled last has no KV
        confirmed = whole - 1 if prompt[c] >= whole else min(prompt[r], prompt[c])
        asks[r].confirmed = confirmed // block_tokens
        if mine != same and childs != same and mine != childs:
            tail = min(prompt[r], prompt[c]) - full * trace_block
            twins[r, 0], twins[r, 1], twins[r, 2] = mine, childs, max(tail // block_tokens, 0)


@entry
def _join_twins(nodes, pairs):
    """Link siblings whose first parts are the same, those with the most shared parts first.

    A part is then that of the last node reached over links that share it (a maximum spanning forest, built
    as by Kruskal: links towards the root share fewer and fewer parts).
    """
    for i in range(pairs.shape[0]):
        x, y = _owner(nodes, np.int64(pairs[i, 0]), 0), _owner(nodes, np.int64(pairs[i, 1]), 0)
        if x != y:
            if nodes[x].weight > nodes[y].weight:
                x, y = y, x
            nodes[x].twin, nodes[x].shared = y, pairs[i, 2]


@kernel
def _owner(nodes, x, part):
    """The node that stands for part `part` of node x."""
    while nodes[x].shared > part:
        x = np.int64(nodes[x].twin)
    return x


@entry
def _draw_lines(nodes, split):
    """Fill in heir, head and start. A node with a twin begins a line: where it leaves its twin."""
    for x in range(1, nodes.size):
        above = nodes[x].above
        if above > 0 and nodes[x].shared == 0 and nodes[x].weight > nodes[nodes[above].heir].weight:
            nodes[above].heir = x
    for x in range(1, nodes.size):
        above = nodes[x].above
        if above > 0 and nodes[above].heir == x:
            nodes[x].head = nodes[above].head
            nodes[x].start = nodes[above].start + split - nodes[above].shared
        else:
            nodes[x].head = x


@entry
def _write_paths(nodes, asks, split, group, start, line, length, n_lines, r):
    """Write the ranges of requests r, r + 1, ...; returns the first for which there is no room, else n."""
    while r < asks.size:
        at = start[r]
        owner, last = r, np.int64(asks[r].n_blocks) - 1  # the last block that is not written yet
        x, part = np.int64(0), np.int64(0)  # its node and part, once the chain names it
        while last >= 0 or x > 0:
            if at == line.size:
                return r
            while x == 0 and asks[owner].named <= last < asks[owner].confirmed:
                owner = np.int64(asks[owner].child)
            if x == 0 and last >= asks[owner].named:
                first = np.int64(max(asks[owner].named, asks[owner].confirmed))
                if asks[owner].line < 0:
                    asks[owner].line = n_lines[0]
                    n_lines[0] += 1
                line[at], length[at] = asks[owner].line, last - first + 1
                last = first - 1
            else:
                if x == 0:
                    x = _up_to(nodes, np.int64(asks[owner].tip), last // split * group + group)
                    part, last = last % split, np.int64(-1)
                x = _owner(nodes, x, part)
                head = np.int64(nodes[x].head)
                if nodes[head].line < 0:
                    nodes[head].line = n_lines[0]
                    n_lines[0] += 1
                line[at], length[at] = nodes[head].line, nodes[x].start + part - nodes[x].shared + 1
                if nodes[head].shared > 0:
                    x, part = np.int64(nodes[head].twin), np.int64(nodes[head].shared) - 1
                else:
                    x, part = np.int64(nodes[head].above), np.int64(split - 1)
            at += 1
        _reverse(line, start[r], at)
        _reverse(length, start[r], at)
        r += 1
        start[r] = at
    return r


@kernel
def _reverse(values, low, high):
    while low < high - 1:
        high -= 1
        values[low], values[high] = values[high], values[low]
        low += 1
