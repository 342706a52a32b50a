"""Intervals of errors: they hold the truth, they are the same each time, and say when they cannot."""

import numpy as np
import pytest

from agentctl.validate.intervals import (
    FEWEST_REQUESTS,
    Sorted,
    mean_of,
    quantile_errors,
    ratio_of,
    time_blocks,
)


def drifting(seed, n=600, span=3600.0, memory_s=30.0):
    """Arrivals, and relative errors around 0.05 whose drift is forgotten within half a minute."""
    random = np.random.default_rng(seed)
    arrival = np.sort(random.uniform(0, span, n))
    knots = np.arange(0, span + memory_s, memory_s)
    drift = np.interp(arrival, knots, random.normal(0, 0.1, knots.size))
    return arrival, 0.05 + drift + random.normal(0, 0.05, n)


def test_intervals_of_a_bias_hold_the_truth_although_neighbours_err_alike():
    held = 0
    for seed in range(200):
        arrival, error = drifting(seed)
        found = mean_of(error, time_blocks(arrival, np.full(arrival.size, 5.0), seed))
        held += found.low <= 0.05 <= found.high
    assert held >= 0.9 * 200


def test_intervals_of_a_percentiles_error_hold_the_truth():
    """Simulated is 1.1 times logged but for noise in blocks of time."""
    held = 0
    for seed in range(100):
        arrival, error = drifting(seed)
        logged = np.random.default_rng(1000 + seed).lognormal(0, 0.5, arrival.size)
        blocks = time_blocks(arrival, np.full(arrival.size, 5.0), seed)
        simulated = Sorted(logged * (1.05 + error), blocks)
        [found] = quantile_errors(simulated, Sorted(logged, blocks), [50], blocks.n)
        held += found.low <= 0.1 <= found.high
    assert held >= 90


def test_the_same_log_has_the_same_intervals():
    arrival, error = drifting(1)
    one, two = (mean_of(error, time_blocks(arrival, np.full(600, 5.0))) for _ in range(2))
    assert one == two


def test_a_block_is_a_sixteenth_of_the_log_but_never_shorter_than_two_requests():
    arrival = np.linspace(0, 1600, 200)
    assert time_blocks(arrival, np.full(200, 1.0)).n == 16
    assert time_blocks(arrival, np.full(200, 100.0)).n == 8
    assert time_blocks(np.linspace(0, 86400, 200), np.full(200, 1.0)).length_s == 600
    assert time_blocks(arrival, np.full(200, 1.0)).caveat is None


def test_a_log_that_is_short_beside_its_requests_says_that_its_intervals_are_too_narrow():
    found = time_blocks(np.linspace(0, 30, 300), np.full(300, 30.0))
    assert found.n == 16 and "too narrow" in str(found.caveat)


@pytest.mark.parametrize("arrival", [np.linspace(0, 9, FEWEST_REQUESTS - 1), np.zeros(100), np.empty(0)])
def test_few_requests_or_one_instant_have_no_interval(arrival):
    blocks = time_blocks(arrival, np.ones(arrival.size))
    found = mean_of(np.ones(arrival.size), blocks)
    assert found.low is found.high is None and blocks.caveat


def test_equal_values_have_an_interval_of_no_width():
    blocks = time_blocks(np.linspace(0, 100, 200), np.ones(200))
    found = ratio_of(np.full(200, 3.0), np.full(200, 2.0), blocks)
    assert found == (1.5, pytest.approx(1.5), pytest.approx(1.5))


def test_percentiles_are_nearest_rank_in_every_draw():
    """Where every block is drawn once, a draw's percentile is the log's own."""
    blocks = time_blocks(np.linspace(0, 100, 200), np.ones(200))
    blocks.drawn[0] = 1
    values = Sorted(np.random.default_rng(2).permutation(200).astype(float), blocks)
    percents = (1, 50, 95, 99.5, 100)
    for percent, drawn in zip(percents, values.draws(percents)[0], strict=True):
        assert drawn == values.at(percent) == np.ceil(2 * percent) - 1
