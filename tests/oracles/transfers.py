"""A KV tier's bandwidth, shared: progressive filling, written to be read.

Numbers may be floats or, for an answer without rounding, fractions. Work is in seconds of the whole tier
(bytes / bandwidth of the direction). Every transfer crosses two resources: the tier, of capacity 1, and
its engine's link, of capacity `share`. All shares grow together; when a resource is full, those that
cross it stop growing (Bertsekas & Gallager, Data Networks, 6.5.2). Between two events shares are
constant.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

Number = Any  # float or Fraction


@dataclass(eq=False)
class Transfer:
    name: Hashable
    engine: int
    latency: Number  # left of it
    work: Number  # left of it


def fair_shares(engines: list[int], share: Number) -> list[Number]:
    """The max-min fair shares of transfers, given by their engines."""
    shares: list[Number] = [0 * share] * len(engines)
    growing = set(range(len(engines)))
    while growing:
        room = [((1 - sum(shares)) / len(growing), growing)]  # of the tier, then of each link in use
        for engine in {engines[i] for i in growing}:
            its = [i for i in range(len(engines)) if engines[i] == engine]
            growing_of_it = growing & set(its)
            room.append(((share - sum(shares[i] for i in its)) / len(growing_of_it), growing_of_it))
        step, full = min(room, key=lambda one: one[0])
        for i in growing:
            shares[i] += step
        growing = growing - full
    return shares


class Link:
    def __init__(self, share: Number = 1.0):
        self.share = min(share, 1 * share / share)  # at most the tier
        self.now: Number = 0 * share
        self.transfers: list[Transfer] = []  # in the order of their start

    def start(self, name: Hashable, engine: int, work: Number, latency: Number) -> None:
        self.transfers.append(Transfer(name, engine, latency, work))

    def shares(self) -> list[Number]:
        """Of each transfer; nothing during its latency."""
        flowing = [t for t in self.transfers if t.latency == 0]
        fair = iter(fair_shares([t.engine for t in flowing], self.share))
        return [next(fair) if t.latency == 0 else 0 * self.share for t in self.transfers]

    def next_due(self) -> Number:
        """When the next latency or transfer ends, if nothing starts."""
        return min(self._dues(), default=math.inf)

    def _dues(self) -> list[Number]:
        return [
            self.now + (t.work / share if t.latency == 0 else t.latency)
            for t, share in zip(self.transfers, self.shares(), strict=True)
        ]

    def advance(self, now: Number) -> list[Hashable]:
        """Go on to `now`; the transfers that ended by then, in the order of their ends."""
        ended = []
        while self.transfers and self.next_due() <= now:
            ended += self._go(self.next_due())
        self._go(now)
        return ended

    def _go(self, to: Number) -> list[Hashable]:
        """To an instant that is not after the next end."""
        ended, passed = [], to - self.now
        for t, share, due in list(zip(self.transfers, self.shares(), self._dues(), strict=True)):
            if t.latency > 0:
                t.latency = 0 * t.latency if due == to else max(t.latency - passed, 0 * t.latency)
            elif due == to:
                self.transfers.remove(t)
                ended.append(t.name)
            else:
                t.work = max(t.work - share * passed, 0 * t.work)  # floats may miss 0
        self.now = to
        return ended
