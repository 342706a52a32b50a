"""Transfers against progressive filling in fractions, closed forms, and the laws of fair sharing."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.kernels import from_python
from oracles.transfers import Link as Judge
from oracles.transfers import fair_shares

from agentctl.sim import transfer
from agentctl.sim.transfer import NONE, make_links

start, advance, share_of = map(from_python, (transfer.start, transfer.advance, transfer.share_of))


def next_due(links):
    return links.links["due"][0]


# (at s, engine, work in s, latency in s)
Start = tuple[float, int, float, float]


def ends(starts: list[Start], share: float = 1.0, n_engines: int = 8) -> list[float]:
    """When each transfer ends. At one instant what ends goes before what starts."""
    link = make_links([share], len(starts), n_engines)
    found = [math.nan] * len(starts)
    order = sorted(range(len(starts)), key=lambda i: (starts[i][0], i))
    while order or next_due(link) < math.inf:
        now = min(starts[order[0]][0] if order else math.inf, next_due(link))
        while (slot := advance(link, 0, now)) != NONE:
            found[slot] = now
        while order and starts[order[0]][0] == now:
            at, engine, work, latency = starts[order[0]]
            start(link, 0, order.pop(0), engine, work, latency, at)
    return found


def judged_ends(starts: list[Start], share: float = 1.0) -> list[float]:
    """The same without rounding."""
    link, found = Judge(Fraction(share)), [Fraction(0)] * len(starts)
    order = sorted(range(len(starts)), key=lambda i: (starts[i][0], i))
    while order or link.transfers:
        now = min(Fraction(starts[order[0]][0]) if order else math.inf, link.next_due())
        for name in link.advance(now):
            found[name] = now
        while order and starts[order[0]][0] == now:
            _, engine, work, latency = starts[order[0]]
            link.start(order.pop(0), engine, Fraction(work), Fraction(latency))
    return [float(end) for end in found]


def test_a_transfer_alone_takes_its_latency_and_its_work():
    assert ends([(1.0, 0, 2.0, 0.25)]) == [3.25]


def test_a_transfer_alone_goes_no_faster_than_its_engines_link():
    assert ends([(0.0, 0, 2.0, 0.5)], share=0.5) == [4.5]


def test_two_transfers_halve_the_tier_and_the_second_speeds_up_when_the_first_has_ended():
    # 0-1 A alone: 1 of its 2 done. 1-3 both at 1/2: A ends at 3, B has 1 of 2. B alone: ends at 4.
    assert ends([(0.0, 0, 2.0, 0.0), (1.0, 1, 2.0, 0.0)]) == [3.0, 4.0]


def test_latency_takes_nothing_from_others():
    # B waits until 2; A has then 1 left and B 2: both at 1/2 until 4 (A ends, B has 1 left), B ends at 5.
    assert ends([(0.0, 0, 3.0, 0.0), (0.0, 1, 2.0, 2.0)]) == [4.0, 5.0]


def test_what_a_full_link_leaves_goes_to_the_others():
    # Links pass 1/2. Engine 0 has A, B, C: an equal quarter each would be 3/4, so its link is full at 1/6
    # each; D of engine 1 gets the other half. D: 1 / (1/2) = 2. A, B, C have 1 - 2/6 left, at 1/6: 2 + 4 = 6.
    starts = [(0.0, 0, 1.0, 0.0)] * 3 + [(0.0, 1, 1.0, 0.0)]
    assert ends(starts, share=0.5) == pytest.approx([6.0, 6.0, 6.0, 2.0], rel=1e-15)


def test_nothing_to_move_ends_at_once():
    assert ends([(1.0, 0, 0.0, 0.0), (0.0, 0, 4.0, 0.0)]) == [1.0, 4.0]


def test_what_is_due_at_one_instant_ends_in_the_order_in_which_it_began():
    link = make_links([1.0], 3, 3)
    for slot in (2, 0, 1):
        start(link, 0, slot, slot, 1.0, 0.0, 0.0)
    assert [advance(link, 0, next_due(link)) for _ in range(3)] == [2, 0, 1]
    assert advance(link, 0, 10.0) == NONE


sizes = st.one_of(st.floats(0.01, 10.0), st.sampled_from([0.0, 0.5, 1.0]))
transfers = st.lists(
    st.tuples(st.floats(0, 10.0), st.integers(0, 4), sizes, st.sampled_from([0.0, 0.0, 0.3, 1.7])),
    min_size=1,
    max_size=14,
)
shares = st.one_of(st.just(1.0), st.floats(0.05, 1.0))


@settings(max_examples=150, deadline=None)
@given(transfers, shares)
def test_every_transfer_ends_when_progressive_filling_says(starts, share):
    assert ends(starts, share) == pytest.approx(judged_ends(starts, share), rel=1e-9)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=20), shares)
def test_shares_are_fair_and_the_tier_idles_only_behind_full_links(engines, share):
    link = make_links([share], len(engines), 6)
    for slot, engine in enumerate(engines):
        start(link, 0, slot, engine, 1.0, 0.0, 0.0)
    found = np.array([share_of(link, 0, slot) for slot in range(len(engines))])
    assert found == pytest.approx([float(x) for x in fair_shares(engines, Fraction(share))], rel=1e-12)
    of_link = np.bincount(engines, found)
    assert found.sum() <= 1 + 1e-12 and of_link.max() <= share + 1e-12
    used = min(1.0, share * len(set(engines)))  # work conserving
    assert found.sum() == pytest.approx(used, rel=1e-12)
    for slot, engine in enumerate(engines):  # nobody has more than one whose own link has room
        if of_link[engine] < share - 1e-9:
            assert found[slot] >= found.max() - 1e-12


@settings(max_examples=100, deadline=None)
@given(st.lists(sizes, min_size=1, max_size=10))
def test_with_one_link_the_last_end_is_all_the_work_and_ends_go_by_size(works):
    """Processor sharing serves at full rate whatever the order: closed forms for a common start."""
    found = ends([(0.0, i % 8, work, 0.0) for i, work in enumerate(works)])
    for work, end in zip(
        works, found, strict=True
    ):  # each takes its own size, or less, of every other's time
        assert end == pytest.approx(sum(min(work, other) for other in works), rel=1e-9, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(transfers, shares, st.lists(st.floats(0, 30.0), max_size=20))
def test_looking_in_between_changes_nothing(starts, share, looks):
    idle = [(at, 7, 0.0, 1e6) for at in looks]  # their latency never ends before the others have
    assert ends([*starts, *idle], share)[: len(starts)] == ends(starts, share)
