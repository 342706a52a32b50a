"""The load search against candidates whose peak is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl.recommend.search import Ladder, Measured, search

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
