"""The statistics of a decision against definitions, brute force and coverage."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from agentctl.recommend.statistics import ALPHA, Peak, decreasing_fit, estimate, holm, peak_load


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=12))
def test_the_decreasing_fit_is_the_isotonic_regression(values):
    judge = IsotonicRegression(increasing=False).fit_transform(np.arange(len(values)), values)
    np.testing.assert_allclose(decreasing_fit(values), judge, atol=1e-9)


def test_the_peak_lies_where_the_score_crosses_zero():
    assert peak_load({1.0: 0.1, 4.0: -0.1}) == Peak(pytest.approx(2.0))
    assert peak_load({1.0: 0.1, 2.0: 0.0, 4.0: -0.5}) == Peak(2.0)


def test_a_dip_that_is_made_good_is_pooled_before_the_crossing():
    # 2.0 fails and 3.0 holds: pooled to 0, so both hold
    assert peak_load({1.0: 0.2, 2.0: -0.1, 3.0: 0.1, 4.0: -0.2}).load == pytest.approx(3.0)


def test_a_peak_outside_the_loads_tried_says_so():
    assert peak_load({0.5: 0.1, 4.0: 0.0}) == Peak(4.0, "above")
    assert peak_load({0.5: -0.1, 4.0: -0.2}) == Peak(0.5, "below")


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8))
def test_the_peak_is_one_of_the_loads_tried_or_between_them(scores):
    loads = [2.0**k for k in range(len(scores))]
    assert loads[0] <= peak_load(dict(zip(loads, scores, strict=True))).load <= loads[-1]


def test_the_interval_covers_the_source_as_often_as_it_says():
    """A trace errs about its source, resamples err about the trace in the same way."""
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(2000):
        trace = rng.normal(3.0, 2.0)
        found = estimate(rng.normal(trace, 2.0, size=6), trace)
        hits += found.low <= 3.0 <= found.high
    assert abs(hits / 2000 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 2000)


def test_more_replicates_do_not_make_a_trace_longer():
    rng = np.random.default_rng(8)
    few, many = (estimate(rng.normal(0, 1, size=n), 0.0) for n in (50, 5000))
    assert many.high - many.low > 0.8 * (few.high - few.low)


def test_one_replicate_gives_no_interval():
    assert estimate([1.1], 1.0)[:4] == (1.0, None, None, None)


def test_p_and_interval_say_the_same():
    for shift in np.linspace(-3, 3, 25):
        found = estimate([shift, 1.0 + shift, shift - 1.0, 0.5 + shift], shift)
        assert (found.p < ALPHA) == (found.low > 0 or found.high < 0)


def test_a_bias_that_all_resamples_share_does_not_move_the_estimate():
    found = estimate([0.9, 1.0, 1.1], 2.0)
    assert found.value == 2.0
    assert found.high - 2.0 == pytest.approx(2.0 - found.low)


def test_without_spread_only_an_exact_tie_is_a_tie():
    assert estimate([0.0, 0.0], 0.0).p == 1.0
    assert estimate([0.1, 0.1], 0.1).p == 0.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_holm_is_the_closed_test_of_bonferroni(p_values):
    """A comparison stands when every set of comparisons that has it in it is rejected by Bonferroni."""
    n = len(p_values)
    adjusted = holm(p_values)
    for i in range(n):
        sets = [s for k in range(1, n + 1) for s in itertools.combinations(range(n), k) if i in s]
        closed = max(min(1.0, len(s) * min(p_values[j] for j in s)) for s in sets)
        assert adjusted[i] == pytest.approx(closed)
