"""Grow the prefix tree of a drawn workload: whole blocks, the end of a prompt beyond them has none."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.synth.draw import Requests
from agentctl.synth.model import Prefix


class Planted(NamedTuple):
    """Nodes as in trace.PrefixTree (index 0 is the root), and the tip of every request."""

    parent: NDArray[np.int64]
    depth: NDArray[np.int64]
    first_row: NDArray[np.int64]
    tip: NDArray[np.int64]


def plant(requests: Requests, prefixes: tuple[Prefix, ...], block_tokens: int) -> Planted:
    slots, start = _slots(prefixes)
    new = requests.prompt // block_tokens - np.where(requests.base < 0, 0, requests.held // block_tokens)
    return Planted(
        *_plant(
            requests.prompt // block_tokens,
            requests.held // block_tokens,
            requests.base,
            requests.prefix,
            slots,
            start,
            int(new.sum()) + 1,
        )
    )


def hashes(n: int) -> NDArray[np.uint64]:
    """A name for each of n nodes: its number, mixed (SplitMix64), so that it names nothing else."""
    with np.errstate(over="ignore"):
        x = np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _slots(prefixes: tuple[Prefix, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The blocks of each prefix from the root, as numbers of places where their node is remembered."""
    paths: list[NDArray[np.int64]] = []
    free = 0
    for each in prefixes:
        above = paths[each.parent] if each.parent >= 0 else np.empty(0, np.int64)
        paths.append(np.concatenate([above, np.arange(free, free + each.blocks)]))
        free += each.blocks
    start = np.cumsum([0, *(path.size for path in paths)])
    return np.concatenate([np.empty(0, np.int64), *paths]), start


@njit(cache=True, nogil=True)
def _plant(blocks, held, base, prefix, slots, start, most_nodes):
    """Number nodes in order of first use along the rows."""
    parent, depth = np.zeros(most_nodes, np.int64), np.zeros(most_nodes, np.int64)
    first_row = np.full(most_nodes, -1, np.int64)
    node_of_slot = np.zeros(slots.size, np.int64)
    tip = np.zeros(blocks.size, np.int64)
    n = 1
    for row in range(blocks.size):
        node = 0
        if base[row] >= 0:
            node = tip[base[row]]
            while depth[node] > held[row]:
                node = parent[node]
        while depth[node] < blocks[row]:
            slot = -1
            if base[row] < 0 and prefix[row] >= 0:
                at = start[prefix[row]] + depth[node]
                slot = slots[at] if at < start[prefix[row] + 1] else -1
            if slot >= 0 and node_of_slot[slot] > 0:
                node = node_of_slot[slot]
                continue
            parent[n], depth[n], first_row[n] = node, depth[node] + 1, row
            if slot >= 0:
                node_of_slot[slot] = n
            node = n
            n += 1
        tip[row] = node
    return parent[:n], depth[:n], first_row[:n], tip
