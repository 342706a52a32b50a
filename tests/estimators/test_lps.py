"""Limited processor sharing against textbook values, limits that have a name, and laws."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl.errors import UsageError
from agentctl.estimators.lps import Lps, constant_capacity, estimate, step_capacity

LIMITS = st.integers(1, 40)
LOADS = st.floats(0.05, 0.97)
SCVS = st.floats(0, 6)
CURVES = st.tuples(st.floats(0, 5), st.floats(0.01, 2)).map(lambda step: step_capacity(*step, n=64))


def linear(servers: int) -> tuple[float, ...]:
    """One server for each request in service."""
    return step_capacity(1, 0, servers)


@pytest.mark.parametrize(("rho", "response"), [(0.7, 3.333333), (0.9, 10)])
def test_one_at_a_time_is_m_m_1(rho, response):
    assert estimate(Lps(1, limit=1), rho).response == pytest.approx(response, rel=1e-6)


@pytest.mark.parametrize(
    ("rho", "limit", "wait"),
    [
        (0.7, 1, 2.333333), (0.7, 4, 0.800333), (0.7, 16, 0.011077644),
        (0.9, 1, 9), (0.9, 4, 6.561), (0.9, 16, 1.853020189),
    ],
)  # fmt: skip
def test_the_wait_falls_with_the_limit_as_published(rho, limit, wait):
    assert estimate(Lps(1, limit=limit), rho).wait == pytest.approx(wait, rel=5e-7)


@pytest.mark.parametrize(("rho", "response"), [(0.7, 2.166667), (0.9, 5.5)])
def test_equal_sizes_one_at_a_time_are_m_d_1(rho, response):
    found = estimate(Lps(1, limit=1, scv=0), rho)
    assert found.response == pytest.approx(response, rel=1e-6)
    assert found.method == "exact"


def test_two_servers_are_erlangs_queue():
    found = estimate(Lps(1, linear(2), limit=2), 1.5)
    assert found.p_wait == pytest.approx(0.6428571, rel=1e-6)
    assert found.wait == pytest.approx(1.2857143, rel=1e-6)
    assert found.response == pytest.approx(2.2857143, rel=1e-6)


def test_ten_servers_wait_as_erlang_c_says():
    found = estimate(Lps(1, linear(10), limit=10), 8)
    assert found.p_wait == pytest.approx(0.40918015, rel=1e-7)
    assert found.wait == pytest.approx(0.20459008, rel=1e-7)


@pytest.mark.parametrize(
    ("load", "response", "wait", "p_wait"),
    [
        (0.6, 1.427897, 0.0467048, 0.0879150),
        (0.8, 1.945814, 0.4028479, 0.3791509),
        (0.95, 5.107112, 3.4452061, 0.8106367),
    ],
)
def test_a_batching_engine_with_eight_places(load, response, wait, p_wait):
    model = Lps(1, step_capacity(0.9, 0.1, 8), limit=8)
    found = estimate(model, load * model.saturation_rate)
    assert found.response == pytest.approx(response, rel=1e-6)
    assert found.wait == pytest.approx(wait, rel=1e-6)
    assert found.p_wait == pytest.approx(p_wait, rel=1e-6)


@given(SCVS)
def test_without_a_limit_sizes_do_not_matter(scv):
    """Residents are negative binomial: response = size * (fixed + each) / (1 - rate * size * each) = 5."""
    found = estimate(Lps(1, step_capacity(0.9, 0.1, 2000), scv=scv), 8)
    assert found.response == pytest.approx(5, rel=1e-9)
    assert (found.wait, found.p_wait, found.method) == (0, 0, "exact")


@given(LOADS, LIMITS, SCVS)
def test_birth_and_death_agree_with_the_closed_form_of_constant_capacity(rho, limit, scv):
    found, closed = estimate(Lps(2, (1,), limit, scv), rho / 2), constant_capacity(rho / 2, 2, limit, scv)
    for name in ("utilisation", "p_wait", "wait", "response", "in_system", "in_queue"):
        assert getattr(found, name) == pytest.approx(getattr(closed, name), rel=1e-9), name
    assert (found.method, found.caveats) == (closed.method, closed.caveats)


@given(LOADS, SCVS)
def test_constant_capacity_without_a_limit_is_processor_sharing(rho, scv):
    assert constant_capacity(rho, 1, None, scv).response == pytest.approx(1 / (1 - rho))
    assert estimate(Lps(1, scv=scv), rho).response == pytest.approx(1 / (1 - rho))


@given(CURVES, LOADS, LIMITS, SCVS)
def test_little_holds(curve, load, limit, scv):
    model = Lps(3, curve, limit, scv)
    rate = load * model.saturation_rate
    found = estimate(model, rate)
    assert found.in_system == pytest.approx(rate * found.response)
    assert found.in_queue == pytest.approx(rate * found.wait)
    assert found.response > found.wait >= 0


@given(CURVES, LOADS, LIMITS, SCVS)
def test_the_wait_falls_with_the_limit(curve, load, limit, scv):
    """At one rate that both limits can carry: capacity grows with the number in service."""
    rate = load * Lps(1, curve, limit).saturation_rate
    narrow, wide = (estimate(Lps(1, curve, k, scv), rate) for k in (limit, limit + 1))
    assert wide.wait <= narrow.wait * (1 + 1e-9)


@given(LOADS, LIMITS, SCVS)
def test_more_sharing_of_a_constant_server_helps_only_if_sizes_vary_much(rho, limit, scv):
    narrow, wide = (estimate(Lps(1, (1,), k, scv), rho).response for k in (limit, limit + 1))
    assert wide <= narrow * (1 + 1e-9) if scv > 1 else wide >= narrow * (1 - 1e-9)


@given(CURVES, LOADS, LIMITS, SCVS, st.floats(0.01, 100))
def test_units_of_work_do_not_matter(curve, load, limit, scv, unit):
    model = Lps(1, curve, limit, scv)
    same = Lps(unit, tuple(unit * speed for speed in curve), limit, scv)
    rate = load * model.saturation_rate
    assert estimate(same, rate).response == pytest.approx(estimate(model, rate).response)


@given(CURVES, LIMITS, st.floats(1, 50))
def test_overload_has_no_numbers(curve, limit, excess):
    model = Lps(1, curve, limit)
    found = estimate(model, model.saturation_rate * excess)
    assert not found.stable
    assert (found.wait, found.response, found.p_wait, found.in_system) == (None,) * 4
    assert found.caveats


def test_a_limit_below_saturation_is_unstable_though_the_engine_could_do_more():
    """Eight places carry 4.7/s; the engine without a limit would carry 10/s."""
    curve = step_capacity(0.9, 0.1, 2000)
    assert not estimate(Lps(1, curve, limit=8), 6).stable
    assert estimate(Lps(1, curve), 6).stable


def test_regimes_where_the_formula_is_poor_say_so():
    assert estimate(Lps(1, limit=16, scv=1), 0.7).caveats == ()
    assert "few requests wait" in estimate(Lps(1, limit=16, scv=4), 0.7).caveats[0]
    assert "vary more" in estimate(Lps(1, limit=4, scv=4), 0.9).caveats[0]
    assert "never compared" in estimate(Lps(1, limit=4, scv=9), 0.9).caveats[1]
    assert "saturation" in estimate(Lps(1, limit=4), 0.97).caveats[0]
    assert estimate(Lps(1, scv=9), 0.5).caveats == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 0}, {"size": math.nan}, {"scv": -1}, {"scv": math.inf}, {"limit": 0}, {"capacity": ()},
        {"capacity": (1, 0)}, {"capacity": (1, math.nan)},
    ],
)  # fmt: skip
def test_impossible_engines_are_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Lps(**{"size": 1, **wrong})


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf])
def test_impossible_rates_are_refused(rate):
    with pytest.raises(UsageError, match="rate"):
        estimate(Lps(1), rate)
