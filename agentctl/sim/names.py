"""Which KV blocks hold the same content: a number for every block of every request.

Engines cache blocks by content. Prompts are known by their chains in the prefix tree; outputs carry no ids
and are named by the child, the first later request whose parent this one is, as far as its prompt confirms
them (design, "Output tokens"). What nothing names is the request's own and matched by nobody else.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.errors import ConfigError
from agentctl.trace import PrefixTree
from agentctl.workload import Requests, Workload

I64 = NDArray[np.int64]


class BlockNames:
    """Names of the blocks of all requests for engines with `block_tokens` (B) per block.

    The tree is laid out so that its long branches are consecutive numbers: a chain of thousands of blocks is
    a handful of ranges. Trace blocks hold T tokens; T = k B gives k names per node, B = k T one per k nodes.
    """

    def __init__(self, workload: Workload, block_tokens: int) -> None:
        requests, tree, trace_block = workload.requests, workload.tree, workload.block_tokens
        self.block_tokens = block_tokens
        self._split, self._group = _block_ratio(trace_block, block_tokens)
        self._tree, self._tip = tree, requests.tip
        self._head, self._place = _lay_out(tree.parent)
        prompt = requests.prompt_tokens
        self.n_blocks = (prompt + requests.output_tokens - 1) // block_tokens  # that ever become full
        chain_length = np.where(requests.tip > 0, tree.depth[requests.tip], 0).astype(np.int64)
        in_chain = chain_length * self._split // self._group
        self._named = np.minimum(prompt // block_tokens, in_chain)
        self._child = requests.confirmed_child
        confirmed = _confirmed_tokens(requests, tree, self._head, self._place, trace_block)
        self._confirmed = confirmed // block_tokens
        own = np.maximum(self.n_blocks - np.maximum(self._named, self._confirmed), 0)
        n_tree_names = tree.parent.size * self._split
        self._own_base = n_tree_names + np.cumsum(own) - own
        self.n_names = int(n_tree_names + own.sum())
        self._first_name = self._merge_tails(requests, confirmed, trace_block, n_tree_names)

    def of(self, r: int) -> I64:
        """Names of request r's full blocks, i64[n_blocks[r]]."""
        names = np.empty(self.n_blocks[r], dtype=np.int64)
        todo = [(r, 0, names.size)]
        while todo:
            q, start, stop = todo.pop()
            chain_stop = min(max(int(self._named[q]), start), stop)
            child_stop = min(max(int(self._confirmed[q]), chain_stop), stop)
            if start < chain_stop:
                names[start:chain_stop] = self._by_chain(q, start, chain_stop)
            if chain_stop < child_stop:
                todo.append((int(self._child[q]), chain_stop, child_stop))
            if child_stop < stop:
                first_own = max(int(self._named[q]), int(self._confirmed[q]))
                names[child_stop:stop] = self._own_base[q] + np.arange(child_stop, stop) - first_own
        return names

    def _by_chain(self, r: int, start: int, stop: int) -> I64:
        first_node, last_node = start * self._group // self._split, (stop - 1) * self._group // self._split
        places = _path(self._tip[r], self._tree.parent, self._tree.depth, self._head, self._place)
        if self._group > 1:
            return places[self._group - 1 :: self._group][start:stop]
        if self._split == 1:
            return places[start:stop]
        parts = places[first_node : last_node + 1, None] * self._split + np.arange(self._split)
        names = parts.ravel()[start - first_node * self._split :][: stop - start]
        return names if self._first_name is None else self._first_name[names]

    def _merge_tails(
        self, requests: Requests, confirmed: I64, trace_block: int | None, n_names: int
    ) -> I64 | None:
        """A hashed partial last block and the child's block at that place begin with the same content.

        Returns the first of all equal names, i64[n_names]; None when no engine block lies in a partial one.
        """
        if trace_block is None or self._split == 1:
            return None
        first = np.arange(n_names)
        for r in np.flatnonzero(confirmed).tolist():
            child, full = int(self._child[r]), int(requests.prompt_tokens[r]) // trace_block
            tail = int(min(requests.prompt_tokens[r], requests.prompt_tokens[child])) - full * trace_block
            if tail < self.block_tokens:
                continue
            node = _ancestor(requests.tip[r], full + 1, self._tree, self._head, self._place)
            other = _ancestor(requests.tip[child], full + 1, self._tree, self._head, self._place)
            if node < 0 or other < 0:
                continue
            for part in range(tail // self.block_tokens):
                a, b = _root(first, node * self._split + part), _root(first, other * self._split + part)
                first[max(a, b)] = min(a, b)
        while True:  # follow all links to their end
            further = first[first]
            if np.array_equal(further, first):
                return first
            first = further


_known: WeakKeyDictionary[Workload, dict[int, BlockNames]] = WeakKeyDictionary()


def block_names(workload: Workload, block_tokens: int) -> BlockNames:
    """The names for engines with this block size; made once per workload, as many runs share them."""
    by_size = _known.setdefault(workload, {})
    if block_tokens not in by_size:
        by_size[block_tokens] = BlockNames(workload, block_tokens)
    return by_size[block_tokens]


def _block_ratio(trace_block: int | None, engine_block: int) -> tuple[int, int]:
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


def _confirmed_tokens(
    requests: Requests, tree: PrefixTree, head: I64, place: I64, trace_block: int | None
) -> I64:
    """Tokens of every request's KV whose content its child's prompt repeats; 0 without such a child."""
    confirmed = np.zeros(requests.arrival.size, dtype=np.int64)
    if trace_block is None:
        return confirmed
    for r in np.flatnonzero(requests.confirmed_child >= 0).tolist():
        child = int(requests.confirmed_child[r])
        prompt, longer = int(requests.prompt_tokens[r]), int(requests.prompt_tokens[child])
        full = prompt // trace_block
        mine = _ancestor(requests.tip[r], full, tree, head, place)
        if mine < 0 or mine != _ancestor(requests.tip[child], full, tree, head, place):
            continue
        whole = prompt + int(requests.output_tokens[r])
        confirmed[r] = whole - 1 if longer >= whole else min(prompt, longer)
    return confirmed


def _root(first: I64, name: int) -> int:
    while first[name] != name:
        name = first[name]
    return int(name)


@njit(cache=True, nogil=True)
def _lay_out(parent):
    """Number the nodes so that every node is followed by its child with the most descendants.

    Returns the first node of each node's line (i64[m]) and its place in the numbering (i64[m]).
    """
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
    free = 0
    for node in range(n):
        if node == 0 or heir[parent[node]] != node:
            line = node
            while True:
                head[line], place[line] = node, free
                free += 1
                line = heir[line]
                if line == 0:
                    break
    return head, place


@njit(cache=True, nogil=True)
def _path(tip, parent, depth, head, place):
    """Places of the nodes from the root's child to `tip`, i64[depth[tip]]."""
    places = np.empty(depth[tip], np.int64)
    node = np.int64(tip)
    while node != 0:
        top, stop = head[node], depth[node]
        for d in range(max(depth[top], 1), stop + 1):  # the root has a place but no block
            places[d - 1] = place[node] - (stop - d)
        node = np.int64(parent[top])
    return places


def _ancestor(tip: int, depth: int, tree: PrefixTree, head: I64, place: I64) -> int:
    """Place of the node at `depth` (0: the root's) on the chain of `tip`; -1 when the chain is shorter."""
    node = int(tip)
    if depth == 0:
        return int(place[0])
    if node == 0 or tree.depth[node] < depth:
        return -1
    while tree.depth[head[node]] > depth:
        node = int(tree.parent[head[node]])
    return int(place[node]) - int(tree.depth[node] - depth)
