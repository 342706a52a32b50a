"""With KV tiers the simulator agrees with the judge on every request."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.comparison import QUIET, WEIGHTS, weighted
from oracles.random_clusters import cases, make_case
from oracles.reference_simulator import BatchCoefficients, Limits, Request
from oracles.reference_tiers import Tier
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


def test_what_is_preempted_while_it_is_planned_is_written_back_too():
    """Steps of 1 s: A computes 4 tokens, then 2 a step beside B, which is more urgent. In the third A has had
    its blocks up to token 8, the last of the pool, when B needs two: A gives its last ones, and finds them in
    the tier when it is back."""
    a = Request(9, 1, 0.0, tuple(range(1, 10)), priority=1)
    b = Request(8, 1, 0.25, tuple(range(10, 18)), session=1, priority=0)
    limits = Limits(
        kv_blocks=11, block_tokens=1, max_num_batched_tokens=4, long_prefill_token_threshold=2,
        reserve_full_prompt=False, scheduling_policy="priority", batch_time=BatchCoefficients(b0=1.0),
    )  # fmt: skip
    case = make_case([a, b], [], 1, [limits])
    for write_decode in (False, True):
        back = Tier(unit_tokens=1, write="back", write_decode=write_decode, write_bytes_per_s=99 * UNEVEN)
        outcome = check_tiered(case, in_turn(case), [back])
        assert outcome.preemptions.tolist() == [1, 0] and outcome.tiers[0].loaded_bytes > 0
