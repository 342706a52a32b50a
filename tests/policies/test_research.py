"""Policies of papers on state X (oracles/state_x.py) and on cases small enough to check by hand."""

import numpy as np
import pytest
from oracles.asking import ONLY_PREFILL, Router
from oracles.state_x import PROMPT, STATE_X, A, B, C, D, view_of

from agentctl.estimators.batch_time import BatchTime, batch_time, chunk_pairs
from agentctl.policies.base import load_policy

OUT = np.inf


@pytest.mark.parametrize(
    ("name", "params", "costs"),
    [
        ("least-loaded", {}, [6, 15, 2, 0]),
        ("least-waiting", {}, [0, 3, 0, 0]),
        ("least-tokens", {}, [150_000, 420_000, 30_000, 0]),
        ("token-load", {}, [150_000, 446_000, 31_000, 0]),
        ("vllm-dp-balancer", {}, [6, 24, 2, 0]),
        ("vllm-dp-balancer@lmetric-artifact", {}, [6, 27, 2, 0]),
        ("lpwl", {}, [2_000, 26_800, 18_600, 20_000]),
        ("most-hit", {}, [-18_000, -19_200, -2_400, 0]),
        ("prefix-affine", {}, [-18_000, -19_200, -2_400, 0]),
        ("bounded-most-hit", {}, [-18_000, OUT, -2_400, 0]),
        ("bounded-most-hit", {"max_pending_tokens": 0}, [2_000, 26_800, 18_600, 20_000]),
        ("lmetric", {}, [14_000, 428_800, 55_800, 20_000]),
        ("lmetric@llm-d", {}, [14_000, 12_800, 52_800, 20_000]),
        ("lmetric@sglang", {}, [56_000, 51_200, 211_200, 80_000]),
        ("lmetric@dynamo", {}, [1_172_000, 43_970_425, 2_180_850, 1_250]),
        ("dynamo-kv", {}, [172_000, 466_800, 68_600, 40_000]),
        ("bailian-linear", {}, [-0.8427, -0.7, -0.3568, -0.3]),
        ("llm-d-precise", {}, [-9.875, -10.488, -1.75, -0.5]),
        ("llm-d-precise", {"kv_weight": 1}, [-10.518, -10.488, -2.679, -1.5]),
        ("aibrix-prefix-cache", {}, [6, 15, 2, 0]),
        ("aibrix-prefix-cache", {"max_gap": 15}, [-18_000, OUT, -2_400, 0]),
        ("smetric", {}, [OUT, 2.066, OUT, OUT]),
        ("smetric", {"slack": 0.5, "first_turn": 0}, [0.158, 2.066, 1.343, 1.400]),
        ("smetric", {"slack": 0.5}, [14_000, 428_800, 55_800, 20_000]),
        ("smetric-v1", {}, [150_000, 446_000, 31_000, 0]),
        ("smetric-v1", {"overload_factor": 3}, [OUT, 446_000, OUT, OUT]),
        ("mooncake-conductor", {}, [0.158, 2.066, 1.343, 1.400]),
        ("least-ttft", {}, [0.158, 2.066, 1.343, 1.400]),
        ("hybrid-sticky", {}, [150_000, 446_000, 31_000, 0]),
        ("hybrid-sticky", {"by_time": 1}, [0.158, 2.066, 1.343, 1.400]),
        ("preble", {}, [OUT, 15 * 45 * 0.15, OUT, OUT]),
        ("preble@aibrix", {}, [OUT, OUT, OUT, 0]),  # a gap of 15 requests
        ("preble@aibrix", {"max_gap": 15}, [OUT, 0, OUT, OUT]),
    ],
)
def test_state_x_costs_what_the_formulas_say_and_the_least_wins(name, params, costs):
    found = Router(name, **params).cost(STATE_X)
    np.testing.assert_allclose(found, costs, atol=6e-4)
    assert found[Router(name, **params).choose(STATE_X)] == found.min()


# Sessions


def test_a_sticky_session_stays_with_the_engine_of_its_first_request():
    router = Router("session-sticky", sessions=[0, 1, 0, 1, 0])
    load = {"running_requests": [3, 1, 2, 2]}
    assert router.choose(view_of(), 0, **load) == 1
    assert router.choose(view_of(), 1, running_requests=[3, 2, 2, 1]) == 3
    assert router.choose(view_of(), 2, running_requests=[0, 99, 0, 0]) == 1
    assert router.choose(view_of(), 3, running_requests=[0, 0, 0, 99]) == 3
    assert np.isinf(router.cost(view_of(), 4)).tolist() == [True, False, True, True]


def at_home_on_b(name, **params):
    router = Router(name, prompts=[PROMPT, PROMPT, 16], **params)
    elsewhere = {"pending_prefill_tokens": [9, 0, 9, 9], "pending_prefill_pairs": [9.0, 0, 9, 9]}
    assert router.choose(view_of(), 0, **elsewhere) == B
    return router


def test_a_hybrid_session_leaves_a_home_with_twice_the_mean_load_and_settles_elsewhere():
    assert at_home_on_b("hybrid-sticky").choose(STATE_X, 1) == D  # 446,000 > 2 * 156,750
    assert at_home_on_b("hybrid-sticky", factor=2.9).choose(STATE_X, 1) == B  # 446,000 <= 454,575
    moved = at_home_on_b("hybrid-sticky")
    moved.choose(STATE_X, 1)
    assert moved.choose(STATE_X, 2, context_tokens=[1, 1, 0, 1]) == D  # its load is not twice the mean


def test_a_hybrid_session_leaves_a_home_that_takes_twice_as_long_as_the_best():
    assert at_home_on_b("hybrid-sticky", by_time=1).choose(STATE_X, 1) == A  # 2.066 > 2 * 0.158
    assert at_home_on_b("hybrid-sticky", by_time=1, factor=13.0).choose(STATE_X, 1) == A  # 2.054
    assert at_home_on_b("hybrid-sticky", by_time=1, factor=13.1).choose(STATE_X, 1) == B  # 2.070


def test_autellix_balances_short_calls_and_keeps_long_ones_with_their_program():
    router = Router("autellix", prompts=[2_048, 2_049, 2_048, 2_049, 2_049], sessions=[0, 0, 0, 0, 1])
    assert router.choose(view_of(), 0, running_requests=[0, 1, 1, 1]) == 0  # short: founds no home
    assert router.choose(view_of(), 1, running_requests=[1, 0, 1, 1]) == 1
    assert router.choose(view_of(), 2, running_requests=[1, 1, 0, 1]) == 2
    assert router.choose(view_of(), 3, running_requests=[1, 9, 0, 1]) == 1
    assert router.choose(view_of(), 4, running_requests=[1, 9, 0, 1]) == 2


# SMetric


def test_the_two_readings_of_smetrics_first_turn_place_differently():
    """(26,000 + 20,000) tokens on an engine with nothing else against 20,000 on one with three requests."""
    view = view_of(pending_prefill_tokens=[26_000, 0], running_requests=[0, 3])
    assert Router("smetric", 2, turns=[0], first_turn=0).choose(view) == 1  # 2.96 against 1.4 s
    assert Router("smetric", 2, turns=[0]).choose(view) == 0  # 46,000 against 80,000
    assert Router("smetric", 2, turns=[0]).choose(view, running_requests=[0, 1]) == 1


def test_the_first_version_of_smetric_has_two_guards():
    view = view_of(hit_tokens=[640, 320], context_tokens=[200, 100], expected_hit=640)
    assert Router("smetric-v1", 2, turns=[0]).choose(view) == 1  # a first turn: by load
    assert Router("smetric-v1", 2).choose(view) == 0  # 200 <= 2 * 150
    assert Router("smetric-v1", 2).choose(view, pending_prefill_tokens=[101, 0]) == 0  # 301 <= 2 * 200.5
    assert Router("smetric-v1", 2, overload_factor=1.3).choose(view) == 1  # 200 > 1.3 * 150
    assert Router("smetric-v1", 2).choose(view, expected_hit=914) == 0  # 640 >= 0.7 * 914
    assert Router("smetric-v1", 2).choose(view, expected_hit=915) == 1
    assert Router("smetric-v1", 2).choose(view, hit_tokens=[640, 640]) == 1  # equal hits: the lighter


# Predicted times

TIMES = BatchTime(
    b0=0.01, b_prefill=6e-5, b_decode=1e-4, b_context=2e-8, b_context_mixed=1e-7, b_attention=1e-9
)


def test_least_ttft_adds_what_every_batch_carries():
    """1, 4, 3, 3 batches of 8,192; decodes 6, 12, 2, 0 with contexts 150,000, 336,000 (12 of 15), 30,000."""
    carried = np.array([0.01 + 6e-4 + 0.015, 0.01 + 1.2e-3 + 0.0336, 0.01 + 2e-4 + 0.003, 0.01])
    expected = np.array([0.158, 2.06568, 1.34262, 1.4]) + np.array([1, 4, 3, 3]) * carried
    found = Router("least-ttft", batch_time=TIMES).cost(STATE_X)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert Router("least-ttft", batch_time=TIMES).choose(STATE_X) == A


def test_least_ttft_is_the_batch_time_where_one_batch_does_it():
    times = TIMES._replace(h0=0.02, h_seq=0.001)
    router = Router("least-ttft", 2, prompts=[1_000], batch_time=times)
    for hit in (0, 640, 992):
        exact = batch_time(times, 1_000 - hit, chunk_pairs(1_000 - hit, hit), hit, 1, 0, 0)
        np.testing.assert_allclose(router.cost(view_of(hit_tokens=[hit, 0]))[0], exact, rtol=1e-4)


def test_least_ttft_counts_batches_of_the_size_that_engines_have():
    times = BatchTime(b0=1.0)
    view = view_of(pending_prefill_tokens=[8_000, 8_193 - 16, 0, 24_000])
    few = Router("least-ttft", prompts=[16], batch_time=times)
    assert few.cost(view).tolist() == [1, 2, 1, 3]
    more = Router("least-ttft", prompts=[16], batch_time=times, chunk_tokens=2_048)
    assert more.cost(view).tolist() == [4, 5, 1, 12]


def test_the_oracle_knows_when_the_batch_in_flight_ends():
    """Engine 0 has 4,096 tokens in a batch that ends in 0.1 s, engine 1 the same number waiting."""
    router = Router("oracle-least-ttft", 3, prompts=[1_000], batch_time=BatchTime(b0=0.01, b_prefill=1e-4))
    view = view_of(
        pending_prefill_tokens=[4_096, 4_096, 0],
        waiting_requests=[0, 1, 0],
        step_ends_at=[5.1, 5.02, np.inf],
    )
    np.testing.assert_allclose(router.cost(view, now=5.0), [0.1 + 0.11, 0.02 + 0.5196, 0.11])
    assert router.choose(view, now=5.0) == 2


def test_polyserve_packs_the_slowest_engine_that_keeps_both_slos():
    """TTFT 0.158 / 2.066 / 1.343 / 1.400 s; TPOT 7, 16, 3 and 1 requests at 10 ms: 70 / 160 / 30 / 10 ms."""
    times = ONLY_PREFILL._replace(b_decode=0.01)

    def costs(**params):
        return (
            Router("polyserve", batch_time=times, chunk_tokens=1e9, **params).cost(STATE_X).round(6).tolist()
        )

    at_ease = {"ttft_slo_s": 3.0}  # b_decode also slows prefill batches: one here
    assert costs() == [-0.07, OUT, OUT, OUT]
    assert costs(**at_ease) == [-0.07, -0.16, -0.03, -0.01]
    assert costs(**at_ease, tpot_slo_s=0.1) == [-0.07, OUT, -0.03, -0.01]
    assert costs(ttft_slo_s=0.1) == [0, 0, 0, 0]
    lost = {
        Router("polyserve", batch_time=times, prompts=[PROMPT] * 50, ttft_slo_s=0.1).choose(STATE_X, r)
        for r in range(50)
    }
    assert lost == {A, B, C, D}


def test_the_time_per_output_token_reads_the_context_and_has_a_floor():
    """One prompt of 1,000 beside a request of 9,000: 10,000 tokens read at 1 us; the host takes 15 ms."""
    slow = BatchTime(b_context=1e-6, h0=0.015)
    view = view_of(running_requests=[1, 0], context_tokens=[9_000, 0])
    assert Router("polyserve", 2, prompts=[1_000], batch_time=slow).cost(view).tolist() == [-0.015, -0.015]
    slow = slow._replace(h0=0.005)
    np.testing.assert_allclose(
        Router("polyserve", 2, prompts=[1_000], batch_time=slow).cost(view), [-0.01, -0.005]
    )


# Mooncake


def test_the_conductor_prices_a_transfer_where_the_best_prefix_is_much_longer():
    """Hits 8,000 / 4,000 / 0 of 10,000; 1 ms per new token, 0.1 ms per token moved."""
    times = BatchTime(b_prefill=1e-3)
    view = view_of(hit_tokens=[8_000, 4_000, 0], pending_prefill_tokens=[3_000, 0, 100])

    def costs(**params):
        router = Router(
            "mooncake-conductor", 3, prompts=[10_000], batch_time=times, transfer_s_per_token=1e-4, **params
        )
        return router.cost(view).tolist()

    np.testing.assert_allclose(costs(), [5, 6, 10.1])  # never
    np.testing.assert_allclose(costs(balancing_threshold=3), [5, 6, 0.8 + 0.1 + 2])
    np.testing.assert_allclose(costs(balancing_threshold=2), [5, 0.4 + 2, 0.8 + 0.1 + 2])
    nobody = Router("mooncake-conductor", 3, prompts=[10_000], batch_time=times, balancing_threshold=2)
    np.testing.assert_allclose(nobody.cost(view, hit_tokens=[0, 0, 0]), [13, 10, 10.1])


# Parameters


@pytest.mark.parametrize(
    "name", ["smetric", "least-ttft", "polyserve", "oracle-least-ttft", "dualmap", "preble"]
)
def test_coefficients_come_from_the_profile(name):
    times = BatchTime(**{key: k / 8 for k, key in enumerate(BatchTime._fields[1:], 1)})
    policy = load_policy(name, batch_time=times)
    assert policy.from_profile
    for mine, theirs in policy.from_profile.items():
        assert policy.params[mine] == getattr(times, theirs)
