"""The KV blocks of the engines, in runs instead of one by one, with exactly the effect of one by one.

vLLM's block pool (V1): blocks are taken from the front of a queue of free ones; a freed block goes to its end,
a sequence's last block first, and can be found by content until it is taken again. Several blocks may hold
the same content: a lookup takes the one cached first, a reuse forgets only its own.

A *run* is consecutive blocks of one line (agentctl.sim.content), cached by one request, with the same users.
Free runs form a queue; a run gives up its blocks from its end. Whoever uses a block also uses every block
before it on its path and frees it later, so what an engine holds of a line is always a beginning: `held`.
`known` is the same as the router's index has heard of it.

All arrays are modified in place. Indices: e engine, x run (a slot of engine e), line, r request.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
NONE = -1


class Runs(NamedTuple):
    """Runs of all engines, [engine, slot]. A free slot is chained by `next`."""

    line: I32  # NONE: blocks without content
    low: I32  # blocks low..high - 1 of the line
    high: I32
    users: I32
    born: I64  # when it was cached: orders copies of the same block
    previous: I32  # in the queue of free runs
    next: I32
    sibling: I32  # next run of the same line, in any order
    part: I32  # the run that continues this one since it was cut, NONE


class Holds(NamedTuple):
    """What requests use: entries of a stack per request, chained by `below`; a free entry is chained too."""

    run: I32
    high: I32  # end of what is used; parts cut off later lie below it
    below: I32
    first_free: I32  # one element
    n_made: I32  # one element: entries that were ever in use


class Cache(NamedTuple):
    runs: Runs
    holds: Holds
    first_slot: I32  # free slot, by engine
    oldest: I32  # front of the queue of free runs, by engine
    newest: I32
    n_free: I64  # free blocks, by engine
    clock: I64  # one element: counts what is cached
    first_run: I32  # [line, engine]
    held: I32  # [line, engine] blocks of the line that are here
    known: I32  # [line, engine] ... as announced to the router
    news: I32  # [line, engine] next line with news; NO_NEWS
    first_news: I32  # by engine


NO_NEWS = -2
MAX_HOLDS = 1 << 26


def make_cache(n_lines: int, usable_blocks: I64, max_holds: int) -> Cache:
    """Empty caches; `usable_blocks` by engine, `max_holds` entries of `Holds` for all."""
    n_engines, n_slots = usable_blocks.size, int(usable_blocks.max()) + 2

    def slots(value: int, dtype: type = np.int32) -> NDArray:
        return np.full((n_engines, n_slots), value, dtype=dtype)

    runs = Runs(*(slots(0) for _ in range(4)), slots(0, np.int64), *(slots(NONE) for _ in range(4)))
    runs.line[:] = NONE
    runs.next[:, 1:-1] = np.arange(2, n_slots)
    runs.high[:, 0] = usable_blocks
    holds = Holds(
        np.empty(max_holds, np.int32), np.empty(max_holds, np.int32), np.empty(max_holds, np.int32),
        np.full(1, NONE, np.int32), np.zeros(1, np.int32),
    )  # fmt: skip
    by_engine = np.ones(n_engines, np.int32)
    by_line = np.zeros((n_lines, n_engines), np.int32)
    return Cache(
        runs, holds, by_engine.copy(), by_engine * 0, by_engine * 0, usable_blocks.astype(np.int64),
        np.zeros(1, np.int64), by_line - 1, by_line.copy(), by_line.copy(), by_line + NO_NEWS, by_engine * 0 - 1,
    )  # fmt: skip


# Slots and queues


@njit(cache=True, nogil=True)
def _new_run(cache, e, line, low, high, users):
    runs = cache.runs
    x = cache.first_slot[e]
    cache.first_slot[e] = runs.next[e, x]
    cache.clock[0] += 1
    runs.line[e, x], runs.low[e, x], runs.high[e, x] = line, low, high
    runs.users[e, x], runs.born[e, x], runs.part[e, x] = users, cache.clock[0], NONE
    runs.previous[e, x] = runs.next[e, x] = runs.sibling[e, x] = NONE
    if line != NONE:
        runs.sibling[e, x] = cache.first_run[line, e]
        cache.first_run[line, e] = x
    return x


@njit(cache=True, nogil=True)
def _drop_run(cache, e, x):
    """Forget an empty or merged run that is in no queue."""
    runs = cache.runs
    line = runs.line[e, x]
    if line != NONE:
        y = cache.first_run[line, e]
        if y == x:
            cache.first_run[line, e] = runs.sibling[e, x]
        else:
            while runs.sibling[e, y] != x:
                y = runs.sibling[e, y]
            runs.sibling[e, y] = runs.sibling[e, x]
    runs.next[e, x] = cache.first_slot[e]
    cache.first_slot[e] = x


@njit(cache=True, nogil=True)
def _unlink(cache, e, x):
    runs = cache.runs
    before, after = runs.previous[e, x], runs.next[e, x]
    if before == NONE:
        cache.oldest[e] = after
    else:
        runs.next[e, before] = after
    if after == NONE:
        cache.newest[e] = before
    else:
        runs.previous[e, after] = before
    runs.previous[e, x] = runs.next[e, x] = NONE
    cache.n_free[e] -= runs.high[e, x] - runs.low[e, x]


@njit(cache=True, nogil=True)
def _append(cache, e, x):
    runs = cache.runs
    last = cache.newest[e]
    runs.previous[e, x], runs.next[e, x] = last, NONE
    if last == NONE:
        cache.oldest[e] = x
    else:
        runs.next[e, last] = x
    cache.newest[e] = x
    cache.n_free[e] += runs.high[e, x] - runs.low[e, x]


@njit(cache=True, nogil=True)
def _tell(cache, e, line):
    """The router's index will hear of this line when the batch ends."""
    if cache.news[line, e] == NO_NEWS:
        cache.news[line, e] = cache.first_news[e]
        cache.first_news[e] = line


@njit(cache=True, nogil=True)
def announce(cache, e):
    """Bring the router's index of engine e up to what the engine holds."""
    line = cache.first_news[e]
    while line != NONE:
        cache.known[line, e] = cache.held[line, e]
        after = cache.news[line, e]
        cache.news[line, e] = NO_NEWS
        line = after
    cache.first_news[e] = NONE


# Taking free blocks


@njit(cache=True, nogil=True)
def take(cache, e, n):
    """Take the n blocks freed longest ago; they lose their content. n is at most n_free."""
    runs = cache.runs
    while n > 0:
        x = cache.oldest[e]
        size = runs.high[e, x] - runs.low[e, x]
        taken = min(n, size)
        n -= taken
        cache.n_free[e] -= taken
        runs.high[e, x] -= taken
        if taken == size:
            after = runs.next[e, x]
            cache.oldest[e] = after
            if after == NONE:
                cache.newest[e] = NONE
            else:
                runs.previous[e, after] = NONE
        line = runs.line[e, x]
        if taken == size:
            _drop_run(cache, e, x)
        if line != NONE:
            _shrink(cache, e, line)


@njit(cache=True, nogil=True)
def _shrink(cache, e, line):
    """Blocks of the line were lost: what is left reaches to the end of the longest of its runs."""
    runs = cache.runs
    held = 0
    y = cache.first_run[line, e]
    while y != NONE:
        held = max(held, runs.high[e, y])
        y = runs.sibling[e, y]
    if held != cache.held[line, e]:
        cache.held[line, e] = held
        _tell(cache, e, line)


# Using what is there


@njit(cache=True, nogil=True)
def _first_copy(cache, e, line, at):
    """(run, end) of the copy of block `at` that was cached first, and how far it stays the first."""
    runs = cache.runs
    best = np.int32(NONE)
    y = cache.first_run[line, e]
    while y != NONE:
        if runs.low[e, y] <= at < runs.high[e, y] and (best == NONE or runs.born[e, y] < runs.born[e, best]):
            best = y
        y = runs.sibling[e, y]
    end = runs.high[e, best]
    y = cache.first_run[line, e]
    while y != NONE:
        if at < runs.low[e, y] < end and runs.born[e, y] < runs.born[e, best]:
            end = runs.low[e, y]
        y = runs.sibling[e, y]
    return best, end


@njit(cache=True, nogil=True)
def count_idle(cache, e, line, stop):
    """How many of the line's first `stop` blocks, all held, are used by nobody: using them takes free ones."""
    runs = cache.runs
    idle = 0
    at = 0
    while at < stop:
        x, end = _first_copy(cache, e, line, at)
        end = min(end, stop)
        if runs.users[e, x] == 0:
            idle += end - at
        at = end
    return idle


@njit(cache=True, nogil=True)
def _cut(cache, e, x, at):
    """Cut run x before block `at`; its users use both parts, and its queue place holds both. Returns the end."""
    runs = cache.runs
    y = _new_run(cache, e, runs.line[e, x], at, runs.high[e, x], runs.users[e, x])
    runs.born[e, y] = runs.born[e, x]
    runs.high[e, x] = at
    runs.part[e, y] = runs.part[e, x]
    runs.part[e, x] = y
    if runs.users[e, x] == 0:  # the end is lost first: it goes before x
        before = runs.previous[e, x]
        runs.previous[e, y], runs.next[e, y] = before, x
        runs.previous[e, x] = y
        if before == NONE:
            cache.oldest[e] = y
        else:
            runs.next[e, before] = y
    return y


@njit(cache=True, nogil=True)
def use(cache, e, line, stop, top):
    """Use the line's first `stop` blocks, all held, pushing onto the stack `top`; returns the new top."""
    runs = cache.runs
    at = 0
    while at < stop:
        x, end = _first_copy(cache, e, line, at)
        end = min(end, stop)
        if at > runs.low[e, x]:
            x = _cut(cache, e, x, at)
        if end < runs.high[e, x]:
            _cut(cache, e, x, end)
        if runs.users[e, x] == 0:
            _unlink(cache, e, x)
        runs.users[e, x] += 1
        top = push(cache.holds, x, end, top)
        at = end
    return top


@njit(cache=True, nogil=True)
def push(holds, run, high, top):
    entry = holds.first_free[0]
    if entry == NONE:
        entry = holds.n_made[0]
        holds.n_made[0] += 1  # the loop stops before there are none left
    else:
        holds.first_free[0] = holds.below[entry]
    holds.run[entry], holds.high[entry], holds.below[entry] = run, high, top
    return entry


@njit(cache=True, nogil=True)
def cache_blocks(cache, e, line, low, high, top):
    """Blocks that the request took now hold blocks low..high - 1 of `line` and can be found.

    Returns the top of the request's stack. Its last run grows where nobody else uses it and no copy of the
    new blocks exists; otherwise a new run begins, so that copies stay in the order in which they were cached.
    """
    runs, holds = cache.runs, cache.holds
    is_new = cache.held[line, e] == low
    if top != NONE and is_new:
        x = holds.run[top]
        while runs.high[e, x] < holds.high[top]:
            x = runs.part[e, x]
        if runs.line[e, x] == line and runs.high[e, x] == low and runs.users[e, x] == 1:
            runs.high[e, x] = high
            runs.part[e, x] = NONE
            holds.high[top] = high
            cache.held[line, e] = high
            _tell(cache, e, line)
            return top
    x = _new_run(cache, e, line, low, high, 1)
    if high > cache.held[line, e]:
        cache.held[line, e] = high
        _tell(cache, e, line)
    return push(holds, x, high, top)


# Giving back


@njit(cache=True, nogil=True)
def release(cache, e, top, n_unnamed):
    """Give back a request's blocks, the last first: `n_unnamed` without content, then those of its stack."""
    runs, holds = cache.runs, cache.holds
    if n_unnamed > 0:
        last = cache.newest[e]
        if last != NONE and runs.line[e, last] == NONE:
            runs.high[e, last] += n_unnamed
            cache.n_free[e] += n_unnamed
        else:
            _append(cache, e, _new_run(cache, e, NONE, 0, n_unnamed, 0))
    while top != NONE:
        low, high = runs.low[e, holds.run[top]], holds.high[top]
        while high > low:  # parts of a run that was cut meanwhile, from the last
            x = holds.run[top]
            while runs.high[e, x] < high:
                x = runs.part[e, x]
            high = runs.low[e, x]
            runs.users[e, x] -= 1
            if runs.users[e, x] == 0:
                _free(cache, e, x)
        below = holds.below[top]
        holds.below[top] = holds.first_free[0]
        holds.first_free[0] = top
        top = below


@njit(cache=True, nogil=True)
def _free(cache, e, x):
    """Put a run at the end of the queue, in one with the run before it where that continues x."""
    runs = cache.runs
    last = cache.newest[e]
    line = runs.line[e, x]
    if last != NONE and runs.line[e, last] == line and runs.low[e, last] == runs.high[e, x]:
        if _only_copies(cache, e, x, last):
            _unlink(cache, e, last)
            high = runs.high[e, last]
            _drop_run(cache, e, last)
            runs.high[e, x] = high
            runs.part[e, x] = NONE
    _append(cache, e, x)


@njit(cache=True, nogil=True)
def _only_copies(cache, e, x, z):
    """Whether no other run of the line overlaps runs x and z, so that their age does not matter."""
    runs = cache.runs
    y = cache.first_run[runs.line[e, x], e]
    while y != NONE:
        if y != x and y != z and runs.low[e, y] < runs.high[e, z] and runs.high[e, y] > runs.low[e, x]:
            return False
        y = runs.sibling[e, y]
    return True
