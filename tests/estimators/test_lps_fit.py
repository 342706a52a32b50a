"""Queues from request logs: exact sharing is recovered, batching within its intervals, a real run too."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from oracles.continuous_batching import Steps, continuous_batching

from agentctl.errors import ConfigError, InputError, UsageError
from agentctl.estimators.lps import Lps, estimate, step_capacity
from agentctl.estimators.lps_fit import LpsFit, fit_lps
from agentctl.estimators.lps_history import histories
from agentctl.estimators.lps_simulation import simulate_lps
from agentctl.estimators.lps_table import lps_table, parse_lps

DATA = Path(__file__).parents[1] / "data" / "lps"
FIXED, DECODE, PREFILL, OUTPUT = 7e-3, 1.5e-4, 5e-3, 100
EACH = DECODE + PREFILL / OUTPUT
TRUTH = Lps(OUTPUT, step_capacity(FIXED, DECODE, 512), None)


def shared(limit: int | None, n: int = 800, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A log of exact processor sharing at about 60 % load: arrivals, end-to-end times, outputs."""
    random = np.random.default_rng(seed)
    model = Lps(OUTPUT, TRUTH.capacity, limit)
    rate = 0.6 * model.saturation_rate
    arrivals, outputs = (
        np.cumsum(random.exponential(1 / rate, n)),
        random.geometric(1 / OUTPUT, n).astype(float),
    )
    return arrivals, simulate_lps(model, rate, sizes=outputs, arrivals=arrivals).response, outputs


def batched(seed: int, n: int = 1500) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A log of continuous batching at 62 % load: the same, and the tokens of each prefill."""
    random = np.random.default_rng(seed)
    arrivals, outputs = np.cumsum(random.exponential(1 / 25, n)), random.geometric(1 / OUTPUT, n)
    prefill = random.gamma(2, 0.5, n)
    steps = Steps(FIXED, DECODE, (PREFILL * prefill).tolist())
    _, _, finish = continuous_batching(arrivals.tolist(), outputs.tolist(), steps)
    return arrivals, finish - arrivals, outputs, 1000 * prefill


@pytest.fixture(scope="module")
def run() -> pl.DataFrame:
    """300 requests that a real engine with 128 places served."""
    return pl.read_csv(DATA / "llama_run.csv.gz")


def fit_run(run: pl.DataFrame, limit: int | None) -> LpsFit:
    queued, finished, output = (run[c].to_numpy() for c in ("queued_s", "finished_s", "output_tokens"))
    return fit_lps(
        queued, finished - queued, output, prefill_tokens=run["prompt_tokens"].to_numpy(), limit=limit
    )


@pytest.mark.parametrize("limit", [None, 32])
def test_exact_sharing_is_recovered(limit):
    """Without prefill each request's service is fixed * output + each * output * n to the last bits."""
    found = fit_lps(*shared(limit), limit=limit)
    assert found.fixed_s.value == pytest.approx(FIXED, rel=1e-3)
    assert found.each_s.value == pytest.approx(DECODE, rel=3e-3)
    assert found.mape < 1e-3
    assert found.limit == limit
    assert found.peak <= (limit or 512)


def test_starts_in_service_are_those_of_the_queue():
    arrivals, response, outputs = shared(8)
    seen = histories(arrivals, response, outputs, None, None, 8)
    model = Lps(OUTPUT, TRUTH.capacity, 8)
    wait = simulate_lps(model, 0.6 * model.saturation_rate, sizes=outputs, arrivals=arrivals).wait
    assert seen.engines[0].start - arrivals == pytest.approx(wait, abs=1e-9)
    assert (wait > 0).any()


def test_continuous_batching_is_recovered_within_its_intervals():
    """Of 40 such logs the 95 % intervals held the truth in 40, 37 and 37; ten must do in eight."""
    held = np.zeros(3)
    for seed in range(10):
        *log, prefill = batched(seed)
        found = fit_lps(*log, prefill_tokens=prefill)
        parts = ((found.fixed_s, FIXED), (found.each_s, EACH), (found.scv, 1 - 1 / OUTPUT))
        held += [part.low <= truth <= part.high for part, truth in parts]
        assert found.fixed_s.value == pytest.approx(FIXED, rel=0.03)
        assert found.each_s.value == pytest.approx(EACH, rel=0.05)
    assert held.min() >= 8


def test_a_fitted_queue_responds_as_its_log():
    arrivals, e2e, outputs, prefill = batched(3, n=6000)
    found = fit_lps(arrivals, e2e, outputs, prefill_tokens=prefill)
    assert estimate(found.model(), found.rate_per_s).response == pytest.approx(e2e.mean(), rel=0.08)
    assert found.rate_per_s == pytest.approx(25, rel=0.05)


def test_a_real_run_is_told_from_arrivals_and_ends(run):
    """Waits of 7 s on average are found to 10 ms, times in service of unseen blocks to 1.5 %."""
    found = fit_run(run, limit=128)
    assert found.mape < 0.015
    assert found.peak == 128
    assert 0.012 < found.fixed_s.value < 0.016
    seen = histories(
        run["queued_s"], run["finished_s"] - run["queued_s"], run["output_tokens"], None, None, 128
    )
    order = np.argsort(run["queued_s"].to_numpy())
    assert np.abs(seen.engines[0].start - run["scheduled_s"].to_numpy()[order]).mean() < 0.01


def test_a_limit_that_is_not_given_is_said_to_be_missing(run):
    found = fit_run(run, limit=None)
    assert found.mape > 0.1
    assert any("no limit was given" in caveat for caveat in found.caveats)
    assert any("not known to 50 %" in caveat for caveat in found.caveats)


def test_two_engines_are_one_queue_each():
    """The same log on two engines at once, shuffled together, gives what one gave."""
    log = shared(None)
    one = fit_lps(*log)
    order = np.random.default_rng(1).permutation(2 * log[0].size)
    arrivals, response, outputs = (np.concatenate((part, part))[order] for part in log)
    labels = np.repeat(["a", "b"], log[0].size)[order]
    two = fit_lps(arrivals, response, outputs, engine=labels)
    assert two.fixed_s.value == pytest.approx(one.fixed_s.value, rel=1e-4)
    assert two.peak == one.peak
    assert two.rate_per_s == pytest.approx(one.rate_per_s, rel=1e-2)


@pytest.mark.parametrize("unit", [0.01, 60])
def test_slower_clocks_give_slower_steps(unit):
    arrivals, response, outputs = shared(None, n=100)
    one, other = fit_lps(arrivals, response, outputs), fit_lps(unit * arrivals, unit * response, outputs)
    assert other.fixed_s.value == pytest.approx(unit * one.fixed_s.value, rel=1e-4)
    assert other.scv == one.scv


def test_bursts_are_noticed():
    arrivals, response, outputs = shared(None, n=4000)
    calm = fit_lps(arrivals, response, outputs)
    assert calm.dispersion == pytest.approx(1, abs=0.4)
    assert not any("Poisson" in caveat for caveat in calm.caveats)
    gathered = np.repeat(10 * arrivals[:400], 10)
    played = simulate_lps(TRUTH, 1, sizes=outputs, arrivals=gathered).response
    assert any("Poisson" in caveat for caveat in fit_lps(gathered, played, outputs).caveats)


def test_requests_without_an_end_or_an_output_are_counted():
    arrivals, response, outputs = shared(None)
    response[3], outputs[5] = np.nan, 0
    found = fit_lps(arrivals, response, outputs)
    assert (found.rows, found.dropped) == (arrivals.size - 2, 2)


def test_a_limit_below_what_was_served_is_contradicted():
    with pytest.raises(InputError, match="end before a limit of 2"):
        fit_lps(*shared(None), limit=2)


def test_a_log_that_is_always_as_busy_cannot_be_split():
    n = 200
    with pytest.raises(InputError, match="hardly varies"):
        fit_lps(np.arange(n) * 10.0, np.full(n, 2.0), np.full(n, 100))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, e, o: (a[:49], e[:49], o[:49]), "49 usable requests"),
        (lambda a, e, o: (a, -e, o), "e2e_s: is negative 800 times"),
        (lambda a, e, o: (a, 0 * e, o), "e2e_s: is 0 800 times"),
        (lambda a, e, o: (a, e, -o), "output_tokens: is negative"),
        (lambda a, e, o: (a, e[:9], o), "e2e_s: has the shape"),
        (lambda a, e, o: (a, e * np.nan, o), "no request has"),
    ],
)
def test_logs_that_cannot_be_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        fit_lps(*change(*shared(None)))


def test_engines_and_limits_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="3 engines for 800 requests"):
        fit_lps(*shared(None), engine=np.arange(3))
    with pytest.raises(UsageError, match="limit: is 0"):
        fit_lps(*shared(None), limit=0)


@pytest.mark.parametrize("limit", [None, 128])
def test_the_table_of_a_profile_gives_the_same_queue(run, limit):
    fit = fit_run(run, limit)
    table = lps_table(fit)
    assert parse_lps(table, "p.toml: [lps]").model() == fit.model()
    assert table["fit"]["fixed_s_interval"] == [fit.fixed_s.low, fit.fixed_s.high]
    assert None not in [*table.values(), *table["fit"].values()]


def test_a_table_with_impossible_values_names_the_key():
    with pytest.raises(ConfigError, match=r"p.toml: \[lps\] each_s"):
        parse_lps({"fixed_s": 1.0, "each_s": -1.0, "output_tokens": 10}, "p.toml: [lps]")
    with pytest.raises(ConfigError, match="unknown key"):
        parse_lps({"fixed_s": 1.0, "each_s": 1.0, "output_tokens": 10, "k": 3}, "p.toml: [lps]")
