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
the size of the cluster. Transfers that are due at one instant end in the order in which they began.
Everything is modified in place.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.sim.jit import kernel

NONE = -1

LINK = np.dtype(
    [
        ("share", "f8"),  # of the tier that one engine's link passes, above 0, at most 1
        ("at", "f8"),  # the instant that `left` is true for
        ("level", "f8"),  # the share of a transfer whose engine's link is not full
        ("due", "f8"),  # the next instant at which `advance` has something to do; infinite without transfers
        ("n_active", "i8"), ("n_flowing", "i8"),  # transfers here; those of them past their latency
        ("n_begun", "i8"),  # transfers that there ever were
        ("most", "i8"),  # flowing ones that one engine has
    ],
    align=True,
)  # fmt: skip
TRANSFER = np.dtype(
    [
        ("left", "f8"),  # work, seconds of the whole tier
        ("due", "f8"),  # when its latency or its work ends, if nothing else changes
        ("number", "i8"),  # in the order in which they began
        ("engine", "i4"), ("place", "i4"),  # in the list of active ones
        ("active", "i4"),  # entry of this number of the list; of these the first n_active
        ("flows", "?"),  # its latency has passed
    ],
    align=True,
)  # fmt: skip


class Links(NamedTuple):
    """The ways to tiers. A slot is a transfer that its user has a number for."""

    links: NDArray  # LINK [link]
    transfers: NDArray  # TRANSFER [link, slot]
    of_engine: NDArray[np.int64]  # [link, engine] transfers that flow
    with_count: NDArray[np.int64]  # [link, n] engines with n transfers that flow, n > 0


def make_links(shares: list[float], n_slots: int, n_engines: int) -> Links:
    """Links without transfers, each for at most `n_slots` at a time. Untouched slots cost no memory."""
    links = np.zeros(len(shares), LINK)
    links["share"], links["due"] = np.minimum(shares, 1.0), np.inf
    return Links(
        links.view(np.recarray),
        np.zeros((len(shares), n_slots), TRANSFER).view(np.recarray),
        np.zeros((len(shares), n_engines), np.int64),
        np.zeros((len(shares), n_slots + 1), np.int64),
    )


@kernel
def start(s, k, slot, engine, work, latency, now):
    """A transfer of `work` seconds begins in a free slot; what is due by `now` has been taken away before."""
    link, one = s.links[k], s.transfers[k, slot]
    n = link.n_active
    s.transfers[k, n].active, one.place = slot, n
    link.n_active, link.n_begun = n + 1, link.n_begun + 1
    one.number = link.n_begun
    one.engine, one.left, one.flows, one.due = engine, work, False, now + latency
    if latency == 0:
        _join(s, k, slot, now)
    link.due = _next_due(s, k)


@kernel
def advance(s, k, now):
    """Take away the first transfer that has ended by `now`: its slot, or NONE. To be called until NONE."""
    link = s.links[k]
    if link.due > now:
        return NONE
    slot = _first(s, k)
    while slot != NONE and s.transfers[k, slot].due <= now:
        if s.transfers[k, slot].flows:
            _leave(s, k, slot)
            link.due = _next_due(s, k)
            return slot
        _join(s, k, slot, s.transfers[k, slot].due)
        slot = _first(s, k)
    link.due = _next_due(s, k)
    return NONE


@kernel
def share_of(s, k, slot):
    """The share of the tier that a transfer has now."""
    one, link = s.transfers[k, slot], s.links[k]
    if not one.flows:
        return 0.0
    return min(link.level, link.share / s.of_engine[k, one.engine])


@kernel
def _next_due(s, k):
    slot = _first(s, k)
    return math.inf if slot == NONE else s.transfers[k, slot].due


@kernel
def _first(s, k):
    """The one that is due first; among equals the one that began first."""
    first, due = np.int64(NONE), math.inf
    for i in range(s.links[k].n_active):
        slot = np.int64(s.transfers[k, i].active)
        here = s.transfers[k, slot].due
        is_earlier = here == due and s.transfers[k, slot].number < s.transfers[k, first].number
        if first == NONE or here < due or is_earlier:
            first, due = slot, here
    return first


@kernel
def _join(s, k, slot, now):
    """The latency of a transfer is over: it takes its share."""
    _settle(s, k, now)
    s.transfers[k, slot].flows = True
    s.links[k].n_flowing += 1
    _count(s, k, s.transfers[k, slot].engine, 1)
    _share_out(s, k)


@kernel
def _leave(s, k, slot):
    """A transfer has ended at its due time: what it had is shared out among the others."""
    link, one = s.links[k], s.transfers[k, slot]
    _settle(s, k, one.due)
    n = link.n_active - 1
    last, hole = np.int64(s.transfers[k, n].active), np.int64(one.place)
    s.transfers[k, hole].active, s.transfers[k, last].place = last, hole
    link.n_active = n
    link.n_flowing -= 1
    _count(s, k, one.engine, -1)
    _share_out(s, k)


@kernel
def _count(s, k, engine, change):
    """An engine has one transfer more or less."""
    link = s.links[k]
    before = s.of_engine[k, engine]
    if before > 0:
        s.with_count[k, before] -= 1
    after = before + change
    s.of_engine[k, engine] = after
    if after > 0:
        s.with_count[k, after] += 1
    link.most = max(link.most, after)
    while link.most > 0 and s.with_count[k, link.most] == 0:
        link.most -= 1


@kernel
def _settle(s, k, now):
    """Do the work between the last change and `now`."""
    link = s.links[k]
    passed = now - link.at
    if passed > 0:
        for i in range(link.n_active):
            slot = np.int64(s.transfers[k, i].active)
            one = s.transfers[k, slot]
            if one.flows:
                one.left = max(one.left - share_of(s, k, slot) * passed, 0.0)
    link.at = now


@kernel
def _share_out(s, k):
    """The level, and from it when each transfer would end.

    Engines with more transfers fill their links first. What the full links leave is divided among the others.
    """
    link = s.links[k]
    capacity, flowing = 1.0, link.n_flowing
    link.level = capacity / flowing if flowing else 0.0
    for n in range(link.most, 0, -1):
        if n * link.level <= link.share:
            break
        capacity -= s.with_count[k, n] * link.share
        flowing -= n * s.with_count[k, n]
        link.level = capacity / flowing if flowing else math.inf
    for i in range(link.n_active):
        slot = np.int64(s.transfers[k, i].active)
        one = s.transfers[k, slot]
        if one.flows:
            one.due = link.at + one.left / share_of(s, k, slot)
