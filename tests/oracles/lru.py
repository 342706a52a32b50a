"""Prefix caches played block by block: slow, obvious, and the judge of the fast curves.

A chain is a list of block ids that name their whole prefix (an id has one parent), as in a real log.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

Chain = Sequence[int]


def ideal_hits(chains: Sequence[Chain]) -> list[int]:
    """Leading blocks of each chain that any earlier chain had."""
    seen: set[int] = set()
    hits = []
    for chain in chains:
        hits.append(sum(block in seen for block in chain))
        seen.update(chain)
    return hits


def last_users(chains: Sequence[Chain]) -> list[list[int | None]]:
    """For each chain, block by block: the latest earlier request that had it, or None."""
    user: dict[int, int] = {}
    found = []
    for r, chain in enumerate(chains):
        found.append([user.get(block) for block in chain])
        user.update(dict.fromkeys(chain, r))
    return found


def lru_hits(chains: Sequence[Chain], capacity: int) -> list[int]:
    """Leading blocks of each chain found in an LRU pool; the tip is touched first, the root last."""
    pool: OrderedDict[int, None] = OrderedDict()  # oldest first
    hits = []
    for chain in chains:
        n = 0
        while n < len(chain) and chain[n] in pool:
            n += 1
        hits.append(n)
        for block in reversed(chain):
            pool[block] = None
            pool.move_to_end(block)
        while len(pool) > capacity:
            pool.popitem(last=False)
    return hits


def belady_hits(chains: Sequence[Chain], capacity: int) -> list[int]:
    """Blocks of each chain found in a pool that keeps those needed soonest; of one chain, the first ones."""
    pool: set[int] = set()
    hits = []
    for r, chain in enumerate(chains):
        hits.append(sum(block in pool for block in chain))
        ahead: dict[int, tuple[int, int]] = {}  # block: when and how deep it is needed next
        for later in range(len(chains) - 1, r, -1):
            for depth, block in enumerate(chains[later]):
                ahead[block] = (later, depth)
        wanted = [block for block in pool | set(chain) if block in ahead]
        pool = set(sorted(wanted, key=lambda block: ahead[block])[:capacity])
    return hits


def most_hits(chains: Sequence[Chain], capacity: int) -> int:
    """The largest number of block hits that any replacement can reach, as a linear program.

    One variable per (use, next use) of a block: carried or not. Between two requests at most `capacity` are
    carried. The constraint matrix has consecutive ones, so the optimum is whole.
    """
    spans = [
        (previous, r)
        for r, users in enumerate(last_users(chains))
        for previous in users
        if previous is not None
    ]
    if not spans:
        return 0
    rows = [moment for start, end in spans for moment in range(start, end)]
    columns = [variable for variable, (start, end) in enumerate(spans) for _ in range(start, end)]
    carried = coo_array((np.ones(len(rows)), (rows, columns)), shape=(len(chains), len(spans)))
    best = linprog(-np.ones(len(spans)), A_ub=carried, b_ub=np.full(len(chains), capacity), bounds=(0, 1))
    return round(-best.fun)
