"""Approximate prefix indexes: what a gateway believes engines to hold, from what it has sent them itself.

Routers that hear no events of KV blocks remember the prompts that they sent: per engine the blocks used last,
up to a capacity, each for a time to live. A prompt uses all of its whole blocks, so on a line
(agentctl.sim.content, here in the index's own block size) it uses a beginning, and deeper blocks were never
used later than those before them. They are kept in *segments*: blocks of one line that the same request used
last.

A beginning that is used anew swallows segments and cuts one at most. There are never more segments than
ranges in the paths of all requests, which is how many slots there are.

Everything is modified in place. Indices: g gateway, e engine, r request, x slot of a segment (0: none).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.cluster import IndexParams
from agentctl.sim.content import Content
from agentctl.sim.jit import kernel

NO_LIMIT = 1 << 60

RULES = np.dtype(
    [
        ("block_tokens", "i8"),  # 0: gateways have no indexes of their own
        ("capacity", "i8"),  # blocks per engine
        ("ttl", "f8"),
        ("from_head", "?"),  # of one request's blocks the first is forgotten first, else the deepest
        ("any_engine", "?"),  # a chain goes on while any engine has the block
        ("n_slots", "i8"), ("free_slot", "i8"),  # ever in use; the first that is free again
    ],
    align=True,
)  # fmt: skip
# The segments of one engine in the order of their use.
QUEUE = np.dtype([("oldest", "i4"), ("newest", "i4"), ("n_blocks", "i8")], align=True)
# Of one line: how many of its first blocks are there without a gap, and its first segment.
PLACE = np.dtype([("held", "i4"), ("first", "i4")], align=True)
SEGMENT = np.dtype(
    [
        ("line", "i4"), ("low", "i4"), ("high", "i4"),  # blocks low .. high - 1 of the line
        ("previous", "i4"), ("next", "i4"),  # in the queue; a free slot is chained by `next`
        ("deeper", "i4"),  # the next segment of the line
        ("used", "f8"),  # when
    ],
    align=True,
)  # fmt: skip


class Index(NamedTuple):
    """`line` and `length` of start[r] .. start[r + 1] are request r's path (agentctl.sim.content)."""

    rules: NDArray  # RULES, one record
    queues: NDArray  # QUEUE [gateway, engine]
    places: NDArray  # PLACE [gateway, line, engine]
    segments: NDArray  # SEGMENT
    start: NDArray[np.int64]
    line: NDArray[np.int32]
    length: NDArray[np.int32]


def make_index(
    params: IndexParams, block_tokens: int, content: Content, n_gateways: int, n_engines: int
) -> Index:
    """Indexes that know nothing; `content` is in blocks of `block_tokens`."""
    capacity = params.capacity_tokens
    rules = np.zeros(1, RULES)
    rules["block_tokens"], rules["n_slots"] = block_tokens, 1
    rules["capacity"] = NO_LIMIT if capacity is None else capacity // block_tokens
    rules["ttl"] = math.inf if params.ttl_s is None else params.ttl_s
    rules["from_head"], rules["any_engine"] = params.eviction == "head", params.match == "any_engine"
    return _index(rules, content, n_gateways, n_engines)


def no_index() -> Index:
    """What stands for an index where engines tell what they hold."""
    nothing = np.zeros(0, np.int32)
    return _index(np.zeros(1, RULES), Content(np.zeros(1, np.int64), nothing, nothing, 0), 0, 0)


def _index(rules: NDArray, content: Content, n_gateways: int, n_engines: int) -> Index:
    records = (
        rules,
        np.zeros((n_gateways, n_engines), QUEUE),
        np.zeros((n_gateways, content.n_lines, n_engines), PLACE),
        np.empty(content.line.size + 1, SEGMENT),
    )
    plain = (np.require(values, requirements=["C", "W"]) for values in content[:3])
    return Index(*(array.view(np.recarray) for array in records), *plain)


# Looking


@kernel
def match(index, routes, g, r, n_blocks):
    """Fill in the hit tokens of request r on all engines, as far as its first `n_blocks` blocks go."""
    for e in range(index.queues.shape[1]):
        routes[g, e].hit_tokens = 0
    before, going = np.int64(0), True
    for at in range(index.start[r], index.start[r + 1]):
        length = min(np.int64(index.length[at]), n_blocks - before)
        if index.rules[0].any_engine:
            going = _match_any(index, routes, g, np.int64(index.line[at]), length)
        else:
            going = _match_own(index, routes, g, np.int64(index.line[at]), length, before)
        before += length
        if before == n_blocks or not going:
            break


@kernel
def _match_own(index, routes, g, line, length, before):
    """Each engine goes on as far as it has the blocks; returns whether any has all of this line."""
    size, any_whole = index.rules[0].block_tokens, False
    for e in range(index.queues.shape[1]):
        if routes[g, e].hit_tokens == before * size:  # the path so far
            here = min(np.int64(index.places[g, line, e].held), length)
            routes[g, e].hit_tokens += here * size
            any_whole = any_whole or here == length
    return any_whole


@kernel
def _match_any(index, routes, g, line, length):
    """As far as any engine has the block, each counts those that it has; returns whether that is all."""
    reach = _reach(index, g, line, length)
    for e in range(index.queues.shape[1]):
        n = min(np.int64(index.places[g, line, e].held), reach)
        if n < reach:
            n = np.int64(0)
            x = np.int64(index.places[g, line, e].first)
            while x != 0 and index.segments[x].low < reach:
                n += min(np.int64(index.segments[x].high), reach) - index.segments[x].low
                x = np.int64(index.segments[x].deeper)
        routes[g, e].hit_tokens += n * index.rules[0].block_tokens
    return reach == length


@kernel
def _reach(index, g, line, length):
    """How many of the line's first blocks are with one engine or another, at most `length`."""
    reach, grows = np.int64(0), True
    for e in range(index.queues.shape[1]):
        reach = max(reach, np.int64(index.places[g, line, e].held))
    while grows and reach < length:  # where one ends another may go on
        grows = False
        for e in range(index.queues.shape[1]):
            x = np.int64(index.places[g, line, e].first)
            while x != 0 and index.segments[x].high <= reach:
                x = np.int64(index.segments[x].deeper)
            if x != 0 and index.segments[x].low <= reach:
                reach, grows = np.int64(index.segments[x].high), True
    return min(reach, length)


# Remembering


@kernel
def insert(index, g, e, r, n_blocks, now):
    """The first `n_blocks` blocks of request r are used on engine e; then the oldest go, where room ends.

    Which of several ranges is cut short does not depend on when: an LRU list of any capacity is a beginning
    of every longer one's.
    """
    rules, queue = index.rules[0], index.queues[g, e]
    first, stop, rest = index.start[r], index.start[r], n_blocks
    while rest > 0:
        rest -= index.length[stop]
        stop += 1
    for k in range(stop - first):
        at = first + k if rules.from_head else stop - 1 - k
        length = np.int64(index.length[at])
        if at == stop - 1:
            length += rest  # the last range is not used to its end
        _use(index, g, e, np.int64(index.line[at]), length, now)
        if queue.n_blocks > rules.capacity:
            _forget(index, g, e, queue.n_blocks - rules.capacity)


@kernel
def _use(index, g, e, line, n, now):
    """The line's first n blocks become a segment of their own, the newest."""
    queue, place, segments = index.queues[g, e], index.places[g, line, e], index.segments
    x = np.int64(place.first)
    while x != 0 and segments[x].high <= n:
        after = np.int64(segments[x].deeper)
        queue.n_blocks -= segments[x].high - segments[x].low
        _drop(index, g, e, x)
        x = after
    if x != 0 and segments[x].low < n:
        queue.n_blocks -= n - segments[x].low
        segments[x].low = n
    place.first = _append(index, g, e, line, n, x, now)
    queue.n_blocks += n
    place.held = n
    while x != 0 and segments[x].low == place.held:
        place.held = segments[x].high
        x = np.int64(segments[x].deeper)


@kernel
def _append(index, g, e, line, n, deeper, now):
    """A new segment at the end of the queue; returns its slot."""
    rules, queue, segments = index.rules[0], index.queues[g, e], index.segments
    x = rules.free_slot
    if x != 0:
        rules.free_slot = segments[x].next
    else:
        x = rules.n_slots
        rules.n_slots += 1
    new = segments[x]
    new.line, new.low, new.high, new.deeper, new.used = line, 0, n, deeper, now
    new.previous, new.next = queue.newest, 0
    if queue.newest != 0:
        segments[queue.newest].next = x
    else:
        queue.oldest = x
    queue.newest = x
    return x


# Forgetting


@kernel
def expire(index, g, now):
    """Forget what was used a time to live ago."""
    ttl = index.rules[0].ttl
    if ttl == math.inf:
        return
    for e in range(index.queues.shape[1]):
        queue = index.queues[g, e]
        while queue.oldest != 0 and index.segments[queue.oldest].used + ttl <= now:
            segment = index.segments[queue.oldest]
            _forget(index, g, e, np.int64(segment.high) - segment.low)


@kernel
def _forget(index, g, e, n):
    """Forget the n blocks used longest ago; the oldest segment of all is the last one of its line."""
    queue, segments = index.queues[g, e], index.segments
    queue.n_blocks -= n
    while n > 0:
        x = np.int64(queue.oldest)
        segment = segments[x]
        place = index.places[g, segment.line, e]
        gone = min(n, np.int64(segment.high) - segment.low)
        n -= gone
        if index.rules[0].from_head:
            place.held = min(place.held, segment.low)
            segment.low += gone
        else:
            segment.high -= gone
            place.held = min(place.held, segment.high)
        if segment.low == segment.high:
            _unchain(index, place, x)
            _drop(index, g, e, x)


@kernel
def _unchain(index, place, x):
    """Take the last segment from its line."""
    y = np.int64(place.first)
    if y == x:
        place.first = 0
        return
    while index.segments[y].deeper != x:
        y = np.int64(index.segments[y].deeper)
    index.segments[y].deeper = 0


@kernel
def _drop(index, g, e, x):
    """Take a segment out of the queue; its slot is free."""
    queue, segments = index.queues[g, e], index.segments
    before, after = segments[x].previous, segments[x].next
    if before == 0:
        queue.oldest = after
    else:
        segments[before].next = after
    if after == 0:
        queue.newest = before
    else:
        segments[after].previous = before
    segments[x].next = index.rules[0].free_slot
    index.rules[0].free_slot = x
