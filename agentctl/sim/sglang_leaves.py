"""The leaves of an engine's radix tree that may be evicted, the one used longest ago on top.

A binary heap by `used`, kept in the field `leaf` of the tree's pieces (agentctl.sim.sglang_tree): entry i
stands in record i and names a piece, whose `place` is i. Pieces in use and pieces with children are in no
heap (`place` is NONE).
"""

from __future__ import annotations

import numpy as np

from agentctl.sim.jit import kernel
from agentctl.sim.state import NONE


@kernel
def add_leaf(s, e, x):
    place = s.engines[e].n_leaves
    s.engines[e].n_leaves += 1
    _put(s, e, x, place)
    _rise(s, e, place)


@kernel
def remove_leaf(s, e, x):
    """Take piece x out of the heap, if it is in it."""
    nodes = s.nodes
    place = nodes[e, x].place
    if place == NONE:
        return
    nodes[e, x].place = NONE
    s.engines[e].n_leaves -= 1
    last = s.engines[e].n_leaves
    if place == last:
        return
    y = nodes[e, last].leaf
    _put(s, e, y, place)
    _rise(s, e, place)
    _sink(s, e, nodes[e, y].place)


@kernel
def use_leaf(s, e, x, now):
    """Piece x, leaf or not, is used now: later than all others."""
    s.nodes[e, x].used = now
    if s.nodes[e, x].place != NONE:
        _sink(s, e, s.nodes[e, x].place)


@kernel
def _put(s, e, x, place):
    s.nodes[e, place].leaf = x
    s.nodes[e, x].place = place


@kernel
def _rise(s, e, place):
    nodes = s.nodes
    x = nodes[e, place].leaf
    while place > 0:
        above = (place - 1) // 2
        y = nodes[e, above].leaf
        if nodes[e, y].used <= nodes[e, x].used:
            break
        _put(s, e, y, place)
        place = above
    _put(s, e, x, place)


@kernel
def _sink(s, e, place):
    nodes = s.nodes
    x = nodes[e, place].leaf
    while True:
        below = 2 * place + 1
        if below >= s.engines[e].n_leaves:
            break
        y = nodes[e, below].leaf
        if below + 1 < s.engines[e].n_leaves:
            z = nodes[e, below + 1].leaf
            if nodes[e, z].used < nodes[e, y].used:
                below += 1
                y = z
        if nodes[e, x].used <= nodes[e, y].used:
            break
        _put(s, e, y, place)
        place = below
    _put(s, e, x, place)


@kernel
def oldest_leaf(s, e):
    """The leaf used longest ago, NONE when nothing can be evicted."""
    return s.nodes[e, 0].leaf if s.engines[e].n_leaves else np.int64(NONE)
