"""Laws of the arrival processes: rate, dispersion, spacing, and what stays the same when what changes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from agentctl.errors import UsageError
from agentctl.estimators.lps import Lps
from agentctl.estimators.mmpp import Mmpp2, estimate_mmpp
from agentctl.workload.process import Process, parse_process, parse_rate, uniform

POISSON, CLOCK = Process("poisson", 6.0), Process("deterministic", 6.0)
BURSTY = Process("mmpp", 6.0, ratio=4.0)
PROCESSES = (POISSON, CLOCK, BURSTY, Process("mmpp", 6.0, ratio=3.0, high_share=0.1, correlation_s=0.5))
SEEDS = range(40)


def counts(process, window_s, n_windows, seed):
    """Starts in windows from time 0 on; enough are drawn to fill the last."""
    span = window_s * n_windows
    starts = process.starts(int(2 * process.per_s * span) + 100, seed)
    assert starts[-1] > span
    return np.bincount((starts[starts < span] // window_s).astype(int), minlength=n_windows)


def mean_and_error(values):
    values = np.asarray(values, np.float64)
    return values.mean(), values.std(ddof=1) / np.sqrt(values.size)


@pytest.mark.parametrize("process", PROCESSES)
def test_the_mean_rate_is_the_rate_from_the_first_second_on(process):
    """An MMPP that did not begin in its stationary state would be off at first."""
    first = [counts(process, 1.0, 1, seed)[0] for seed in range(2_000)]
    later = [counts(process, 200.0, 1, seed)[0] / 200.0 for seed in SEEDS]
    for found, error in map(mean_and_error, (first, later)):
        assert found == pytest.approx(process.per_s, abs=4 * error + 1e-9)


@pytest.mark.parametrize("window_s", [1.0, 10.0])
@pytest.mark.parametrize("process", [POISSON, BURSTY, PROCESSES[3]])
def test_the_index_of_dispersion_of_counts_is_that_of_the_formula(process, window_s):
    """The variance about the known mean, by seed: the seeds give its error."""
    mean = process.per_s * window_s
    found, error = mean_and_error(
        [np.mean((counts(process, window_s, 300, seed) - mean) ** 2) / mean for seed in SEEDS]
    )
    assert error < 0.06 * found
    assert found == pytest.approx(process.dispersion(window_s), abs=4 * error)


def test_dispersion_is_one_for_poisson_above_for_bursts_and_none_for_a_clock():
    assert POISSON.dispersion() == POISSON.dispersion(3.0) == 1.0
    assert CLOCK.dispersion() == 0.0
    # 3.75/s, and 15/s for a fifth of the time: variance of the rate 20.25, so 1 + 2 x 20.25 x 2 / 6.
    assert BURSTY.dispersion() == pytest.approx(14.5)
    assert BURSTY.dispersion(1e-6) == pytest.approx(1.0, abs=1e-4)
    assert Process("mmpp", 6.0, ratio=1.0).dispersion() == 1.0


def interval_scv(bursts: Mmpp2) -> float:
    """Squared coefficient of variation between arrivals, by the phase-type law of the interval."""
    rates = bursts.rates
    at_arrival = np.array([1 - bursts.high_share, bursts.high_share]) * rates / bursts.rate
    step = np.linalg.inv(-bursts.no_arrival)
    mean, square = at_arrival @ step @ np.ones(2), 2 * at_arrival @ step @ step @ np.ones(2)
    return square / mean**2 - 1


@pytest.mark.parametrize("process", [BURSTY, PROCESSES[3]])
def test_the_variation_between_starts_is_that_of_the_mmpp(process):
    found, error = mean_and_error(
        [
            np.var(between) / np.mean(between) ** 2
            for between in (np.diff(process.starts(20_000, s)) for s in SEEDS)
        ]
    )
    assert error < 0.03 * found
    assert found == pytest.approx(interval_scv(process.bursts), abs=4 * error)
    assert found > 1.2


@pytest.mark.parametrize("seed", [0, 1, 2**70])
def test_poisson_intervals_are_exponential_and_do_not_know_of_each_other(seed):
    between = np.diff(POISSON.starts(20_000, seed), prepend=0.0)
    assert kstest(between * 6.0, "expon").pvalue > 1e-3
    assert abs(np.corrcoef(between[1:], between[:-1])[0, 1]) < 4 / np.sqrt(20_000)


def test_a_queue_waits_under_generated_bursts_as_the_exact_solution_says():
    """One server, exponential work, load 0.6, ratio 3: Lindley's recursion on generated arrivals."""
    process, work_s = Process("mmpp", 0.6, ratio=3.0), 1.0
    n, waits = 40_000, []
    for seed in SEEDS:
        starts = process.starts(n, seed)
        work = np.random.default_rng(seed).exponential(work_s, n)
        ahead = np.concatenate([[0.0], np.cumsum(work[:-1] - np.diff(starts))])
        waits.append(np.mean((ahead - np.minimum.accumulate(ahead))[1_000:]))
    found, error = mean_and_error(waits)
    model = Lps(work_s, limit=1)
    assert found == pytest.approx(estimate_mmpp(model, process.bursts).wait, abs=4 * error)
    assert error < 0.03 * found


@pytest.mark.parametrize("seed", [0, 9])
def test_a_ratio_of_one_is_poisson_start_by_start(seed):
    even = Process("mmpp", 6.0, ratio=1.0)
    assert even.starts(5_000, seed) == pytest.approx(POISSON.starts(5_000, seed), rel=1e-12)


def test_a_clock_does_not_drift():
    starts = Process("deterministic", 7.0).starts(1_000_001, 3)
    assert starts[0] == 0.0 and starts[1_000_000] == 1_000_000 / 7.0
    assert np.ptp(np.diff(starts)) < 1e-9


@pytest.mark.parametrize("process", PROCESSES)
def test_the_first_starts_are_the_same_however_many_follow(process):
    for seed in (0, 4):
        assert np.array_equal(process.starts(100, seed), process.starts(30_000, seed)[:100])


@pytest.mark.parametrize("process", [POISSON, BURSTY])
def test_a_seed_is_one_process_and_another_seed_another(process):
    assert np.array_equal(process.starts(500, 3), process.starts(500, 3))
    one, other = (np.diff(process.starts(20_000, seed)) for seed in (3, 4))
    assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(20_000)


def test_starts_are_in_order_and_after_time_zero():
    for process in PROCESSES:
        starts = process.starts(10_000, 1)
        assert starts[0] >= 0 and (np.diff(starts) >= 0).all()


@pytest.mark.parametrize("load", [0.25, 2.0, 3.0])
def test_at_another_rate_the_same_draws_are_stretched(load):
    assert POISSON.scaled(load).starts(900, 5) == pytest.approx(POISSON.starts(900, 5) / load, rel=1e-12)


@pytest.mark.parametrize("load", [2.0, 5.0])
def test_at_another_rate_bursts_are_where_they_were(load):
    """So many starts as at rate 1 come `load` times as often in every state of the rate: within the time in
    which n came, load x n come."""
    n = 2_000
    base, more = BURSTY.starts(n, 6), BURSTY.scaled(load).starts(int(load * n), 6)
    assert BURSTY.scaled(load).bursts.to_high == BURSTY.bursts.to_high
    tens = np.arange(0, base[-100], 10.0)
    slow, fast = (np.histogram(starts, tens)[0] for starts in (base, more))
    assert np.corrcoef(slow, fast)[0, 1] > 0.7  # Poisson noise apart: independent bursts would have 0


def test_uniform_numbers_are_uniform_and_purposes_differ():
    for seed in (0, 1, 2**64 - 1):
        assert kstest(uniform(seed, 0, 20_000), "uniform").pvalue > 1e-3
        assert not np.isin(uniform(seed, 0, 1_000), uniform(seed, 1, 1_000)).any()


def test_rates_are_read_with_their_unit():
    assert parse_rate("6/s") == parse_rate("360/min") == parse_rate("21600 / h") == 6.0


def test_a_process_is_read_from_the_command_line():
    assert parse_process(None, None, None) is None
    assert parse_process("poisson", "6/s", None) == Process("poisson", 6.0)
    found = parse_process("mmpp:ratio=3,high_share=0.1,correlation_s=5,order=shuffled", None, "requests")
    assert found == Process("mmpp", None, "requests", "shuffled", 3.0, 0.1, 5.0)


@pytest.mark.parametrize(
    ("arguments", "place", "words"),
    [
        ((None, "6/s", None), "--rate", "not without --arrivals"),
        ((None, None, "requests"), "--arrivals-of", "not without --arrivals"),
        (("pois", None, None), "--arrivals", "poisson or deterministic or mmpp"),
        (("poisson:ratio=3", None, None), "--arrivals", "poisson has no 'ratio'"),
        (("mmpp:ration=3", None, None), "--arrivals", "ratio, high_share, correlation_s"),
        (("mmpp:ratio=x", None, None), "--arrivals ratio", "a number"),
        (("mmpp:ratio=3,ratio=4", None, None), "--arrivals", "twice"),
        (("mmpp:ratio=0.5", None, None), "--arrivals ratio", "1 to 1e+06"),
        (("mmpp:high_share=1", None, None), "--arrivals high_share", "between 0 and 1"),
        (("mmpp:high_share=nan", None, None), "--arrivals high_share", "between 0 and 1"),
        (("mmpp:correlation_s=0", None, None), "--arrivals correlation_s", "above 0"),
        (("poisson:order=up", None, None), "--arrivals order", "trace or shuffled"),
        (("poisson", "6", None), "--rate", "360/min"),
        (("poisson", "6/week", None), "--rate", "360/min"),
        (("poisson", "six/s", None), "--rate", "a number"),
        (("poisson", "0/s", None), "--rate", "1e-06 to 1e+06"),
        (("poisson", "nan/s", None), "--rate", "1e-06 to 1e+06"),
        (("poisson", "6/s", "turns"), "--arrivals-of", "sessions or requests"),
    ],
)
def test_what_makes_no_process_is_refused_with_its_place(arguments, place, words):
    with pytest.raises(UsageError) as caught:
        parse_process(*arguments)
    assert caught.value.place == place
    assert words in str(caught.value)


def test_bursts_too_short_to_be_any_are_refused():
    with pytest.raises(UsageError, match="switches more than"):
        Process("mmpp", 1.0, correlation_s=1e-7).starts(1_000, 0)


def test_words_and_facts_say_what_the_process_is():
    assert POISSON.words() == "Poisson arrivals of 6 sessions/s"
    assert "3.75/s, and 15/s for 20 % of the time" in BURSTY.words()
    assert "random order" in Process("poisson", 1.0, order="shuffled").words()
    assert POISSON.facts()["ratio"] is None and POISSON.facts()["rate_per_s"] == 6.0
    assert BURSTY.facts()["dispersion"] == pytest.approx(14.5)
