"""What is left of an answer: laws of lengths whose remainder is known."""

from __future__ import annotations

import numpy as np
import pytest

from agentctl.estimators.remaining_length import FEWEST_IN_CELL, remaining_of


def test_exponential_lengths_have_no_memory():
    """The median of what is left is ln 2 of the mean, whatever was emitted and predicted."""
    rng = np.random.default_rng(0)
    table = remaining_of(rng.uniform(50, 500, 40_000), rng.exponential(300.0, 40_000))
    enough = table.count >= 400
    error = 300.0 / np.sqrt(np.where(enough, table.count, np.inf))  # of a median of exponentials
    assert enough.sum() > 60
    assert (np.abs(table.arrays.tokens - 300 * np.log(2))[enough] < 4 * error[enough]).all()


def test_of_lengths_without_spread_the_rest_is_left():
    table = remaining_of(np.full(500, 90.0), np.full(500, 400.0))
    emitted = np.arange(0.0, 360.0)
    assert table.median(90.0, emitted) == pytest.approx(400 - emitted)
    assert table.arrays.tokens.shape[0] == 1  # one prediction, one row


def test_a_longer_prediction_has_its_own_row():
    predicted = np.repeat([50.0, 500.0], 200)
    tokens = np.repeat([64.0, 1024.0], 200)
    table = remaining_of(predicted, tokens)
    assert table.median(np.array([40.0, 50.0, 500.0, 900.0]), 32.0).tolist() == [32, 32, 992, 992]


def test_half_of_the_answers_that_get_so_far_end_before_the_table_says():
    rng = np.random.default_rng(1)
    predicted = rng.uniform(20, 200, 4000)
    tokens = np.ceil(predicted * rng.lognormal(0, 0.8, 4000))
    table = remaining_of(predicted, tokens)
    for row in range(table.arrays.predicted.size):
        mine = np.searchsorted(table.arrays.predicted, predicted, side="right") - 1 == row
        for column, gone in enumerate(table.arrays.emitted):
            left = tokens[mine & (tokens > gone)] - gone
            assert table.count[row, column] == left.size
            if left.size >= FEWEST_IN_CELL:
                told = table.arrays.tokens[row, column]
                assert (left < told).mean() <= 0.5 <= (left <= told).mean()


def test_beyond_what_was_seen_the_last_known_rest_stays_and_there_is_always_a_token_left():
    tokens = np.concatenate((np.full(100, 10.0), np.full(FEWEST_IN_CELL - 1, 5000.0)))
    table = remaining_of(np.full(tokens.size, 10.0), tokens)
    assert table.median(10.0, np.array([8.0, 1e9])).tolist() == [2.0, 2.0]
    assert (table.arrays.tokens >= 1).all() and np.isfinite(table.arrays.tokens).all()
    assert remaining_of(np.ones(3), np.ones(3)).median(1.0, 1.0) == 1.0


def test_plain_arrays_are_ascending_and_start_at_zero():
    rng = np.random.default_rng(2)
    predicted, emitted, tokens = remaining_of(rng.uniform(1, 99, 900), rng.uniform(1, 999, 900)).arrays
    for edges in (predicted, emitted):
        assert edges[0] == 0 and (np.diff(edges) > 0).all() and edges.dtype == np.float64
    assert tokens.shape == (predicted.size, emitted.size)
