"""With KV tiers the simulator agrees with the judge on every request."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.comparison import QUIET, WEIGHTS, weighted
from oracles.random_clusters import cases
from oracles.tiering import UNEVEN, check_tiered, in_turn, scattered, tiers


@settings(QUIET, max_examples=200)
@given(cases(exact_times=False), WEIGHTS, st.data())
def test_simulator_equals_the_judge_with_tiers(case, weights, data):
    some = data.draw(st.lists(tiers(case.limits[0].block_tokens, UNEVEN), min_size=1, max_size=2))
    layers = data.draw(st.sampled_from([None, 4]))
    check_tiered(case, weighted(weights), some, layers)


@settings(QUIET, max_examples=300)
@given(scattered(UNEVEN))
def test_simulator_equals_the_judge_where_engines_take_turns(drawn):
    case, some, layers = drawn
    check_tiered(case, in_turn(case), some, layers)
