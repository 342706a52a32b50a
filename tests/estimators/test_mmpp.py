"""Queues under bursts: published values, the chain solved as one matrix, a simulation, and laws."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.mmpp_chain import mmpp_arrivals, mmpp_chain

from agentctl.errors import UsageError
from agentctl.estimators.lps import Lps, estimate, step_capacity
from agentctl.estimators.lps_simulation import simulate_lps
from agentctl.estimators.lps_tail import wait_quantile
from agentctl.estimators.mmpp import Mmpp2, estimate_mmpp, mmpp_wait_quantile

BATCHING = Lps(1, step_capacity(0.9, 0.1, 8), limit=8)
FIELDS = ("utilisation", "p_wait", "wait", "response", "in_system", "in_queue")
MODELS = st.builds(
    lambda step, places, limit: Lps(1, step_capacity(*step, n=places), limit),
    st.tuples(st.floats(0, 2), st.floats(0.05, 1)),
    st.integers(1, 12),
    st.none() | st.integers(1, 20),
)
LOADS = st.floats(0.05, 0.9)


def bursts(model: Lps, load: float, ratio: float, **rest: float) -> Mmpp2:
    return Mmpp2.bursty(load * model.saturation_rate, ratio, **rest)


@pytest.mark.parametrize(
    ("load", "response", "wait"), [(0.6, 1.9034893, 0.4642006), (0.8, 3.9653830, 2.3906067)]
)
def test_bursts_of_three_times_the_rate(load, response, wait):
    found = estimate_mmpp(BATCHING, bursts(BATCHING, load, 3))
    assert found.response == pytest.approx(response, rel=1e-7)
    assert found.wait == pytest.approx(wait, rel=1e-7)
    assert found.method == "exact"


def test_bursts_cost_several_times_what_poisson_says():
    for load, times in ((0.6, 9.9), (0.8, 5.9)):
        poisson = estimate(BATCHING, load * BATCHING.saturation_rate)
        assert estimate_mmpp(BATCHING, bursts(BATCHING, load, 3)).wait > times * poisson.wait


@given(MODELS, LOADS, st.floats(0.05, 0.9), st.floats(0.1, 50))
def test_equal_rates_are_poisson(model, load, high_share, correlation_s):
    arrivals = bursts(model, load, 1, high_share=high_share, correlation_s=correlation_s)
    found, poisson = estimate_mmpp(model, arrivals), estimate(model, load * model.saturation_rate)
    for name in FIELDS:
        assert getattr(found, name) == pytest.approx(getattr(poisson, name), rel=1e-7, abs=1e-12), name


@given(MODELS, LOADS, st.floats(1, 20))
def test_bursts_too_short_to_notice_are_poisson(model, load, ratio):
    found = estimate_mmpp(model, bursts(model, load, ratio, correlation_s=1e-7))
    assert found.response == pytest.approx(estimate(model, load * model.saturation_rate).response, rel=1e-4)


def test_bursts_too_long_to_end_are_two_poisson_queues():
    """States that last 1e6 s: each is a queue of its own, met by its share of the requests."""
    arrivals = bursts(BATCHING, 0.6, 1.5, correlation_s=1e6)
    low, high = (estimate(BATCHING, rate) for rate in arrivals.rates)
    expected = 0.8 * low.in_system + 0.2 * high.in_system
    assert estimate_mmpp(BATCHING, arrivals).in_system == pytest.approx(expected, rel=1e-4)


@given(MODELS, st.floats(0.05, 0.7), st.floats(1, 6), st.floats(0.1, 0.5))
@settings(max_examples=12)
def test_the_chain_solved_as_one_matrix_agrees(model, load, ratio, high_share):
    arrivals = bursts(model, load, ratio, high_share=high_share)
    p = mmpp_chain(arrivals.rates, arrivals.to_high, arrivals.to_low, model.service_rates(), most=250)
    found, n = estimate_mmpp(model, arrivals), np.arange(251)
    assert p[-1].sum() < 1e-9, "the oracle's chain is long enough"
    assert found.in_system == pytest.approx(n @ p.sum(axis=1), rel=1e-5)
    if model.limit:
        assert found.in_queue == pytest.approx(
            np.maximum(n - model.limit, 0) @ p.sum(axis=1), rel=1e-4, abs=1e-7
        )
        assert found.p_wait == pytest.approx(
            (p[model.limit :] @ arrivals.rates).sum() / arrivals.rate, rel=1e-5
        )


def test_a_simulation_waits_as_long():
    """A million requests in bursts of four times the rate."""
    arrivals = bursts(BATCHING, 0.6, 4)
    times = mmpp_arrivals(
        arrivals.rates, arrivals.to_high, arrivals.to_low, 1_000_000, np.random.default_rng(1)
    )
    wait, response = simulate_lps(BATCHING, arrivals.rate, seed=2, arrivals=times)
    found = estimate_mmpp(BATCHING, arrivals)
    assert found.wait == pytest.approx(wait.mean(), rel=0.04)
    assert found.response == pytest.approx(response.mean(), rel=0.02)
    assert found.p_wait == pytest.approx((wait > 0).mean(), rel=0.02)
    for p in (0.9, 0.99):
        assert mmpp_wait_quantile(BATCHING, arrivals, p).seconds == pytest.approx(
            np.quantile(wait, p), rel=0.05
        )


@given(MODELS, LOADS, st.floats(1, 6))
def test_little_holds_and_bursts_never_help(model, load, ratio):
    arrivals = bursts(model, load, ratio)
    found = estimate_mmpp(model, arrivals)
    assert found.in_system == pytest.approx(arrivals.rate * found.response)
    assert found.in_queue == pytest.approx(arrivals.rate * found.wait)
    assert found.in_queue >= estimate(model, arrivals.rate).in_queue * (1 - 1e-9)


@given(LOADS, st.floats(0.5, 0.999))
@settings(max_examples=20)
def test_quantiles_of_equal_rates_are_those_of_poisson(load, p):
    arrivals = bursts(BATCHING, load, 1)
    expected = wait_quantile(BATCHING, arrivals.rate, p).seconds
    assert mmpp_wait_quantile(BATCHING, arrivals, p).seconds == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_overload_has_no_numbers_even_between_bursts():
    arrivals = bursts(BATCHING, 1.01, 6)
    assert arrivals.low_rate < BATCHING.saturation_rate
    found = estimate_mmpp(BATCHING, arrivals)
    assert (found.stable, found.wait, found.response) == (False, None, None)
    assert mmpp_wait_quantile(BATCHING, arrivals, 0.9).seconds is None


def test_an_engine_idle_between_bursts_is_solved():
    arrivals = Mmpp2(0, 10, to_high=0.1, to_low=1)
    found = estimate_mmpp(BATCHING, arrivals)
    assert found.stable
    assert found.response > estimate(BATCHING, arrivals.rate).response


def test_thousands_of_residents_do_not_underflow():
    """One server each and about 1,500 residents: the empty system has a probability of e^-1500."""
    model = Lps(1, step_capacity(1, 0, 3000))
    assert estimate_mmpp(model, Mmpp2.bursty(1500, 1)).response == pytest.approx(1)
    assert math.isfinite(estimate_mmpp(model, Mmpp2.bursty(1500, 1.5)).response)


def test_what_is_assumed_is_said():
    assert estimate_mmpp(BATCHING, bursts(BATCHING, 0.5, 1.2)).caveats == ()
    other = Lps(1, BATCHING.capacity, 8, scv=4)
    assert "exponential" in estimate_mmpp(other, bursts(other, 0.5, 1.2)).caveats[0]
    assert "overload" in estimate_mmpp(BATCHING, bursts(BATCHING, 0.6, 6)).caveats[0]
    assert "saturation" in estimate_mmpp(BATCHING, bursts(BATCHING, 0.96, 1)).caveats[0]


@given(st.floats(0.1, 100), st.floats(1, 10), st.floats(0.05, 0.95), st.floats(0.1, 10))
def test_bursty_arrivals_have_the_rate_and_share_asked_for(rate, ratio, high_share, correlation_s):
    arrivals = Mmpp2.bursty(rate, ratio, high_share, correlation_s)
    assert arrivals.rate == pytest.approx(rate)
    assert arrivals.high_share == pytest.approx(high_share)
    assert arrivals.to_high + arrivals.to_low == pytest.approx(1 / correlation_s)
    assert arrivals.high_rate == pytest.approx(ratio * arrivals.low_rate)


@pytest.mark.parametrize(
    "wrong", [(2, 1, 1, 1), (-1, 1, 1, 1), (0, 0, 1, 1), (1, 2, 0, 1), (1, math.nan, 1, 1)]
)
def test_impossible_arrivals_are_refused(wrong):
    with pytest.raises(UsageError):
        Mmpp2(*wrong)


@pytest.mark.parametrize(
    "wrong", [{"ratio": 0.5}, {"high_share": 1}, {"correlation_s": 0}, {"ratio": math.nan}]
)
def test_impossible_bursts_are_refused(wrong):
    with pytest.raises(UsageError, match="no bursts"):
        Mmpp2.bursty(**{"rate": 1, "ratio": 3, **wrong})
