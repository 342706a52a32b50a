"""Policies of papers on state X (oracles/state_x.py) and on cases small enough to check by hand."""

import numpy as np
import pytest
from oracles.asking import ONLY_PREFILL, Router, path_of, plain
from oracles.state_x import PROMPT, STATE_X, A, B, C, D, view_of

from agentctl.estimators.batch_time import BatchTime, batch_time, chunk_pairs
from agentctl.policies import _kv_budget, preble_aibrix
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
        ("smetric", {"slack": 0.5}, [0.158, 2.066, 1.343, 1.400]),
        ("smetric", {"slack": 0.5, "first_turn": 1}, [14_000, 428_800, 55_800, 20_000]),
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
    assert Router("smetric", 2, turns=[0]).choose(view) == 1  # 2.96 against 1.4 s
    assert Router("smetric", 2, turns=[0], first_turn=1).choose(view) == 0  # 46,000 against 80,000
    assert Router("smetric", 2, turns=[0], first_turn=1).choose(view, running_requests=[0, 1]) == 1


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


# Preble

SECOND = BatchTime(b_prefill=1e-3)  # 1,000 new tokens take one second


def test_preble_explores_where_least_was_sent_and_the_prompt_costs_least():
    router = Router("preble", 3, prompts=[1_000, 3_000, 1_000, 1_000, 1_000], batch_time=SECOND)
    view = view_of(hit_tokens=[0, 0, 0])
    assert [router.choose(view, r, now=float(r)) for r in range(3)] == [0, 1, 2]
    np.testing.assert_allclose(router.cost(view, 3, now=3.0), [2, 4, 2])
    np.testing.assert_allclose(router.cost(view, 3, now=3.0, hit_tokens=[0, 400, 500]), [2, 3.6, 1.5])
    in_flight = {"inflight_requests": [1, 0, 0]}  # 45 tokens of 0.15 s
    np.testing.assert_allclose(router.cost(view, 3, now=3.0, **in_flight), [2 + 6.75, 4, 2])


def test_preble_exploits_a_prefix_of_more_than_half_of_the_prompt():
    router = Router("preble", 3, prompts=[1_000] * 5, batch_time=SECOND)
    view = view_of(hit_tokens=[0, 0, 0])
    assert router.choose(view, 0, hit_tokens=[0, 0, 0]) == 0
    held = {"hit_tokens": [512, 512, 496]}
    np.testing.assert_allclose(router.cost(view, 1, **held), [1, 0, OUT])
    assert router.choose(view, 1, **held) == 1
    np.testing.assert_allclose(router.cost(view, 2, **held), [1, 0.488, OUT])
    half = {"hit_tokens": [500, 0, 0]}  # half is not enough
    np.testing.assert_allclose(router.cost(view, 2, **half), [1.5, 1.488, 1])


def test_prebles_holders_can_be_too_busy():
    busy = {"hit_tokens": [900, 0], "inflight_requests": [20, 9]}
    view = view_of(hit_tokens=[0, 0])
    for high_load, engine in ((0, 0), (2.3, 0), (2.2, 1)):
        router = Router("preble", 2, prompts=[1_000], batch_time=SECOND, high_load=high_load)
        assert router.choose(view, **busy) == engine  # 20 / 9 = 2.22


def test_what_preble_sent_is_forgotten_after_its_window():
    router = Router("preble", 2, prompts=[300, 100, 1_000, 1_000], batch_time=SECOND)
    view = view_of(hit_tokens=[0, 0])
    router.choose(view, 0, now=0.0)
    assert router.choose(view, 1, now=100.0) == 1
    np.testing.assert_allclose(router.cost(view, 2, now=180.0), [1.3, 1.1])
    np.testing.assert_allclose(router.cost(view, 2, now=180.1), [1, 1.1])
    assert router.cost(view, 2, now=280.1).tolist() == [1, 1]  # and nothing is left of it


def test_aibrixs_prefill_times_are_those_of_its_table():
    """Linear 0.271 ms a token from 384 on; attention in halves for few tokens of a long context."""
    prefill_s = plain(preble_aibrix.v100_prefill_s)
    np.testing.assert_allclose(prefill_s(100, 1_000), (55 + 0.8) / 900)
    np.testing.assert_allclose(prefill_s(200, 2_000), (-295 + 625 - 256 + (0.93 + 0.398) / 2) / 900)
    np.testing.assert_allclose(prefill_s(1_000, 2_000), (271.06428 + 10.52444263 + 1.328 / 2) / 900)
    np.testing.assert_allclose(prefill_s(2_000, 2_000), (542.12856 + 10.52444263 + 1.328) / 900)
    long = 1355.3214 + 10.52444263 + 2.723 - 18.425 + 48.25 + 135
    np.testing.assert_allclose(prefill_s(5_000, 5_000), long / 900)


def test_aibrixs_preble_counts_requests_for_a_match_and_seconds_without():
    router = Router("preble@aibrix", 3, prompts=[2_000] * 6)
    view = view_of(hit_tokens=[0, 0, 0])
    cold, held = {"hit_tokens": [0, 0, 0]}, {"hit_tokens": [1_600, 1_600, 0]}
    assert router.choose(view, 0, **cold) == 0
    alone = (542.12856 + 10.52444263 + 1.328) / 900 + 45 * 0.15
    np.testing.assert_allclose(router.cost(view, 1, **cold), [alone, 0, 0])
    assert router.choose(view, 1, **held) == 1
    assert router.choose(view, 2, **held) == 0
    np.testing.assert_allclose(router.cost(view, 3, **held), [2, 1, OUT])
    partly = 0.2 * (108.425712 + 10.52444263 + 1.328 / 2) / 900 + 6.75  # 400 of 2,000 missed
    np.testing.assert_allclose(router.cost(view, 3, **cold), [alone + partly, partly, 0])


def test_aibrixs_gate_leaves_only_the_least_busy():
    router = Router("preble@aibrix", prompts=[1_000] * 3)
    held = {"hit_tokens": [900, 600, 800, 0]}
    assert router.choose(view_of(), 0, **held, inflight_requests=[8, 0, 0, 3]) == 0  # a gap of 8
    assert router.choose(view_of(), 1, **held, inflight_requests=[9, 0, 0, 3]) == 2
    assert router.choose(view_of(), 2, hit_tokens=[900, 0, 0, 0], inflight_requests=[9, 0, 0, 3]) == 1


# DualMap


def pair_of(router, r=0, **path):
    return np.flatnonzero(np.isfinite(router.cost(view_of(), r, **path))).tolist()


def test_a_prefix_has_two_engines_whatever_follows_it():
    """512 tokens are 32 blocks: line 7 from the root, then lines of their own."""
    router = Router("dualmap", prompts=[512, 1_600, 640, 256])
    pair = pair_of(router, 0, **path_of((7, 32)))
    assert len(pair) == 2
    assert pair_of(router, 1, **path_of((7, 40), (8, 60))) == pair
    assert pair_of(router, 2, **path_of((7, 32), (9, 8))) == pair
    others = {tuple(pair_of(router, 3, **path_of((line, 16)))) for line in range(200)}
    assert others == {(a, b) for a in range(4) for b in range(4) if a < b}


def test_dualmap_keeps_the_longer_hit_until_the_budget_is_spent():
    """1 ms per token and an SLO of 5 s: 5,000 tokens may be pending, the prompt's included."""
    router = Router("dualmap", prompts=[1_000] * 19, batch_time=SECOND)
    first, second = pair_of(router, **path_of((0, 62)))
    hits, pending = np.zeros(4, int), np.zeros(4, int)
    hits[first] = 900
    prompt = {**path_of((0, 62)), "hit_tokens": hits}
    for most, engine in ((4_900, first), (4_901, second)):
        pending[first] = most
        assert router.choose(view_of(), 0, **prompt, pending_prefill_tokens=pending) == engine
    pending[second] = 4_801  # 5,801 against 5,001
    assert router.choose(view_of(), 1, **prompt, pending_prefill_tokens=pending) == first
    none = {**path_of((0, 62)), "hit_tokens": np.zeros(4, int)}
    used = np.ones(4, int)
    used[second] = 0
    assert router.choose(view_of(), 2, **none, kv_used_blocks=used) == second
    assert {router.choose(view_of(), r, **none) for r in range(3, 19)} == {first, second}


def test_half_of_the_slo_is_half_of_the_budget():
    router = Router("dualmap", prompts=[1_000] * 2, batch_time=SECOND, slo_share=0.5)
    first, second = pair_of(router, **path_of((0, 62)))
    hits, pending = np.zeros(4, int), np.zeros(4, int)
    hits[first], pending[first] = 900, 2_401
    prompt = {**path_of((0, 62)), "hit_tokens": hits, "pending_prefill_tokens": pending}
    assert router.choose(view_of(), 0, **prompt) == second


def test_a_hot_prefix_is_hashed_by_more_of_the_prompt():
    """Ten engines: hot above a fifth. All prompts begin with line 0 and go on with a line of their own."""
    n = 60
    router = Router("dualmap", 10, prompts=[2_048] * n)
    view = view_of(hit_tokens=[0] * 10)
    prompts = [path_of((0, 32), (1 + r, 96)) for r in range(n)]
    used = [router.choose(view, r, **prompts[r]) for r in range(20)]
    assert len(set(used)) == 2  # hashed alike until the twentieth has been seen
    spread = {router.choose(view, r, **prompts[r]) for r in range(20, n)}
    assert len(spread) > 5
    whole = Router("dualmap", 10, prompts=[512] * n)  # a prompt that ends with the prefix stays with it
    assert len({whole.choose(view, r, **path_of((0, 32))) for r in range(n)}) == 2


def test_dualmap_has_no_hot_prefix_on_two_engines():
    router = Router("dualmap", 2, prompts=[2_048] * 60)
    view = view_of(hit_tokens=[0, 0])
    for r in range(60):
        router.choose(view, r, **path_of((0, 32), (1 + r, 96)))
    assert not router.memory[201:].any()


def test_a_prompt_without_a_whole_block_goes_anywhere():
    router = Router("dualmap", prompts=[15] * 60)
    assert {router.choose(view_of(), r, **path_of((0, 1))) for r in range(60)} == {0, 1, 2, 3}


# ConServe

BOOKS = {"kv_total_blocks": [19_278] * 3}  # 308,448 tokens each


def test_conserve_places_a_session_where_most_kv_is_unreserved():
    router = Router("conserve", 3, prompts=[100_000, 200_000, 290_000, 16_431], sessions=[0, 1, 2, 3])
    view = view_of(**BOOKS)
    assert [router.choose(view, r) for r in range(3)] == [0, 1, 2]
    assert router.cost(view, 3).tolist() == [-208_448, -108_448, -18_448]
    assert router.choose(view, 3) == 0


def test_conserve_lets_a_session_grow_where_it_is():
    router = Router("conserve", 2, prompts=[100, 50, 900, 900, 10], sessions=[0, 1, 0, 0, 2])
    view = view_of(kv_total_blocks=[50, 50])
    assert [router.choose(view, r) for r in range(4)] == [0, 1, 0, 0]  # more than its 800 tokens of KV
    assert router.cost(view, 4).tolist() == [900 - 800, 50 - 800]


def test_conserve_forgets_a_session_that_is_idle_too_long():
    prompts, sessions = [100, 50, 110, 10, 10, 10], [0, 1, 0, 2, 2, 0]
    router = Router("conserve", 2, prompts=prompts, sessions=sessions)
    view = view_of(kv_total_blocks=[50, 50])
    for r, now in enumerate((0.0, 0.0, 200.0)):
        router.choose(view, r, now=now)
    assert router.cost(view, 3, now=299.0).tolist() == [110 - 800, 50 - 800]
    assert router.cost(view, 3, now=300.0).tolist() == [110 - 800, -800]  # session 1 is over, 0 is not
    assert router.choose(view, 3, now=499.0) == 1
    assert router.cost(view, 4, now=500.0).tolist() == [OUT, 10 - 800]
    assert router.choose(view, 5, now=500.0) == 0  # anew, and engine 0 is empty


def test_conserve_may_reserve_what_most_sessions_came_to():
    """Ended sessions came to 100, 200 and 1,600 tokens; sizes are told to 19 %."""
    ended = Router("conserve", 2, prompts=[100, 200, 1_600, 10, 3_000], sessions=range(5), quantile=0.6)
    view = view_of(kv_total_blocks=[500, 500])
    for r in range(3):
        ended.choose(view, r, now=0.0)
    before = ended.cost(view, 3, now=0.0) + 8_000
    assert before.tolist() == [100 + 1_600, 200]  # none had ended: each reserved its prompt
    ended.choose(view, 3, now=1_000.0)
    assert 200 <= (ended.cost(view, 4, now=1_000.0) + 8_000)[0] <= 1.19 * 200
    ended.choose(view, 4, now=1_000.0)  # a prompt longer than that
    assert (ended.cost(view, 4, now=1_000.0) + 8_000)[1] == 3_000


def test_size_classes_hold_what_they_say():
    for tokens in (1, 2, 3, 16, 17, 1_000, 20_000, 10**6):
        most = 2 ** (plain(_kv_budget.size_class)(tokens) / 4)
        assert tokens <= most * (1 + 1e-12) < 1.19 * tokens * (1 + 1e-3)
    assert plain(_kv_budget.size_class)(2**40) == 95
    assert plain(_kv_budget.size_class)(0) == 0


def test_the_oracle_reserves_what_a_session_will_come_to():
    """Session 0 is short now and long in its last turn, session 1 the other way round."""
    router = Router(
        "oracle-conserve", 2,
        prompts=[100, 300, 300, 900, 50], outputs=[10, 20, 1, 100, 5], sessions=[0, 1, 2, 0, 1],
    )  # fmt: skip
    view = view_of(kv_total_blocks=[100, 100])
    assert [router.choose(view, r) for r in range(2)] == [0, 1]
    assert router.cost(view, 2).tolist() == [1_000 - 1_600, 320 - 1_600]
    assert [router.choose(view, r) for r in range(2, 5)] == [1, 0, 1]
    assert router.cost(view, 2)[1] == 320 + 301 - 1_600  # later turns add nothing


def test_a_later_turn_of_the_future_is_no_secret_to_the_oracle_alone():
    plain_books = Router("conserve", 2, prompts=[100, 300, 50, 900], sessions=[0, 1, 2, 0])
    view = view_of(kv_total_blocks=[100, 100])
    assert [plain_books.choose(view, r) for r in range(3)] == [0, 1, 0]
    oracle = Router("oracle-conserve", 2, prompts=[100, 300, 50, 900], sessions=[0, 1, 2, 0])
    assert [oracle.choose(view, r) for r in range(3)] == [0, 1, 1]


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
