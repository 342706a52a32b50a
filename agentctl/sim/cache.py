"""The KV blocks of the engines, in runs instead of one by one, with exactly the effect of one by one.

vLLM's block pool (V1): blocks are taken from the front of a queue of free ones; a freed block goes to its
end, a sequence's last block first, and can be found by content until it is taken again. Several blocks may
hold the same content: a lookup takes the one cached first, a reuse forgets only its own.

A *run* is consecutive blocks of one line (agentctl.sim.content), cached by one request, with the same users.
Free runs form a queue; a run gives up its blocks from its end. Whoever uses a block also uses every block
before it on its path and frees it later, so what an engine holds of a line is always a beginning: `held`.
`known` is the same as the router's index has heard of it (agentctl.sim.news).

Everything is modified in place; agentctl.sim.state says what the fields are. Indices: e engine, x run (a slot
of engine e), line.
"""

from __future__ import annotations

import numpy as np

from agentctl.sim.jit import kernel
from agentctl.sim.news import tell
from agentctl.sim.state import CLOCK, FREE_HOLD, LOST_HOLDS, N_HOLDS, N_LOSSES, NONE

# Slots and queues


@kernel
def _new_run(s, e, line, low, high, users):
    engine, runs = s.engines[e], s.runs
    x = engine.first_slot
    run = runs[e, x]
    engine.first_slot = run.next
    s.counts[CLOCK] += 1
    run.line, run.low, run.high = line, low, high
    run.users, run.born, run.part = users, s.counts[CLOCK], NONE
    run.previous = run.next = run.sibling = NONE
    if line != NONE:
        run.sibling = np.int64(s.lines[line, e].first_run)
        s.lines[line, e].first_run = x
    return x


@kernel
def _drop_run(s, e, x):
    """Forget an empty or merged run that is in no queue."""
    engine, runs = s.engines[e], s.runs
    run = runs[e, x]
    line = run.line
    if line != NONE:
        y = np.int64(s.lines[line, e].first_run)
        if y == x:
            s.lines[line, e].first_run = run.sibling
        else:
            while runs[e, y].sibling != x:
                y = runs[e, y].sibling
            runs[e, y].sibling = run.sibling
    run.next = engine.first_slot
    engine.first_slot = x


@kernel
def _unlink(s, e, x):
    engine, runs = s.engines[e], s.runs
    run = runs[e, x]
    before, after = run.previous, run.next
    if before == NONE:
        engine.oldest = after
    else:
        runs[e, before].next = after
    if after == NONE:
        engine.newest = before
    else:
        runs[e, after].previous = before
    run.previous = run.next = NONE
    engine.n_free -= run.high - run.low


@kernel
def _append(s, e, x):
    engine, runs = s.engines[e], s.runs
    run = runs[e, x]
    last = engine.newest
    run.previous, run.next = last, NONE
    if last == NONE:
        engine.oldest = x
    else:
        runs[e, last].next = x
    engine.newest = x
    engine.n_free += run.high - run.low


# Taking free blocks


@kernel
def take(s, e, n):
    """Take the n blocks freed longest ago; they lose their content. n is at most n_free."""
    engine, runs = s.engines[e], s.runs
    while n > 0:
        x = engine.oldest
        run = runs[e, x]
        size = run.high - run.low
        taken = min(n, size)
        n -= taken
        engine.n_free -= taken
        run.high -= taken
        if taken == size:
            after = run.next
            engine.oldest = after
            if after == NONE:
                engine.newest = NONE
            else:
                runs[e, after].previous = NONE
        line = np.int64(run.line)
        if taken == size:
            _drop_run(s, e, x)
        if line != NONE:
            _shrink(s, e, line)


@kernel
def _shrink(s, e, line):
    """Blocks of the line were lost: what is left reaches to the end of the longest of its runs."""
    runs = s.runs
    held = np.int64(0)
    y = np.int64(s.lines[line, e].first_run)
    while y != NONE:
        run = runs[e, y]
        held = max(held, run.high)
        y = run.sibling
    before = np.int64(s.lines[line, e].held)
    if held != before:
        if s.losses.size:
            _note_loss(s, line, held, before)
        s.lines[line, e].held = held
        tell(s, e, line)


@kernel
def _note_loss(s, line, low, high):
    """Blocks whose last copy is gone, which a KV tier may want."""
    n = s.counts[N_LOSSES]
    if n == s.losses.size:
        s.counts[LOST_HOLDS] += 1  # the run is void
        return
    s.counts[N_LOSSES] = n + 1
    s.losses[n].line, s.losses[n].low, s.losses[n].high = line, low, high


# Using what is there


@kernel
def _first_copy(s, e, line, at):
    """(run, end) of the copy of block `at` that was cached first, and how far it stays the first."""
    runs = s.runs
    best = np.int64(NONE)
    y = np.int64(s.lines[line, e].first_run)
    while y != NONE:
        if runs[e, y].low <= at < runs[e, y].high and (best == NONE or runs[e, y].born < runs[e, best].born):
            best = y
        y = runs[e, y].sibling
    end = runs[e, best].high
    y = np.int64(s.lines[line, e].first_run)
    while y != NONE:
        if at < runs[e, y].low < end and runs[e, y].born < runs[e, best].born:
            end = runs[e, y].low
        y = runs[e, y].sibling
    return best, end


@kernel
def count_idle(s, e, line, stop):
    """How many of the line's first `stop` blocks, all held, nobody uses: using them takes free ones."""
    runs = s.runs
    idle, at = np.int64(0), np.int64(0)
    while at < stop:
        x, end = _first_copy(s, e, line, at)
        end = min(end, stop)
        if runs[e, x].users == 0:
            idle += end - at
        at = end
    return idle


@kernel
def _cut(s, e, x, at):
    """Cut run x before block `at`; users and queue place go to both parts. Returns the end."""
    engine, runs = s.engines[e], s.runs
    run = runs[e, x]
    y = _new_run(s, e, np.int64(run.line), at, np.int64(run.high), np.int64(run.users))
    runs[e, y].born = run.born
    run.high = at
    runs[e, y].part = run.part
    run.part = y
    if run.users == 0:  # the end is lost first: it goes before x
        before = run.previous
        runs[e, y].previous, runs[e, y].next = before, x
        run.previous = y
        if before == NONE:
            engine.oldest = y
        else:
            runs[e, before].next = y
    return y


@kernel
def use(s, e, line, stop, top):
    """Use the line's first `stop` blocks, all held, pushing onto the stack `top`; returns the new top."""
    runs = s.runs
    at = np.int64(0)
    while at < stop:
        x, end = _first_copy(s, e, line, at)
        end = min(end, stop)
        if at > runs[e, x].low:
            x = _cut(s, e, x, at)
        run = runs[e, x]
        if end < run.high:
            _cut(s, e, x, end)
        if run.users == 0:
            _unlink(s, e, x)
        run.users += 1
        top = push(s, x, end, top)
        at = end
    return top


@kernel
def push(s, run, high, top):
    """A new entry on the stack `top`; returns it."""
    holds = s.holds
    entry = s.counts[FREE_HOLD]
    if entry != NONE:
        s.counts[FREE_HOLD] = holds[entry].below
    elif s.counts[N_HOLDS] < holds.size:
        entry = s.counts[N_HOLDS]
        s.counts[N_HOLDS] += 1
    else:
        s.counts[LOST_HOLDS] += 1
        return top
    holds[entry].run, holds[entry].high, holds[entry].below = run, high, top
    return entry


@kernel
def cache_blocks(s, e, line, low, high, top):
    """Blocks that the request took now hold blocks low..high - 1 of `line` and can be found.

    Returns the top of the request's stack. Its last run grows where nobody else uses it and no copy of the
    new blocks exists; otherwise a new run begins, so that copies stay in the order in which they were cached.
    """
    runs, holds = s.runs, s.holds
    is_new = np.int64(s.lines[line, e].held) == low
    if top != NONE and is_new:
        x = holds[top].run
        while runs[e, x].high < holds[top].high:
            x = runs[e, x].part
        run = runs[e, x]
        if run.line == line and run.high == low and run.users == 1:
            run.high, run.part = high, NONE
            holds[top].high = high
            s.lines[line, e].held = high
            tell(s, e, line)
            return top
    x = _new_run(s, e, line, low, high, np.int64(1))
    if high > np.int64(s.lines[line, e].held):
        s.lines[line, e].held = high
        tell(s, e, line)
    return push(s, x, high, top)


# Giving back


@kernel
def release(s, e, top, n_unnamed):
    """Give back a request's blocks, the last first: `n_unnamed` without content, then those of its stack."""
    engine, runs, holds = s.engines[e], s.runs, s.holds
    if n_unnamed > 0:
        last = engine.newest
        if last != NONE and runs[e, last].line == NONE:
            runs[e, last].high += n_unnamed
            engine.n_free += n_unnamed
        else:
            _append(s, e, _new_run(s, e, np.int64(NONE), np.int64(0), n_unnamed, np.int64(0)))
    while top != NONE:
        low, high = runs[e, holds[top].run].low, holds[top].high
        while high > low:  # parts of a run that was cut meanwhile, from the last
            x = holds[top].run
            while runs[e, x].high < high:
                x = runs[e, x].part
            run = runs[e, x]
            high = run.low
            run.users -= 1
            if run.users == 0:
                _free(s, e, x)
        below = holds[top].below
        holds[top].below = s.counts[FREE_HOLD]
        s.counts[FREE_HOLD] = top
        top = below


@kernel
def _free(s, e, x):
    """Put a run at the end of the queue, in one with the run before it where that continues x."""
    engine, runs = s.engines[e], s.runs
    run = runs[e, x]
    last = engine.newest
    line = run.line
    continues = last != NONE and runs[e, last].line == line and runs[e, last].low == run.high
    if continues and _only_copies(s, e, x, last):
        _unlink(s, e, last)
        high = runs[e, last].high
        _drop_run(s, e, last)
        run.high = high
        run.part = NONE
    _append(s, e, x)


@kernel
def _only_copies(s, e, x, z):
    """Whether no other run of the line overlaps runs x and z, so that their age does not matter."""
    runs = s.runs
    run = runs[e, x]
    y = np.int64(s.lines[run.line, e].first_run)
    while y != NONE:
        if y != x and y != z and runs[e, y].low < runs[e, z].high and runs[e, y].high > run.low:
            return False
        y = runs[e, y].sibling
    return True
