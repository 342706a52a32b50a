"""Queues from batch coefficients: sums by hand, the closed form, continuous batching step by step."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.continuous_batching import Steps, continuous_batching

from agentctl.errors import UsageError
from agentctl.estimators.batch_time import BatchTime
from agentctl.estimators.lps import estimate
from agentctl.estimators.lps_batch import (
    MeanRequest,
    from_batch_time,
    from_profile,
    request_seconds,
    unlimited_response,
)
from agentctl.profile import Profile, load_profile

C = BatchTime("hinge", b0=0.01, b_prefill=1e-5, b_decode=1e-4, b_context=1e-8, b_context_mixed=1e-8)
SMALL = MeanRequest(prompt=1000, output=101, hit=200)
PROFILE = Profile(C, kv_blocks=1001, block_tokens=16, max_num_seqs=64, max_num_batched_tokens=400)


def test_a_request_alone_takes_its_steps():
    """100 decodes of 0.1 ms on 1,101 tokens at 10 ns, 800 prefill tokens at 10 us, 101 steps of 10 ms."""
    own = 100 * (1e-4 + 1101e-8) + 800 * 1e-5
    assert request_seconds(C, SMALL) == pytest.approx(own)
    model = from_batch_time(C, SMALL)
    assert model.size == 101
    assert estimate(model, 1e-9).response == pytest.approx(101 * 0.01 + own)


def test_a_prompt_in_two_parts_takes_a_step_more_and_reads_the_first_part_again():
    c = C._replace(b_past=1e-6)
    whole, halves = request_seconds(c, SMALL, chunks=1), request_seconds(c, SMALL, chunks=2)
    assert halves - whole == pytest.approx(1e-6 * (200 + 400))
    assert from_batch_time(c, SMALL, step_tokens=400).size == 102


def test_attention_pairs_count_the_hit():
    """Four tokens after two: 3 + 4 + 5 + 6 pairs."""
    c = BatchTime("hinge", b0=1, b_attention=1)
    assert request_seconds(c, MeanRequest(prompt=6, output=1, hit=2)) == 18


def test_prompts_that_vary_have_more_pairs():
    """Prompts of 2 and 6 tokens (mean 4, scv 0.25): 3 and 21 pairs, 12 on average."""
    c = BatchTime("hinge", b0=1, b_attention=1)
    assert request_seconds(c, MeanRequest(prompt=4, output=1, prompt_scv=0.25)) == 12


@given(st.floats(0.01, 0.97), st.floats(0, 5), st.floats(1, 500))
def test_the_closed_form_is_the_queue_without_a_limit(load, scv, output):
    request = MeanRequest(1000, output, 200, scv)
    rate = load / request_seconds(C, request)
    queue = from_batch_time(C, request)
    assume(rate < 0.9 * queue.saturation_rate)  # its curve is cut where few residents get
    expected = unlimited_response(C, request, rate).response
    assert estimate(queue, rate).response == pytest.approx(expected, rel=1e-3)


@given(st.floats(0.01, 0.99), st.floats(1, 500))
def test_requests_without_a_prompt_follow_the_published_form(load, output):
    """D (b0 + b1) / (1 - rate D b1) with D decodes at b1 (a prompt of one token is one)."""
    c = BatchTime("eq9", b0=0.01, b_prefill=1e-4, b_decode=1e-4)
    rate = load / (output * 1e-4)
    found = unlimited_response(c, MeanRequest(1, output), rate)
    assert found.response == pytest.approx(output * (0.01 + 1e-4) / (1 - rate * output * 1e-4))


@pytest.mark.parametrize(
    ("load", "limit", "below", "above"),
    [(0.5, None, 0.04, 0.02), (0.8, None, 0.09, 0.04), (0.8, 32, 0.03, 0.03)],
)
def test_played_step_by_step_responses_are_as_near_as_stated(load, limit, below, above):
    """Prefill is 2/3 of a decode phase here; residents of a busy engine vary slowly, hence the margins."""
    request = MeanRequest(1000, 100)
    c = BatchTime("hinge", b0=7e-3, b_prefill=1e-5, b_decode=1.5e-4)
    model = from_batch_time(c, request, limit)
    full = 1 / request_seconds(c, request) if limit is None else model.saturation_rate
    random = np.random.default_rng(7)
    arrivals = np.cumsum(random.exponential(1 / (load * full), 20_000))
    outputs = random.geometric(1 / 100, arrivals.size)
    steps = Steps(7e-3, 1.5e-4, [1e-2] * arrivals.size)
    _, _, finish = continuous_batching(arrivals.tolist(), outputs.tolist(), steps, limit)
    played = (finish - arrivals)[2000:].mean()
    assert -below < estimate(model, load * full).response / played - 1 < above


def test_the_host_bounds_the_capacity():
    model = from_batch_time(C._replace(h0=0.02, h_seq=1e-3), SMALL, limit=100)
    assert model.capacity[0] == pytest.approx(1 / 0.021)
    assert model.capacity[99] == pytest.approx(100 / 0.12)


def test_decodes_beside_prefill_cost_the_mixed_rate():
    """Alone there is no other's prefill; among many every step carries some."""
    request = MeanRequest(1000, 10)
    plain = from_batch_time(C, request, limit=200)
    mixed = from_batch_time(C._replace(b_context_mixed=1e-7), request, limit=200)
    assert mixed.capacity[0] == plain.capacity[0]
    own = 9 * (1e-4 + 1010e-7) + 1e-2
    assert mixed.capacity[-1] == pytest.approx(200 / (0.01 + 200 * own / 10), rel=1e-6)


def test_the_limit_is_that_of_sequences_or_of_memory():
    """1,000 usable blocks of 16 tokens hold 14 contexts of 1,101 tokens."""
    assert from_profile(PROFILE, 1000, 101, 200).limit == 14
    assert from_profile(replace(PROFILE, max_num_seqs=8), 1000, 101, 200).limit == 8
    assert from_profile(replace(PROFILE, kv_blocks=None), 1000, 101, 200).limit == 64
    assert from_profile(Profile(C), 1000, 101, 200).limit is None


def test_variable_outputs_hold_more_memory():
    """Residents are met while they are long: 1,000 + 101 * (1 + 4)/2 tokens each."""
    assert from_profile(PROFILE, 1000, 101, 200, scv=4).limit == 12


def test_hits_raise_the_load_that_an_engine_carries():
    profile = load_profile("h100-qwen3-8b")
    rates = [from_profile(profile, 20_000, 300, hit).saturation_rate for hit in (0, 10_000, 19_000)]
    assert rates == sorted(rates)
    assert rates[2] > 1.5 * rates[0]


def test_a_request_larger_than_the_pool_is_refused():
    with pytest.raises(UsageError, match="needs 20050 tokens of KV cache, the engine has 16000"):
        from_profile(PROFILE, 20_000, 50)


def test_more_than_the_engine_can_compute_has_no_numbers():
    found = unlimited_response(C, SMALL, 1.01 / request_seconds(C, SMALL))
    assert (found.stable, found.response) == (False, None)


@pytest.mark.parametrize(
    "wrong", [{"hit": 1000}, {"hit": -1}, {"output": 0}, {"prompt": float("nan")}, {"prompt_scv": -1}]
)
def test_impossible_requests_are_refused(wrong):
    with pytest.raises(UsageError):
        MeanRequest(**{"prompt": 1000, "output": 10, **wrong})
