"""Approximate prefix indexes: what a gateway believes engines to hold, from what it has sent them itself.

Routers that hear no events of KV blocks remember the prompts that they sent: per engine the blocks used last,
up to a capacity, each for a time to live. A prompt uses all of its whole blocks, so on a line
(agentctl.sim.content, here in the index's own block size) it uses a beginning, and deeper blocks were never
used later than those before them. They are kept in *segments*: blocks of one line that the same request used
last.

A beginning that is used anew swallows segments and cuts one at most. There are never more segments than
ranges in the paths of all requests, which is how many slots there are.

Everything is modified in place; agentctl.sim.state says what the fields are. A request's path is `start` ..
`stop` - 1 of `index.path`. Indices: g gateway, e engine, x slot of a segment (0: none).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.sim.jit import kernel


class Index(NamedTuple):
    """What there is of a State to gateways' own indexes: few arrays, so that calls are cheap."""

    router: NDArray  # ROUTER, one record
    routes: NDArray  # ROUTE [gateway, engine]: the queue of segments, the oldest first
    places: NDArray  # PLACE [gateway, line, engine]
    segments: NDArray  # SEGMENT
    path: NDArray  # RANGE


# Looking


@kernel
def match(index, g, start, stop, n_blocks):
    """Fill in the hit tokens on all engines, as far as the first `n_blocks` blocks of the path go."""
    for e in range(index.routes.shape[1]):
        index.routes[g, e].hit_tokens = 0
    before, going = np.int64(0), True
    for at in range(start, stop):
        line, length = index.path[at].line, min(index.path[at].length, n_blocks - before)
        if index.router[0].any_engine:
            going = _match_any(index, g, line, length)
        else:
            going = _match_each(index, g, line, length, before)
        before += length
        if before == n_blocks or not going:
            break


@kernel
def _match_each(index, g, line, length, before):
    """Each engine goes on as far as it has the blocks; returns whether any has all of this line."""
    size, any_whole = index.router[0].own_block, False
    for e in range(index.routes.shape[1]):
        if index.routes[g, e].hit_tokens == before * size:  # the path so far
            here = min(np.int64(index.places[g, line, e].held), length)
            index.routes[g, e].hit_tokens += here * size
            any_whole = any_whole or here == length
    return any_whole


@kernel
def _match_any(index, g, line, length):
    """As far as any engine has the block, each counts those that it has; returns whether that is all."""
    reach = _reach(index, g, line, length)
    for e in range(index.routes.shape[1]):
        n = min(np.int64(index.places[g, line, e].held), reach)
        if n < reach:
            n = np.int64(0)
            x = np.int64(index.places[g, line, e].first)
            while x != 0 and index.segments[x].low < reach:
                n += min(np.int64(index.segments[x].high), reach) - index.segments[x].low
                x = np.int64(index.segments[x].deeper)
        index.routes[g, e].hit_tokens += n * index.router[0].own_block
    return reach == length


@kernel
def _reach(index, g, line, length):
    """How many of the line's first blocks are with one engine or another, at most `length`."""
    reach, grows = np.int64(0), True
    for e in range(index.routes.shape[1]):
        reach = max(reach, np.int64(index.places[g, line, e].held))
    while grows and reach < length:  # where one ends another may go on
        grows = False
        for e in range(index.routes.shape[1]):
            x = np.int64(index.places[g, line, e].first)
            while x != 0 and index.segments[x].high <= reach:
                x = np.int64(index.segments[x].deeper)
            if x != 0 and index.segments[x].low <= reach:
                reach, grows = np.int64(index.segments[x].high), True
    return min(reach, length)


# Remembering


@kernel
def insert(index, g, e, start, n_blocks, now):
    """The first `n_blocks` blocks of the path are used on engine e; then the oldest go, where room ends.

    Which of several ranges is cut short does not depend on when: an LRU list of any capacity is a beginning
    of every longer one's.
    """
    router, route = index.router[0], index.routes[g, e]
    stop, rest = start, n_blocks
    while rest > 0:
        rest -= index.path[stop].length
        stop += 1
    for k in range(stop - start):
        at = start + k if router.from_head else stop - 1 - k
        length = index.path[at].length
        if at == stop - 1:
            length += rest  # the last range is not used to its end
        _use(index, g, e, index.path[at].line, length, now)
        if route.n_believed > router.own_capacity:
            _forget(index, g, e, route.n_believed - router.own_capacity)


@kernel
def _use(index, g, e, line, n, now):
    """The line's first n blocks become a segment of their own, the newest."""
    route, place, segments = index.routes[g, e], index.places[g, line, e], index.segments
    x = np.int64(place.first)
    while x != 0 and segments[x].high <= n:
        after = np.int64(segments[x].deeper)
        route.n_believed -= segments[x].high - segments[x].low
        _drop(index, g, e, x)
        x = after
    if x != 0 and segments[x].low < n:
        route.n_believed -= n - segments[x].low
        segments[x].low = n
    place.first = _append(index, g, e, line, n, x, now)
    route.n_believed += n
    place.held = n
    while x != 0 and segments[x].low == place.held:
        place.held = segments[x].high
        x = np.int64(segments[x].deeper)


@kernel
def _append(index, g, e, line, n, deeper, now):
    """A new segment at the end of the queue; returns its slot."""
    router, route, segments = index.router[0], index.routes[g, e], index.segments
    x = router.free_segment
    if x != 0:
        router.free_segment = segments[x].next
    else:
        x = router.n_segments
        router.n_segments += 1
    new = segments[x]
    new.line, new.low, new.high, new.deeper, new.used = line, 0, n, deeper, now
    new.previous, new.next = route.newest_segment, 0
    if route.newest_segment != 0:
        segments[route.newest_segment].next = x
    else:
        route.oldest_segment = x
    route.newest_segment = x
    return x


# Forgetting


@kernel
def expire(index, g, now):
    """Forget what was used a time to live ago."""
    ttl = index.router[0].own_ttl
    if ttl == math.inf:
        return
    for e in range(index.routes.shape[1]):
        route = index.routes[g, e]
        while route.oldest_segment != 0 and index.segments[route.oldest_segment].used + ttl <= now:
            segment = index.segments[route.oldest_segment]
            _forget(index, g, e, np.int64(segment.high) - segment.low)


@kernel
def _forget(index, g, e, n):
    """Forget the n blocks used longest ago; the oldest segment of all is the last one of its line."""
    route, segments = index.routes[g, e], index.segments
    route.n_believed -= n
    while n > 0:
        x = np.int64(route.oldest_segment)
        segment = segments[x]
        place = index.places[g, segment.line, e]
        gone = min(n, np.int64(segment.high) - segment.low)
        n -= gone
        if index.router[0].from_head:
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
    route, segments = index.routes[g, e], index.segments
    before, after = segments[x].previous, segments[x].next
    if before == 0:
        route.oldest_segment = after
    else:
        segments[before].next = after
    if after == 0:
        route.newest_segment = before
    else:
        segments[after].previous = before
    segments[x].next = index.router[0].free_segment
    index.router[0].free_segment = x
