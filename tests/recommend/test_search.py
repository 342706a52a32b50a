"""The load search against candidates whose peak is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl.metrics import HandOvers, Run
from agentctl.recommend.search import Ladder, Measured, after_warm_up, measured, search
from agentctl.slo import parse_slos

LADDER = Ladder(-9, 6)


def measure_with(score):
    """A candidate whose objectives score `score(load)`; `asked` remembers the rungs."""
    asked = []

    def measure(rung):
        asked.append(rung)
        nothing = dict.fromkeys(Measured._fields)
        return Measured(**{**nothing, "score": score(LADDER.load(rung)), "requests": 1, "rejected": 0})

    return measure, asked


@given(st.floats(0.13, 3.9), st.integers(-9, 6), st.sampled_from([1, 3]))
def test_the_peak_of_a_falling_score_is_found_from_anywhere(true_peak, start, stride):
    measure, asked = measure_with(lambda load: np.log(true_peak / load))
    peak, at = search(measure, LADDER, start, stride)
    assert peak.side == ""
    assert peak.load == pytest.approx(true_peak)
    assert len(asked) == len(set(asked)) == len(at)


def test_a_close_start_costs_two_runs_and_a_far_one_few():
    for start, stride, runs in ((1, 1, 2), (2, 1, 2), (-9, 3, 7)):
        measure, asked = measure_with(lambda load: 1.5 - load)
        search(measure, LADDER, start, stride)
        assert len(asked) == runs


@pytest.mark.parametrize("start", [-9, 0, 6])
def test_a_candidate_that_always_holds_or_never_does_is_told_from_one_with_a_peak(start):
    peak, _ = search(measure_with(lambda load: 0.1)[0], LADDER, start, 3)
    assert (peak.load, peak.side) == (4.0, "above")
    peak, _ = search(measure_with(lambda load: -0.1)[0], LADDER, start, 3)
    assert (peak.load, peak.side) == (LADDER.load(-9), "below")


def test_without_anything_to_judge_there_is_no_peak():
    peak, at = search(measure_with(lambda load: None)[0], LADDER, 0, 3)
    assert peak is None
    assert list(at) == [0]


def test_rung_zero_is_the_load_of_the_trace_and_three_rungs_double_it():
    assert LADDER.load(0) == 1.0
    assert LADDER.load(3) == 2.0
    assert LADDER.load(-9) == 0.125


def run_of_sessions(starts, first_token=0.5):
    """One request a session, and for the first session a second one at the very end."""
    arrival = np.append(np.asarray(starts, dtype=float), 100.0)
    n, zeros = arrival.size, np.zeros(arrival.size, np.int64)
    session = np.append(np.arange(n - 1), 0).astype(np.int32)
    first = arrival + np.broadcast_to(first_token, n)
    return Run(1, n - 1, zeros == 0, session, zeros, arrival, first, first + 1, zeros + 7, zeros + 3, zeros,
               zeros + 7, arrival, first, zeros)  # fmt: skip


def test_sessions_that_start_in_the_first_tenth_of_the_starts_are_not_counted_in_any_turn():
    warm = after_warm_up(run_of_sessions([0.0, 3.0, 4.0, 40.0]))
    assert warm.n_sessions == 2
    assert warm.arrival_s.tolist() == [4.0, 40.0]  # a session at the very edge counts
    assert warm.session.tolist() == [0, 1]


def test_what_happened_on_decoders_is_left_out_alike():
    run = run_of_sessions([0.0, 3.0, 4.0, 40.0])
    n = run.arrival_s.size
    there = HandOvers(np.array([1, 2]), np.arange(n) % 2, run.arrival_s + 1, np.arange(n), np.arange(n))
    warm = after_warm_up(run._replace(n_engines=2, hand_overs=there)).hand_overs
    assert warm.role_of_engine.tolist() == [1, 2]
    assert warm.sent_s.tolist() == [5.0, 41.0] and warm.decode_engine.tolist() == [0, 1]
    assert warm.computed_tokens.tolist() == warm.preemptions.tolist() == [2, 3]


def test_where_all_sessions_start_at_once_all_count():
    assert after_warm_up(run_of_sessions([5.0, 5.0])).arrival_s.size == 3


def test_what_is_measured_leaves_the_warm_up_out_and_counts_all_requests():
    slow_start = run_of_sessions([0.0, 50.0, 60.0], first_token=np.array([9.0, 0.5, 0.5, 9.0]))
    found = measured(slow_start, parse_slos(["ttft < 1s"]))
    assert found.attained == 1.0 and found.score == 0.0
    assert found.requests == 4


def test_a_rate_is_over_the_time_in_which_the_counted_sessions_start():
    found = measured(run_of_sessions([1.0, 5.0, 11.0]), parse_slos(["ttft < 1s"]))  # one goes on until 101
    assert found.requests_per_s == 2 / 9  # those of 5 and 11, in the nine tenths of 10 s after the warm-up
    assert found.tokens_per_s == 3 * 2 / 9
    together = measured(run_of_sessions([5.0, 5.0]), parse_slos(["ttft < 1s"]))
    assert together.requests_per_s is None
