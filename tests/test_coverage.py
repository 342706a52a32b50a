"""Shares of simulated work outside of calibrated ranges, against sums by hand and against a slow count."""

from types import SimpleNamespace

import numpy as np
import pytest

from agentctl.coverage import coverage, section_of


def outcome_of(first, finish, prompt, output, hit=None, engine=None, decode_engine=None, move_ended=None):
    n = len(first)
    requests = SimpleNamespace(prompt_tokens=np.array(prompt), output_tokens=np.array(output))
    hits = np.zeros(n, int) if hit is None else np.array(hit)
    return SimpleNamespace(
        workload=SimpleNamespace(requests=requests), done=np.ones(n, bool), n_engines=2,
        engine=np.zeros(n, int) if engine is None else np.array(engine),
        decode_engine=None if decode_engine is None else np.array(decode_engine),
        move_ended_s=None if move_ended is None else np.array(move_ended, float),
        first_token_s=np.array(first, float), finish_s=np.array(finish, float), found_tokens=hits,
        computed_prefill_tokens=requests.prompt_tokens - hits,
    )  # fmt: skip


def by_name(outcome, **box):
    return {one.name: one for one in coverage(outcome, {"box": box})}


TWO = ([1, 2], [3, 4], [100, 500], [21, 21])  # one decodes from 1 to 3 s, one from 2 to 4 s


def test_two_decodes_at_once_are_outside_of_a_calibration_of_single_ones():
    found = by_name(outcome_of(*TWO), n_decode=[0, 1])["n_decode"]
    assert found.outside == pytest.approx(1 / 3) and (found.median, found.most) == (1, 2)


def test_on_two_engines_they_are_not_at_once():
    assert by_name(outcome_of(*TWO, engine=[0, 1]), n_decode=[0, 1])["n_decode"].outside == 0


def test_who_was_handed_over_decodes_on_its_decoder_from_its_transfer_on():
    moved = outcome_of(*TWO, decode_engine=[1, 0], move_ended=[2, np.nan])  # from 2 to 3 s and from 2 to 4 s
    assert by_name(moved, n_decode=[0, 1])["n_decode"].outside == 0
    both = outcome_of(*TWO, decode_engine=[1, 1], move_ended=[2, 3])  # one after the other
    assert by_name(both, n_decode=[0, 1])["n_decode"].outside == 0
    found = by_name(both, decode_context=[0, 600])["decode_context"]
    assert found.most == pytest.approx(510)


def test_contexts_grow_by_the_tokens_that_were_sent():
    found = by_name(outcome_of(*TWO), decode_context=[0, 600])["decode_context"]
    # 105 in the middle of the first second; 115 + 505 in that of the second; 515 in that of the third
    assert found.most == pytest.approx(620) and found.median == pytest.approx(515)
    assert found.outside == pytest.approx(1 / 3)


def test_prompt_tokens_behind_more_context_than_calibrated_are_counted_without_hits():
    outcome = outcome_of(*TWO, hit=[0, 300])
    found = by_name(outcome, prefill_context=[0, 100], prefill_tokens=[0, 50])["prefill_context"]
    assert found.outside == pytest.approx(
        200 / 300
    )  # the last 200 of 500; the chunk that ends at 150 is fine


def test_ranges_of_requests_count_requests():
    found = by_name(outcome_of(*TWO), prompt_tokens=[90, 110], output_tokens=[1, 100])
    assert found["prompt_tokens"].outside == 0.5 and found["output_tokens"].outside == 0


@pytest.mark.parametrize(
    "fit",
    [
        {},
        {"box": 3},
        {"box": {"n_decode": [1]}},
        {"box": {"n_decode": ["a", "b"]}},
        {"box": {"n_decode": [0, float("nan")]}},
    ],
)
def test_a_profile_without_ranges_is_not_judged(fit):
    assert coverage(outcome_of(*TWO), fit) == ()


def test_a_slow_count_over_instants_agrees():
    rng = np.random.default_rng(5)
    first = rng.uniform(0, 10, 40)
    outcome = outcome_of(first, first + rng.uniform(0.1, 3, 40), rng.integers(1, 900, 40),
                         rng.integers(2, 90, 40), engine=rng.integers(0, 2, 40))  # fmt: skip
    found = by_name(outcome, n_decode=[0, 5], decode_context=[100, 2500])
    instants = np.arange(0, 13, 1e-3) + 5e-4
    number, context = [], []
    for engine in range(2):
        for now in instants:
            on = (outcome.engine == engine) & (outcome.first_token_s <= now) & (now < outcome.finish_s)
            share = (now - outcome.first_token_s) / (outcome.finish_s - outcome.first_token_s)
            of = outcome.workload.requests
            number.append(on.sum())
            context.append((on * (of.prompt_tokens + share * (of.output_tokens - 1))).sum())
    number, context = np.array(number), np.array(context)
    busy = number > 0
    assert found["n_decode"].outside == pytest.approx((number[busy] > 5).mean(), abs=0.01)
    slow = ((context[busy] > 2500) | (context[busy] < 100)).mean()
    assert found["decode_context"].outside == pytest.approx(slow, abs=0.02)


def test_the_reader_is_warned_where_much_is_outside():
    much = section_of(coverage(outcome_of(*TWO), {"box": {"n_decode": [0, 1]}}))
    none = section_of(coverage(outcome_of(*TWO), {"box": {"n_decode": [0, 9]}}))
    assert "33.3 % lie outside" in much.sentence and "calibrate with such steps" in much.warnings[0]
    assert not none.warnings and "within" in none.sentence
