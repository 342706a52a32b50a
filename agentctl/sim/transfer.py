"""Transfers that share a KV tier: who moves how fast, and what ends next.

The tier is a processor of capacity 1 and each transfer is work for it: bytes / bandwidth of its
direction, the seconds that it would take alone. Loads and stores share it alike. An engine's link passes
at most `share` of the tier, its loads and stores together. Between two events every transfer has a
constant share, the max-min fair one (Bertsekas & Gallager, Data Networks, 6.5.2): as much as any other,
unless its engine's link is full, which its engine's transfers then divide equally. With n_e transfers of
engine e:

    share of one transfer = min(level, share / n_e),   sum over engines of min(n_e * level, share) = 1,

or every link is full. So the tier is never above its capacity, and below it only when every link in use
is full. One engine alone, or share = 1, is egalitarian processor sharing. A tier whose directions do not
disturb each other is two of these.

The latency of a transfer passes first and takes nothing from others. All links are alike, so the level
follows from how many engines have how many transfers: an event costs O(transfers on the tier), whatever
the size of the cluster. Transfers that are due at one instant end by slot, the lowest first. Everything
is modified in place.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.sim.jit import kernel

NONE = -1
ACTIVE, FLOWING, MOST = 0, 1, 2  # places in `counts`


class Link(NamedTuple):
    """The way to one tier. A slot is a transfer that its user has a number for."""

    share: float  # of the tier that one engine's link passes, above 0, at most 1
    at: NDArray[np.float64]  # [1] the instant that `left` is true for
    level: NDArray[np.float64]  # [1] the share of a transfer whose engine's link is not full
    counts: NDArray[
        np.int64
    ]  # transfers here; those of them past their latency; the most that one engine has
    active: NDArray[np.int64]  # [slot] the slots in use, in no order, are the first counts[ACTIVE]
    place: NDArray[np.int64]  # [slot] where in `active`
    engine: NDArray[np.int64]  # [slot]
    flows: NDArray[np.bool_]  # [slot] its latency has passed
    left: NDArray[np.float64]  # [slot] work left, seconds of the whole tier
    due: NDArray[np.float64]  # [slot] when its latency or its work ends, if nothing else changes
    of_engine: NDArray[np.int64]  # [engine] transfers that flow
    with_count: NDArray[np.int64]  # [n] engines with n transfers that flow, n > 0


def make_link(n_slots: int, n_engines: int, share: float = 1.0) -> Link:
    """A link without transfers, for at most `n_slots` at a time."""
    return Link(
        min(share, 1.0),
        np.zeros(1),
        np.zeros(1),
        np.zeros(3, np.int64),
        np.zeros(n_slots, np.int64),
        np.zeros(n_slots, np.int64),
        np.zeros(n_slots, np.int64),
        np.zeros(n_slots, np.bool_),
        np.zeros(n_slots),
        np.zeros(n_slots),
        np.zeros(n_engines, np.int64),
        np.zeros(n_slots + 1, np.int64),
    )


@kernel
def start(link, slot, engine, work, latency, now):
    """A transfer of `work` seconds begins in a free slot; what is due by `now` has been taken away before."""
    n = link.counts[ACTIVE]
    link.active[n], link.place[slot] = slot, n
    link.counts[ACTIVE] = n + 1
    link.engine[slot], link.left[slot], link.flows[slot] = engine, work, False
    link.due[slot] = now + latency
    if latency == 0:
        _join(link, slot, now)


@kernel
def next_due(link):
    """The next instant at which `advance` has something to do; infinity without transfers."""
    slot = _first(link)
    return math.inf if slot == NONE else link.due[slot]


@kernel
def advance(link, now):
    """Take away the first transfer that has ended by `now`: its slot, or NONE. To be called until NONE."""
    slot = _first(link)
    while slot != NONE and link.due[slot] <= now:
        if link.flows[slot]:
            _leave(link, slot)
            return slot
        _join(link, slot, link.due[slot])
        slot = _first(link)
    return NONE


@kernel
def share_of(link, slot):
    """The share of the tier that a transfer has now."""
    if not link.flows[slot]:
        return 0.0
    return min(link.level[0], link.share / link.of_engine[link.engine[slot]])


@kernel
def _first(link):
    first = NONE
    for i in range(link.counts[ACTIVE]):
        slot = link.active[i]
        if first == NONE or (link.due[slot], slot) < (link.due[first], first):
            first = slot
    return first


@kernel
def _join(link, slot, now):
    """The latency of a transfer is over: it takes its share."""
    _settle(link, now)
    link.flows[slot] = True
    link.counts[FLOWING] += 1
    _count(link, link.engine[slot], 1)
    _share_out(link)


@kernel
def _leave(link, slot):
    """A transfer has ended at its due time: what it had is shared out among the others."""
    _settle(link, link.due[slot])
    n = link.counts[ACTIVE] - 1
    last, hole = link.active[n], link.place[slot]
    link.active[hole], link.place[last] = last, hole
    link.counts[ACTIVE] = n
    link.counts[FLOWING] -= 1
    _count(link, link.engine[slot], -1)
    _share_out(link)


@kernel
def _count(link, engine, change):
    """An engine has one transfer more or less."""
    before = link.of_engine[engine]
    if before > 0:
        link.with_count[before] -= 1
    after = before + change
    link.of_engine[engine] = after
    if after > 0:
        link.with_count[after] += 1
    link.counts[MOST] = max(link.counts[MOST], after)
    while link.counts[MOST] > 0 and link.with_count[link.counts[MOST]] == 0:
        link.counts[MOST] -= 1


@kernel
def _settle(link, now):
    """Do the work between the last change and `now`."""
    passed = now - link.at[0]
    for i in range(link.counts[ACTIVE]):
        slot = link.active[i]
        if link.flows[slot]:
            link.left[slot] = max(link.left[slot] - share_of(link, slot) * passed, 0.0)
    link.at[0] = now


@kernel
def _share_out(link):
    """The level, and from it when each transfer would end.

    Engines with more transfers fill their links first. What the full links leave is divided among the others.
    """
    capacity, transfers = 1.0, link.counts[FLOWING]
    link.level[0] = capacity / transfers if transfers else 0.0
    for n in range(link.counts[MOST], 0, -1):
        if n * link.level[0] <= link.share:
            break
        capacity -= link.with_count[n] * link.share
        transfers -= n * link.with_count[n]
        link.level[0] = capacity / transfers if transfers else math.inf
    for i in range(link.counts[ACTIVE]):
        slot = link.active[i]
        if link.flows[slot]:
            link.due[slot] = link.at[0] + link.left[slot] / share_of(link, slot)
