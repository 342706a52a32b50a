"""Metrics on runs small enough to check by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl.metrics import METRICS, Run, in_system, measure, nearest_rank, summary, tokens_per_s


def run_of(**fields):
    """Three requests of two sessions on two engines; the third is rejected."""
    default = {
        "done": [True, True, False],
        "session": [0, 0, 1],
        "engine": [0, 1, -1],
        "arrival_s": [0.0, 10.0, 11.0],
        "first_token_s": [1.0, 12.0, np.nan],
        "finish_s": [5.0, 12.0, np.nan],
        "prompt_tokens": [100, 300, 50],
        "output_tokens": [5, 1, 7],
        "cached_tokens": [0, 200, 0],
        "computed_prefill_tokens": [100, 100, 0],
        "scheduled_s": [0.5, 10.0, np.nan],
        "itl_max_s": [2.5, np.nan, np.nan],
        "preemptions": [0, 0, 0],
    }
    arrays = {name: np.array(value) for name, value in {**default, **fields}.items()}
    n_sessions = int(arrays["session"].max()) + 1
    return Run(n_engines=2, n_sessions=n_sessions, **arrays)


def test_latencies_are_differences_of_times():
    run = run_of()
    np.testing.assert_array_equal(METRICS["ttft_s"].compute(run), [1.0, 2.0, np.nan])
    np.testing.assert_array_equal(METRICS["e2e_s"].compute(run), [5.0, 2.0, np.nan])


def test_a_one_token_output_has_no_tpot():
    np.testing.assert_array_equal(METRICS["tpot_s"].compute(run_of()), [1.0, np.nan, np.nan])


def test_a_session_ends_with_its_last_turn():
    np.testing.assert_array_equal(METRICS["session_s"].compute(run_of()), [12.0, np.nan])


def test_a_rejected_last_turn_ends_its_session_at_its_arrival():
    run = run_of(session=[0, 0, 0], arrival_s=[0.0, 10.0, 99.0])
    np.testing.assert_array_equal(METRICS["session_s"].compute(run), [99.0])


def test_the_hit_ratio_is_weighted_by_tokens():
    assert METRICS["hit_ratio"].compute(run_of()) == 200 / 400


def test_imbalance_is_the_busiest_engine_over_the_mean():
    assert METRICS["imbalance_prefill"].compute(run_of()) == 1.0
    assert METRICS["imbalance_prefill"].compute(run_of(computed_prefill_tokens=[300, 100, 0])) == 1.5
    assert METRICS["imbalance_batch"].compute(run_of()) == 5 / 3.5
    assert METRICS["imbalance_prefill"].compute(run_of(engine=[1, 1, -1])) == 2.0


def test_tokens_per_second_count_what_is_asked_over_the_whole_span():
    run = run_of()
    assert METRICS["output_tokens_per_s"].compute(run) == 6 / 12
    assert tokens_per_s(run, np.array([True, False, False])) == 5 / 12
    assert tokens_per_s(run, np.array([False, False, True])) == 0.0


def test_requests_in_the_system_are_averaged_over_time():
    run = run_of(arrival_s=[0.0, 10.0, 20.0], session=[0, 1, 2])  # 0-5 and 10-12 are busy
    assert in_system(run, 0.0, 0.5) == 5 / 10
    assert in_system(run, 0.5, 1.0) == 2 / 10
    late = run_of(session=[0, 1, 0], arrival_s=[0.0, 10.0, 99.0])  # no session starts after 10
    assert in_system(late, 0.0, 1.0) == 5 / 10
    assert in_system(run_of(arrival_s=[0.0, 0.0, 0.0]), 0.5, 1.0) is None


def test_what_cannot_be_computed_is_none_not_zero():
    nothing = measure(run_of(done=[False] * 3))
    assert nothing["hit_ratio"]["value"] is None
    assert nothing["imbalance_prefill"]["value"] is None
    assert nothing["output_tokens_per_s"]["value"] is None
    assert nothing["ttft_s"]["n"] == 0
    assert nothing["ttft_s"]["p95"] is None


def test_every_metric_says_its_unit_its_direction_and_its_formula():
    document = measure(run_of())
    assert set(document) == set(METRICS)
    for metric in METRICS.values():
        assert metric.formula.endswith(".")
        assert document[metric.name]["unit"] == metric.unit
    head = {"unit": "s", "better": "lower", "per": "request"}
    numbers = {"n": 2, "mean": 1.5, "p50": 1.0, "p90": 2.0, "p95": 2.0, "p99": 2.0}
    assert document["ttft_s"] == {**head, **numbers}


@pytest.mark.parametrize(
    ("n", "percent", "rank"),
    [
        (20, 95, 19),
        (100, 99, 99),
        (1, 99, 1),
        (10, 50, 5),
        (3, 50, 2),
        (1000, 99.9, 999),
        (7, 100, 7),
    ],
)
def test_nearest_rank_is_the_least_rank_that_reaches_the_share(n, percent, rank):
    assert nearest_rank(n, percent) == rank


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_percentiles_are_values_that_occurred_and_in_order(values):
    s = summary(np.array(values))
    assert s.n == len(values)
    assert {s.p50, s.p90, s.p95, s.p99} <= set(values)
    assert min(values) <= s.p50 <= s.p90 <= s.p95 <= s.p99 <= max(values)
    assert sum(v <= s.p90 for v in values) >= 0.9 * len(values)
