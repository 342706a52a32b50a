from __future__ import annotations

import numpy as np
import pytest

from agentctl.estimators.simulated_fit import Box, correlation_time, fit_simulated

RNG = np.random.default_rng(5)
SIZES = RNG.uniform(10, 1000, 200)
TRUTH = {"fixed": 0.02, "slope": 3e-4}
BOXES = {"fixed": Box(1e-4, 1.0), "slope": Box(1e-6, 1e-2)}
LOGGED = (TRUTH["fixed"] + TRUTH["slope"] * SIZES) * RNG.lognormal(0, 0.03, 200)


def errors(values):
    """Times that are a line over the size: the least errors are known without a search."""
    return [(values["fixed"] + values["slope"] * SIZES) / LOGGED - 1]


def test_the_coefficients_are_found_and_their_intervals_hold_the_truth():
    fit = fit_simulated(errors, BOXES)
    for name, true in TRUTH.items():
        low, high = fit.interval[name]
        assert fit.values[name] == pytest.approx(true, rel=0.05)
        assert low < fit.values[name] < high and low < true < high
    assert fit.noise == pytest.approx(0.03, rel=0.2)
    assert fit.unseen == []


def test_intervals_are_those_of_the_linear_model():
    """Weighted least squares has a closed form; its 90 % interval and the profile's differ by little."""
    fit = fit_simulated(errors, BOXES)
    design = np.column_stack([1 / LOGGED, SIZES / LOGGED])
    covariance = fit.noise**2 * 200 / fit.n_independent * np.linalg.inv(design.T @ design)
    for k, name in enumerate(TRUTH):
        low, high = fit.interval[name]
        assert (high - low) / 2 == pytest.approx(1.645 * np.sqrt(covariance[k, k]), rel=0.35)


def test_what_the_errors_do_not_depend_on_is_not_seen():
    fit = fit_simulated(errors, {**BOXES, "elsewhere": Box(1e-9, 1e-5)})
    assert fit.unseen == ["elsewhere"]


def test_a_prior_decides_where_the_errors_say_nothing_and_nothing_where_they_speak():
    boxes = {**BOXES, "elsewhere": Box(1e-9, 1e-5, prior=2e-7, spread=0.3)}
    boxes["slope"] = Box(1e-6, 1e-2, prior=1e-3, spread=1.0)  # three times the truth
    fit = fit_simulated(errors, boxes)
    assert fit.values["elsewhere"] == pytest.approx(2e-7, rel=0.05)
    assert fit.values["slope"] == pytest.approx(TRUTH["slope"], rel=0.1)


def test_the_same_seed_gives_the_same_numbers():
    assert fit_simulated(errors, BOXES, seed=3) == fit_simulated(errors, BOXES, seed=3)


def test_neighbours_that_err_alike_count_as_one():
    white = RNG.standard_normal(20_000)
    assert correlation_time(white) == pytest.approx(1, abs=0.2)
    alike = np.repeat(white[:2000], 10)
    assert correlation_time(alike) == pytest.approx(10, rel=0.25)
    assert correlation_time(np.zeros(5)) == 1


def jumping(values):
    """The line's errors, all of them larger by up to a fifth in steps much finer than an interval."""
    step = np.floor(values["slope"] * 1e9) + np.floor(values["fixed"] * 1e7)
    return [errors(values)[0] + 0.2 * np.modf(abs(np.sin(step)) * 1e4)[0]]


def test_a_cost_that_jumps_between_neighbours_is_called_rugged():
    assert not fit_simulated(errors, BOXES).is_rugged
    assert fit_simulated(jumping, BOXES).is_rugged
