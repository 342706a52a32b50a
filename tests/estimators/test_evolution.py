from __future__ import annotations

import numpy as np
import pytest

from agentctl.estimators.evolution import constants, minimise

LOW, HIGH = np.full(4, -5.0), np.full(4, 5.0)
MIDDLE = np.array([1.0, -2.0, 0.5, 3.0])
TURN = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]


def ellipsoid(x):
    """A valley a thousand times as long as it is wide, along no axis."""
    return float((np.array([1, 10, 100, 1000]) * (TURN @ (x - MIDDLE)) ** 2).sum())


def test_a_narrow_valley_along_no_axis_is_followed_to_its_bottom():
    best, cost = minimise(ellipsoid, np.zeros(4), LOW, HIGH, 0.5, 400, 0)
    assert best == pytest.approx(MIDDLE, abs=0.01)
    assert cost == ellipsoid(best)


def test_ruggedness_does_not_hold_it_back():
    def rugged(x):
        return ellipsoid(x) + 0.3 * float(np.abs(np.sin(40 * x)).sum())

    best, _ = minimise(rugged, np.zeros(4), LOW, HIGH, 0.8, 400, 0)
    assert best == pytest.approx(MIDDLE, abs=0.25)


def test_no_point_outside_of_the_box_is_asked_for():
    asked = []

    def corner(x):
        asked.append(x.copy())
        return float((x - 9).sum() ** 2)

    best, _ = minimise(corner, np.zeros(4), LOW, HIGH, 2.0, 100, 0)
    assert best == pytest.approx(HIGH)
    assert np.min(asked) >= -5 and np.max(asked) <= 5


def test_the_same_seed_asks_for_the_same_points():
    first, again, other = (minimise(ellipsoid, np.zeros(4), LOW, HIGH, 0.5, 20, seed) for seed in (1, 1, 2))
    assert np.array_equal(first[0], again[0]) and not np.array_equal(first[0], other[0])


def test_constants_are_those_of_the_tutorial():
    """Its Table 1 for 10 dimensions, as its own example prints them: mu 5, mueff 3.17, cs 0.28, cc 0.30."""
    c = constants(10)
    assert c.offspring == 12 and c.weights.size == 6
    assert c.weights.sum() == pytest.approx(1) and np.all(np.diff(c.weights) < 0)
    assert c.effective == pytest.approx(1 / (c.weights**2).sum())
    assert c.one_rate + c.many_rate <= 1
