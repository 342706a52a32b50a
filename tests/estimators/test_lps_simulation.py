"""Limited processor sharing played through: against a simulation without tricks, Ciw, and the formulas."""

import ciw
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.lps_queue import lps_queue

from agentctl.errors import UsageError
from agentctl.estimators.lps import Lps, estimate, step_capacity
from agentctl.estimators.lps_simulation import random_sizes, simulate_lps

BATCHING = step_capacity(0.9, 0.1, 8)
TIMES = st.lists(st.floats(0, 10), min_size=1, max_size=30).map(sorted)


def batch_means(values: np.ndarray) -> tuple[float, float]:
    """Mean and its standard error from 20 consecutive blocks."""
    blocks = [block.mean() for block in np.array_split(values, 20)]
    return float(values.mean()), float(np.std(blocks, ddof=1) / np.sqrt(20))


@given(TIMES, st.integers(1, 6), st.sampled_from([(1.0,), BATCHING, (1.0, 3.0, 2.0)]), st.integers(0, 99))
def test_every_request_starts_and_ends_as_advanced_one_event_at_a_time(arrivals, limit, capacity, seed):
    sizes = random_sizes(1, 1, len(arrivals), np.random.default_rng(seed))
    start, finish = lps_queue(arrivals, list(sizes), capacity, limit)
    model = Lps(1, capacity, limit)
    played = simulate_lps(model, model.saturation_rate / 2, sizes=sizes, arrivals=np.array(arrivals))
    assert played.wait == pytest.approx(np.subtract(start, arrivals), rel=1e-9, abs=1e-9)
    assert played.response == pytest.approx(np.subtract(finish, arrivals), rel=1e-9, abs=1e-9)


def test_two_requests_by_hand():
    """The second arrives when half of the first is done; both then take twice as long."""
    model = Lps(1, limit=2)
    played = simulate_lps(model, 0.5, sizes=np.array([2.0, 2.0]), arrivals=np.array([0.0, 1.0]))
    assert played.response.tolist() == [3.0, 3.0]
    played = simulate_lps(Lps(1, limit=1), 0.5, sizes=np.array([2.0, 2.0]), arrivals=np.array([0.0, 1.0]))
    assert played.wait.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("limit", [1, 3])
def test_ciw_plays_the_same_queue(limit):
    """Ciw's limited-processor-sharing node, given our arrivals and sizes in order of service."""
    random = np.random.default_rng(limit)
    gaps, sizes = random.exponential(1 / 0.8, 1500), random.exponential(1, 1500)
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential([*gaps, float("inf")])],
        service_distributions=[ciw.dists.Sequential(list(sizes))],
        number_of_servers=[limit],
    )
    simulation = ciw.Simulation(network, node_class=ciw.PSNode)
    simulation.simulate_until_max_customers(gaps.size, method="Finish")
    records = sorted(simulation.get_all_records(), key=lambda record: record.arrival_date)
    played = simulate_lps(Lps(1, limit=limit), 0.8, sizes=sizes, arrivals=np.cumsum(gaps))
    assert len(records) == gaps.size
    assert played.wait == pytest.approx([r.service_start_date - r.arrival_date for r in records], abs=1e-6)
    assert played.response == pytest.approx([r.service_end_date - r.arrival_date for r in records], abs=1e-6)


@pytest.mark.parametrize(
    ("model", "load"),
    [
        (Lps(1, limit=4), 0.8),
        (Lps(2, BATCHING, 8), 0.8),
        (Lps(1, step_capacity(1, 0, 4), 4, scv=1), 0.8),
        (Lps(1, scv=0), 0.7),
        (Lps(1, scv=4), 0.7),
        (Lps(1, BATCHING, scv=0.3), 0.7),
        (Lps(1, limit=1, scv=0), 0.8),
        (Lps(1, limit=1, scv=3), 0.7),
    ],
)
def test_where_the_formula_is_exact_the_played_queue_agrees(model, load):
    rate = load * model.saturation_rate
    played, formula = simulate_lps(model, rate, seed=3), estimate(model, rate)
    assert formula.method == "exact"
    for values, expected in ((played.response, formula.response), (played.wait, formula.wait)):
        mean, error = batch_means(values)
        assert abs(mean - expected) < 4 * error + 1e-12
        assert error < 0.03 * expected + 1e-12


@pytest.mark.parametrize(("scv", "low", "high"), [(0, -0.05, 0.05), (4, -0.03, 0.16)])
def test_where_most_requests_wait_the_approximation_is_as_good_as_stated(scv, low, high):
    """Wait within 3 % for scv <= 1, up to 12 % too high for scv 4 (plus noise of a million requests)."""
    model = Lps(1, BATCHING, 8, scv)
    rate = 0.9 * model.saturation_rate
    played, formula = simulate_lps(model, rate, 1_000_000, seed=5), estimate(model, rate)
    assert low < formula.wait / played.wait.mean() - 1 < high
    assert -0.03 < formula.response / played.response.mean() - 1 < 0.1


def test_where_few_requests_wait_the_caveat_is_true():
    """Too low for equal sizes, far too high for variable ones, and never much in absolute terms."""
    for scv, low, high in ((0, -0.25, -0.05), (4, 0.3, 0.9)):
        model = Lps(1, limit=8, scv=scv)
        played, formula = simulate_lps(model, 0.7, 1_000_000, seed=6), estimate(model, 0.7)
        assert "few requests wait" in formula.caveats[0]
        assert low < formula.wait / played.wait.mean() - 1 < high


@pytest.mark.parametrize("scv", [0, 0.25, 1, 4])
def test_random_sizes_have_the_mean_and_variation_asked_for(scv):
    sizes = random_sizes(3, scv, 400_000, np.random.default_rng(1))
    assert sizes.mean() == pytest.approx(3, rel=0.02)
    assert sizes.var() / sizes.mean() ** 2 == pytest.approx(scv, rel=0.03, abs=1e-12)


def test_the_same_seed_plays_the_same_queue():
    one, two, other = (simulate_lps(Lps(1, limit=2), 0.5, 1000, seed).response for seed in (1, 1, 2))
    assert (one == two).all()
    assert (one != other).any()


def test_an_overloaded_queue_is_not_played():
    with pytest.raises(UsageError, match="rate: is 1 per second"):
        simulate_lps(Lps(1, limit=2), 1.0)
