"""What a tier keeps: units in stretches, least recently used first out, exactly as unit by unit.

Of one use the deepest unit counts as used first, so that in the queue a line's deeper units lie before those
above them, and a stretch gives up its units from its end. Units on the way in or being read stay.

Operations take ranges of units, `s.wanted`, from the root on. Everything is modified in place; what the
fields are says agentctl.sim.tier_state. Indices: k store, x stretch.
"""

from __future__ import annotations

import numpy as np

from agentctl.sim.jit import kernel


@kernel
def path_units(s, r, unit_blocks, low, high, n):
    """Units low .. high - 1 of r's path as ranges behind the n that are wanted already; returns how many."""
    job, before = s.jobs[r], np.int64(0)
    for at in range(job.path_start, job.path_stop):
        stop = before + s.path[at].length
        first, last = max(before // unit_blocks, low), min(stop // unit_blocks, high)
        if first < last:
            s.wanted[n].line, s.wanted[n].low, s.wanted[n].high = s.path[at].line, first, last
            n += 1
        if last == high:
            break
        before = stop
    return n


@kernel
def units_here(s, k, r, unit_blocks, unit, are_here):
    """How many units of r's path from `unit` on are all here, or all not here (yet)."""
    job, before, n = s.jobs[r], np.int64(0), np.int64(0)
    for at in range(job.path_start, job.path_stop):
        stop = before + s.path[at].length
        first, last = max(before // unit_blocks, unit + n), stop // unit_blocks
        if first < last:
            same = _same(s, k, np.int64(s.path[at].line), first, last, are_here)
            n += same
            if same < last - first:
                break
        before = stop
    return n


@kernel
def _same(s, k, line, low, high, are_here):
    """How many of the line's units from `low` on, before `high`, are here or are not."""
    at, x = low, first_from(s, k, line, low)
    while x != 0 and at < high:
        one = s.stretches[k, x]
        begins = max(np.int64(one.low), low)
        if are_here and (begins > at or one.move != 0):
            return at - low
        if not are_here and begins < high and one.move == 0:
            return begins - low
        at = np.int64(one.high)
        x = np.int64(one.deeper)
    return min(at, high) - low if are_here else high - low


@kernel
def first_from(s, k, line, low):
    """The first stretch of the line that has units from `low` on; 0: none."""
    x = np.int64(s.shelves[k, line].first)
    while x != 0 and s.stretches[k, x].high <= low:
        x = np.int64(s.stretches[k, x].deeper)
    return x


# Slots, lines and the queue


@kernel
def _new_stretch(s, k, line, low, high):
    """In its place on the line, and the newest."""
    store = s.stores[k]
    x = store.free_stretch
    if x != 0:
        store.free_stretch = s.stretches[k, x].deeper
    else:
        store.n_stretches += 1
        x = store.n_stretches
    one = s.stretches[k, x]
    one.line, one.low, one.high, one.readers, one.move, one.chain = line, low, high, 0, 0, 0
    before, after = np.int64(0), np.int64(s.shelves[k, line].first)
    while after != 0 and s.stretches[k, after].low < low:
        before, after = after, np.int64(s.stretches[k, after].deeper)
    one.deeper = after
    if before == 0:
        s.shelves[k, line].first = x
    else:
        s.stretches[k, before].deeper = x
    _queue(s, k, x, np.int64(0))
    return x


@kernel
def _queue(s, k, x, then):
    """Put x into the queue before `then`; 0: at its end."""
    store, one = s.stores[k], s.stretches[k, x]
    before = np.int64(s.stretches[k, then].previous) if then != 0 else store.newest
    one.previous, one.next = before, then
    if before == 0:
        store.oldest = x
    else:
        s.stretches[k, before].next = x
    if then == 0:
        store.newest = x
    else:
        s.stretches[k, then].previous = x


@kernel
def _unqueue(s, k, x):
    store, one = s.stores[k], s.stretches[k, x]
    before, after = np.int64(one.previous), np.int64(one.next)
    if before == 0:
        store.oldest = after
    else:
        s.stretches[k, before].next = after
    if after == 0:
        store.newest = before
    else:
        s.stretches[k, after].previous = before


@kernel
def _drop(s, k, x):
    """Forget a stretch."""
    _unqueue(s, k, x)
    one = s.stretches[k, x]
    y = np.int64(s.shelves[k, one.line].first)
    if y == x:
        s.shelves[k, one.line].first = one.deeper
    else:
        while s.stretches[k, y].deeper != x:
            y = np.int64(s.stretches[k, y].deeper)
        s.stretches[k, y].deeper = one.deeper
    one.deeper = s.stores[k].free_stretch
    s.stores[k].free_stretch = x


@kernel
def _cut(s, k, x, at):
    """Cut x before unit `at`: the rest, a stretch of its own, is deeper and older. Returns it."""
    one = s.stretches[k, x]
    y = _new_stretch(s, k, np.int64(one.line), at, np.int64(one.high))
    rest = s.stretches[k, y]
    one.high = at
    rest.readers, rest.move, rest.mark = one.readers, one.move, one.mark
    rest.chain, one.chain = one.chain, y if one.move != 0 else 0
    _unqueue(s, k, y)
    _queue(s, k, y, x)
    return y


@kernel
def _bound(s, k, line, low, high):
    """Cut so that stretches begin at `low` and end at `high`; the first of them from `low` on."""
    x = first_from(s, k, line, low)
    if x != 0 and s.stretches[k, x].low < low:
        x = _cut(s, k, x, low)
    y = x
    while y != 0 and s.stretches[k, y].low < high:
        if s.stretches[k, y].high > high:
            _cut(s, k, y, high)
        y = np.int64(s.stretches[k, y].deeper)
    return x


# Operations


@kernel
def use(s, k, n):
    """What is there of the n wanted ranges has been used now. What follows each other in line and queue
    becomes one."""
    then = np.int64(0)  # in the queue, each before what lies above it
    for i in range(n):
        line, high = np.int64(s.wanted[i].line), np.int64(s.wanted[i].high)
        x = _bound(s, k, line, np.int64(s.wanted[i].low), high)
        while x != 0 and s.stretches[k, x].low < high:
            one = s.stretches[k, x]
            after = np.int64(one.deeper)
            if then != 0 and _are_alike(s.stretches[k, then], one):
                s.stretches[k, then].high = one.high
                _drop(s, k, x)
            else:
                _unqueue(s, k, x)
                _queue(s, k, x, then)
                then = x
            x = after


@kernel
def _are_alike(above, one):
    """Whether both are parts of one line, here and read by nobody, without a gap."""
    is_next = above.line == one.line and above.high == one.low
    return is_next and above.readers + one.readers == 0 and above.move == 0 and one.move == 0


@kernel
def read(s, k, n, change):
    """So many loads more read the n wanted ranges. An exclusive tier gives away what none reads any more."""
    store = s.stores[k]
    gives = change < 0 and s.tiers[store.tier].exclusive
    for i in range(n):
        line, high = np.int64(s.wanted[i].line), np.int64(s.wanted[i].high)
        x = _bound(s, k, line, np.int64(s.wanted[i].low), high)
        while x != 0 and s.stretches[k, x].low < high:
            one = s.stretches[k, x]
            after = np.int64(one.deeper)
            one.readers += change
            if gives and one.readers == 0:
                _lose(store, one.high - one.low)
                _drop(s, k, x)
            x = after


@kernel
def _lose(store, n):
    store.n_units -= n
    store.units_lost += n


@kernel
def put(s, k, n, move):
    """Keep the n wanted ranges: what is there is used, and for what is not others go, as far as they can.

    New stretches belong to `move` and are chained from `s.moves`. Returns the number of new units.
    """
    store = s.stores[k]
    store.clock += 1
    for i in range(n):
        _mark(s, k, i)
    new, room = np.int64(0), True
    for i in range(n):
        line, at, high = np.int64(s.wanted[i].line), np.int64(s.wanted[i].low), np.int64(s.wanted[i].high)
        while room and at < high:
            x = first_from(s, k, line, at)
            if x != 0 and s.stretches[k, x].low <= at:
                at = np.int64(s.stretches[k, x].high)
                continue
            stop = min(high, np.int64(s.stretches[k, x].low)) if x != 0 else high
            missing = stop - at - _make_room(s, k, stop - at)
            room = missing == 0
            if stop - at > missing:
                _bring(s, k, line, at, stop - missing, move)
                new += stop - missing - at
            at = stop
    use(s, k, n)
    store.most_units = max(store.most_units, store.n_units)
    return new


@kernel
def _mark(s, k, i):
    """What is there of wanted range i stays during this operation."""
    high = np.int64(s.wanted[i].high)
    x = _bound(s, k, np.int64(s.wanted[i].line), np.int64(s.wanted[i].low), high)
    while x != 0 and s.stretches[k, x].low < high:
        s.stretches[k, x].mark = s.stores[k].clock
        x = np.int64(s.stretches[k, x].deeper)


@kernel
def _make_room(s, k, n):
    """Room for n units more, or as many as others can be replaced for; returns how many."""
    store = s.stores[k]
    missing = n - (s.tiers[store.tier].capacity - store.n_units)
    x = store.oldest
    while missing > 0 and x != 0:
        one = s.stretches[k, x]
        after = np.int64(one.next)
        if one.move == 0 and one.readers == 0 and one.mark != store.clock:
            gone = min(missing, np.int64(one.high) - one.low)
            one.high -= gone
            missing -= gone
            _lose(store, gone)
            if one.high == one.low:
                _drop(s, k, x)
        x = after
    return n - max(missing, 0)


@kernel
def _bring(s, k, line, low, high, move):
    x = _new_stretch(s, k, line, low, high)
    one = s.stretches[k, x]
    one.move, one.chain, one.mark = move, s.moves[k, move].first, s.stores[k].clock
    s.moves[k, move].first = x
    s.stores[k].n_units += high - low


@kernel
def arrive(s, k, move):
    """What the move brings in is here."""
    x = np.int64(s.moves[k, move].first)
    while x != 0:
        one = s.stretches[k, x]
        x = np.int64(one.chain)
        one.move = one.chain = 0
