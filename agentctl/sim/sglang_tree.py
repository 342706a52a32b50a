"""SGLang's radix cache: pages in pieces, with exactly the effect of its tree of nodes.

SGLang keeps pages in a radix tree. A lookup splits the node in which it ends; a leaf that nobody runs on is
evicted whole, the one used longest ago first; all nodes above a running request's end are locked.

Here a node is one *piece* per line of content (agentctl.sim.content): consecutive pages of the line, one
below the other; `below` is the piece that continues the same node, and the last piece speaks for the node.
Two things are put off so that a lookup need not visit the whole path. A lock is counted at the piece where a
request ends and, for every piece above, once per child in use: it climbs only as far as something changes.
A piece that lost its last child was used when that child was: what is used below was used above.

What an engine holds of a line is a beginning of it, since leaves go first: `held`; a line's `first_run` is
its last piece. Pages are unused, in the tree, or a running request's own. Everything is modified in place.
Source: sglang 0.5.23, srt/mem_cache/radix_cache.py. Indices: e engine, x piece, r request.
"""

from __future__ import annotations

import numpy as np

from agentctl.sim.jit import kernel
from agentctl.sim.news import tell
from agentctl.sim.sglang_leaves import add_leaf, oldest_leaf, remove_leaf, use_leaf
from agentctl.sim.state import CLOCK, NONE


@kernel
def match(s, e, r, n):
    """Use as much of r's first n pages as the tree has: (piece where that ends, its pages).

    NONE, 0 at the root. The node is split if it ends inside, and r's path stands at the next page.
    """
    job = s.jobs[r]
    at, offset, there = np.int64(job.path_start), np.int64(0), np.int64(0)
    line, end = np.int64(NONE), np.int64(0)  # of the last page found, and its place in it plus 1
    while there < n:
        length = s.path[at].length
        want = min(length, n - there)
        offset = min(np.int64(s.lines[s.path[at].line, e].held), want)
        if offset > 0:
            line, end = s.path[at].line, offset
            there += offset
        short = offset < want
        if offset == length:
            at += 1
            offset = np.int64(0)
        if short:
            break
    job.path_at, job.path_offset = at, offset
    if line == NONE:
        return line, there
    return _end_at(s, e, line, end), there


@kernel
def _end_at(s, e, line, end):
    """The piece that ends with the line's page `end` - 1, used now; split off where it does not end there."""
    nodes = s.nodes
    x = np.int64(s.lines[line, e].first_run)
    while nodes[e, x].low >= end:
        x = nodes[e, x].parent
    s.counts[CLOCK] += 2
    if end == nodes[e, x].high and nodes[e, x].below == NONE:
        use_leaf(s, e, x, s.counts[CLOCK])
        return x
    return _split(s, e, x, end)


@kernel
def _split(s, e, x, end):
    """Split the node of piece x after the line's page `end` - 1; returns the last piece of its upper part.

    The rest was used a moment before it.
    """
    nodes = s.nodes
    head, rest = x, nodes[e, x].below
    if end < nodes[e, x].high:
        above = nodes[e, x].parent
        head, rest = _new_piece(s, e, nodes[e, x].line, nodes[e, x].low, end, above), x
        nodes[e, head].n_children = 1
        nodes[e, head].pins = min(nodes[e, x].pins, 1)
        if above != NONE and nodes[e, above].below == x:
            nodes[e, above].below = head
        nodes[e, x].low, nodes[e, x].parent = end, head
    nodes[e, head].below = NONE
    nodes[e, head].used = s.counts[CLOCK]
    while nodes[e, rest].below != NONE:
        rest = nodes[e, rest].below
    use_leaf(s, e, rest, s.counts[CLOCK] - 1)
    return head


@kernel
def _new_piece(s, e, line, low, high, parent):
    nodes, engine = s.nodes, s.engines[e]
    x = engine.first_slot
    if x == NONE:
        x = engine.n_slots
        engine.n_slots += 1
    else:
        engine.first_slot = nodes[e, x].parent
    piece = nodes[e, x]
    piece.line, piece.low, piece.high, piece.parent, piece.below = line, low, high, parent, NONE
    piece.n_children, piece.pins, piece.place = 0, 0, NONE
    return x


@kernel
def insert(s, e, r, n):
    """Give the tree what it lacks of r's first n pages, as one leaf: (piece where they end, what it had)."""
    x, there = match(s, e, r, n)
    if there < n:
        x = _grow(s, e, r, x, n - there)
    return x, there


@kernel
def _grow(s, e, r, x, left):
    """A leaf below piece x for r's next `left` pages; returns its last piece."""
    nodes, job, top = s.nodes, s.jobs[r], x
    s.engines[e].n_free += left  # until somebody locks them
    while left > 0:
        line, low = s.path[job.path_at].line, np.int64(job.path_offset)
        part = min(left, s.path[job.path_at].length - low)
        y = _new_piece(s, e, line, low, low + part, x)
        s.lines[line, e].first_run, s.lines[line, e].held = y, low + part
        tell(s, e, line)
        if x != NONE:
            nodes[e, x].n_children += 1
            if x != top:
                nodes[e, x].below = y
        x = y
        left -= part
        job.path_offset += part
        if job.path_offset == s.path[job.path_at].length:
            job.path_at += 1
            job.path_offset = 0
    if top != NONE:
        remove_leaf(s, e, top)
    s.counts[CLOCK] += 1
    nodes[e, x].used = s.counts[CLOCK]
    return x


@kernel
def lock(s, e, x):
    """A request uses the tree down to piece x."""
    nodes = s.nodes
    while x != NONE:
        nodes[e, x].pins += 1
        if nodes[e, x].pins > 1:
            return
        remove_leaf(s, e, x)
        s.engines[e].n_free -= nodes[e, x].high - nodes[e, x].low
        x = nodes[e, x].parent


@kernel
def unlock(s, e, x):
    nodes = s.nodes
    while x != NONE:
        nodes[e, x].pins -= 1
        if nodes[e, x].pins > 0:
            return
        if nodes[e, x].n_children == 0:
            add_leaf(s, e, x)
        s.engines[e].n_free += nodes[e, x].high - nodes[e, x].low
        x = nodes[e, x].parent


@kernel
def make_room(s, e, pages):
    """Evict leaves until so many pages are unused; returns False if that is in vain."""
    while s.engines[e].n_unused < pages:
        x = oldest_leaf(s, e)
        if x == NONE:
            return False
        _evict(s, e, x)
    return True


@kernel
def _evict(s, e, x):
    """Forget the node whose last piece is x."""
    nodes, used = s.nodes, s.nodes[e, x].used
    remove_leaf(s, e, x)
    while True:
        line, low, above = nodes[e, x].line, nodes[e, x].low, nodes[e, x].parent
        s.engines[e].n_unused += nodes[e, x].high - low
        s.lines[line, e].held = low
        s.lines[line, e].first_run = above if low > 0 else NONE
        tell(s, e, line)
        nodes[e, x].parent = s.engines[e].first_slot
        s.engines[e].first_slot = x
        if above == NONE:
            return
        nodes[e, above].n_children -= 1
        if nodes[e, above].below != x:
            break
        x = above
    nodes[e, above].used = max(nodes[e, above].used, used)
    if nodes[e, above].n_children == 0 and nodes[e, above].pins == 0:
        add_leaf(s, e, above)
