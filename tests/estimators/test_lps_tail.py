"""Quantiles of limited processor sharing: exponential tails by hand, simulations for the rest."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentctl.errors import UsageError
from agentctl.estimators.lps import Lps, estimate, step_capacity
from agentctl.estimators.lps_simulation import simulate_lps
from agentctl.estimators.lps_tail import ResponseTail, response_quantile, wait_quantile

BATCHING = step_capacity(0.9, 0.1, 8)


@given(st.floats(0.1, 0.95), st.floats(0.02, 0.999))
@settings(max_examples=20)
def test_one_at_a_time_responds_with_an_exponential_tail(rho, p):
    """M/M/1: response > t with probability exp(-(1 - rho) t)."""
    found = response_quantile(Lps(1, limit=1), rho, p)
    assert found.seconds == pytest.approx(-math.log(1 - p) / (1 - rho), rel=1e-5)
    assert found.method == "exact"


@given(st.floats(0.1, 0.95), st.floats(0.02, 0.999))
def test_one_at_a_time_waits_with_an_exponential_tail(rho, p):
    """M/M/1: wait > t with probability rho exp(-(1 - rho) t)."""
    expected = max(0, math.log(rho / (1 - p)) / (1 - rho))
    assert wait_quantile(Lps(1, limit=1), rho, p).seconds == pytest.approx(expected)


def test_servers_for_all_respond_with_the_size_alone():
    """Nobody shares or waits: the response is the exponential size."""
    tail = ResponseTail(Lps(2, step_capacity(1, 0, 100)), 1.0)
    for t in (0.5, 2, 8):
        assert tail(t) == pytest.approx(math.exp(-t / 2), rel=1e-6)


@pytest.mark.parametrize(
    ("model", "load"),
    [(Lps(1, limit=4), 0.8), (Lps(3, BATCHING, 8), 0.8), (Lps(1), 0.6), (Lps(1, BATCHING), 0.7)],
)
def test_the_transform_starts_with_the_mean_of_the_response(model, load):
    """E[exp(-s T)] = 1 - s E[T] + ... near s = 0."""
    rate = load * model.saturation_rate
    slope = (1 - ResponseTail(model, rate).transform(1e-6)).real / 1e-6
    assert slope == pytest.approx(estimate(model, rate).response, rel=1e-4)


@pytest.mark.parametrize(
    ("model", "load"),
    [(Lps(1, limit=4), 0.8), (Lps(3, BATCHING, 8), 0.8), (Lps(1), 0.6), (Lps(1, BATCHING), 0.7)],
)
def test_quantiles_are_those_of_a_simulation(model, load):
    rate = load * model.saturation_rate
    played = simulate_lps(model, rate, 1_000_000, seed=2)
    for p in (0.5, 0.95, 0.99):
        assert response_quantile(model, rate, p).seconds == pytest.approx(
            np.quantile(played.response, p), rel=0.03
        )
        assert wait_quantile(model, rate, p).seconds == pytest.approx(np.quantile(played.wait, p), rel=0.05)


@pytest.mark.parametrize(("scv", "within"), [(0, 0.08), (0.5, 0.08), (4, 0.15)])
def test_waits_of_other_sizes_are_as_near_as_stated(scv, within):
    """5 % for scv <= 1 and 12 % for scv 4 at 90 % load, and the noise of a million requests."""
    model = Lps(1, BATCHING, 8, scv)
    rate = 0.9 * model.saturation_rate
    wait = simulate_lps(model, rate, 1_000_000, seed=4).wait
    for p in (0.95, 0.99):
        found = wait_quantile(model, rate, p)
        assert found.seconds == pytest.approx(np.quantile(wait, p), rel=within)
        assert found.method == "approximate"


def test_responses_of_other_sizes_are_simulated_with_their_error():
    """Equal sizes one at a time (M/D/1): the response is the wait and one size."""
    found = response_quantile(Lps(1, limit=1, scv=0), 0.5, 0.95)
    assert found.method == "simulated"
    assert 0 < found.error_s < 0.1
    assert found.seconds == pytest.approx(1 + m_d_1_wait_quantile(0.5, 0.95), abs=2 * found.error_s)


def m_d_1_wait_quantile(rho: float, p: float) -> float:
    """Erlang 1909: P(wait <= t) = (1 - rho) sum_j (rho (j - t))^j / j! exp(-rho (j - t)), j = 0..floor(t)."""

    def share(t: float) -> float:
        terms = (
            (rho * (j - t)) ** j / math.factorial(j) * math.exp(-rho * (j - t))
            for j in range(math.floor(t) + 1)
        )
        return (1 - rho) * sum(terms)

    return next(t for t in np.arange(0, 20, 0.001) if share(t) >= p)


def test_quantiles_of_an_overloaded_queue_are_unknown():
    for quantile in (wait_quantile, response_quantile):
        found = quantile(Lps(1, limit=2), 1.5, 0.9)
        assert (found.seconds, found.method) == (None, "unstable")


def test_a_quantile_too_near_to_saturation_is_left_out():
    found = response_quantile(Lps(1), 1 - 1e-6, 0.9)
    assert found.seconds is None
    assert "too close" in found.caveats[0]


def test_those_who_find_a_place_do_not_wait():
    model = Lps(1, limit=4)
    assert wait_quantile(model, 0.7, 0.5).seconds == 0
    assert wait_quantile(Lps(1), 0.7, 0.999).seconds == 0


@pytest.mark.parametrize("p", [0, 1, 95, math.nan])
def test_a_share_is_between_none_and_all(p):
    with pytest.raises(UsageError, match="share"):
        wait_quantile(Lps(1), 0.5, p)
