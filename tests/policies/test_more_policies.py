"""State X (test_policies.py) decided by the policies of papers and routers, and what each promises."""

from types import SimpleNamespace

import numpy as np
import pytest
from oracles.state_x import PROMPT, STATE_X, A, B, C, D, view_of

from agentctl.policies.base import load_policy, minmax, policy_names
from agentctl.recommend.candidates import DEFAULT_POLICIES


def choose(name, view, prompt=PROMPT, r=0, tie="policy", **params):
    policy = load_policy(name, params, tie=tie)
    requests = SimpleNamespace(prompt_tokens=np.full(r + 1, prompt), turn=np.ones(r + 1, dtype=np.int64))
    return policy.choose.py_func(view, requests, r, policy.my)


# The scores of A to D stand beside; the least wins unless it says most.
@pytest.mark.parametrize(
    ("name", "params", "engine"),
    [
        ("vllm-dp-balancer", {}, D),  # 6 / 24 / 2 / 0
        ("vllm-dp-balancer@lmetric-artifact", {}, D),  # 6 / 27 / 2 / 0
        ("least-waiting", {}, C),  # 0 / 3 / 0 / 0: a tie of A, C and D, after B
        ("least-tokens", {}, D),
        ("token-load", {}, D),  # 150,000 / 446,000 / 31,000 / 0
        ("lpwl", {}, A),  # 2,000 / 26,800 / 18,600 / 20,000
        ("bounded-most-hit", {}, A),  # most: 18,000 / out / 2,400 / 0
        ("bounded-most-hit", {"max_pending_tokens": 26_001}, B),  # most: 18,000 / 19,200 / 2,400 / 0
        ("bounded-most-hit", {"max_pending_tokens": 26_000}, A),  # the bound itself is out
        ("bounded-most-hit", {"max_pending_tokens": 0}, A),  # all out: as lpwl
        ("lmetric@llm-d", {}, B),  # 14,000 / 12,800 / 52,800 / 20,000
        ("lmetric@dynamo", {}, D),  # 1,172,000 / 43,970,425 / 2,180,850 / 1,250
        ("lmetric@vllm-router", {}, A),  # 14,000 / 428,800 / 55,800 / 20,000
        ("bailian-linear", {}, A),  # most: .8427 / .7 / .3568 / .3
        ("bailian-linear", {"hit_weight": 0}, D),  # most: .1864 / 0 / .2693 / .3
        ("aibrix-prefix-cache", {}, D),  # a gap of 15 requests
        ("aibrix-prefix-cache", {"max_gap": 15}, A),  # B's 15 > 5.75 + 6.65: most 18,000 / out / 2,400 / 0
        ("aibrix-prefix-cache", {"max_gap": 15, "n_deviations": 1.4}, B),  # 15 <= 5.75 + 9.31
        ("dynamo-kv", {}, D),  # 172,000 / 466,800 / 68,600 / 40,000
        ("dynamo-kv", {"overlap_weight": 8}, D),  # 186,000 / 654,400 / 198,800 / 180,000
        ("dynamo-kv", {"overlap_weight": 9}, A),  # 188,000 / 681,200 / 217,400 / 200,000
        ("llm-d-precise", {}, B),  # most: 9.875 / 10.488 / 1.75 / 0.5
        ("llm-d-precise", {"kv_weight": 1}, A),  # most: 10.518 / 10.488 / 2.679 / 1.5
    ],
)
def test_state_x_is_decided_as_the_formulas_say(name, params, engine):
    view = STATE_X._replace(last_chosen=B)
    assert choose(name, view, **params) == engine


def test_a_waiting_request_counts_four_times_in_vllm_and_five_times_in_the_artifact():
    view = view_of(waiting_requests=[2, 0], running_requests=[0, 9])
    assert choose("vllm-dp-balancer", view) == 0  # 8 against 9
    assert choose("vllm-dp-balancer@lmetric-artifact", view) == 1  # 10 against 9


def test_lpwl_sends_a_tie_to_the_fewest_requests():
    view = view_of(pending_prefill_tokens=[100, 0], hit_tokens=[112, 12], running_requests=[1, 2])
    assert choose("lpwl", view, prompt=200) == 0
    assert choose("lpwl", view._replace(running_requests=np.array([2, 1])), prompt=200) == 1


def test_a_backlog_moves_lmetric_and_its_release_but_not_its_port_without_a_queue():
    view = view_of(
        hit_tokens=[9_600, 0],
        pending_prefill_tokens=[50_000, 0],
        inflight_prefill_tokens=[50_000, 0],
        running_requests=[1, 1],
        inflight_requests=[1, 1],
    )
    chosen = [
        choose(name, view, prompt=10_000) for name in ("lmetric", "lmetric@vllm-router", "lmetric@llm-d")
    ]
    assert chosen == [1, 1, 0]


def test_vllm_router_takes_the_first_of_a_tie():
    assert choose("lmetric@vllm-router", view_of(last_chosen=1)) == 0


def test_the_block_size_weighs_the_one_against_the_kv_in_use():
    """Engine 0: 100 tokens to prefill, 64 in use; engine 1: 300 and none. 100 (64 / B + 1) against 300."""
    view = view_of(hit_tokens=[900, 700], context_tokens=[64, 0])
    assert choose("lmetric@dynamo", view, prompt=1_000) == 1
    assert choose("lmetric@dynamo", view, prompt=1_000, block_tokens=64) == 0


def test_aibrix_sends_equal_hits_to_the_smallest_batch():
    view = view_of(hit_tokens=[512, 512, 0], waiting_requests=[1, 0, 0], running_requests=[2, 2, 3])
    assert choose("aibrix-prefix-cache", view) == 1


def test_a_queue_costs_llm_d_no_more_than_the_full_one():
    """Hits are worth 10 and 9.8; load is 0.25 at 64 waiting requests, 0.5 at none and 0 from 128 on."""
    view = view_of(hit_tokens=[400, 400, 392, 0], waiting_requests=[64, 64, 0, 0])
    assert choose("llm-d-precise", view) == 2  # 10.25 against 10.3
    assert choose("llm-d-precise", view, full_queue=640, tie="first") == 0  # 10.45
    full = view._replace(waiting_requests=np.array([128, 1_000, 0, 128]))
    assert {choose("llm-d-precise", full, r=r, hit_weight=30) for r in range(50)} == {0, 1}  # 30 against 29.9


def test_minmax_maps_to_zero_and_one_and_equal_values_to_zero():
    assert minmax(np.array([4, 2, 6])).tolist() == [0.5, 0.0, 1.0]
    assert minmax(np.array([7, 7])).tolist() == [0.0, 0.0]


# Draws


N_DRAWS = 4_000


def shares(name, view, **params):
    chosen = [choose(name, view, r=r, **params) for r in range(N_DRAWS)]
    return np.bincount(chosen, minlength=view.running_requests.size) / N_DRAWS


def assert_close(found, expected):
    """Within five standard deviations of a share."""
    expected = np.array(expected)
    assert np.all(np.abs(found - expected) <= 5 * np.sqrt(expected * (1 - expected) / N_DRAWS))


def test_random_is_fair_whatever_the_load():
    assert_close(shares("random", STATE_X), [1 / 4] * 4)


def test_power_of_two_takes_the_better_of_any_pair():
    """Of six pairs the least loaded wins three, the next two, the next one, the most loaded none."""
    assert_close(shares("power-of-two", STATE_X), [1 / 6, 0, 2 / 6, 3 / 6])


def test_power_of_two_is_least_loaded_on_two_engines():
    view = view_of(running_requests=[5, 3], waiting_requests=[0, 1])
    assert {choose("power-of-two", view, r=r) for r in range(50)} == {1}


def test_bailian_draws_in_proportion_to_its_score():
    score = np.array([0.8427, 0.7, 0.3568, 0.3])
    assert_close(shares("bailian-sampled", STATE_X), score / score.sum())


def test_bailian_draws_any_engine_when_none_scores():
    only_hits = {"batch_weight": 0, "kv_weight": 0}
    assert_close(shares("bailian-sampled", view_of(), **only_hits), [1 / 4] * 4)
    assert_close(shares("bailian-sampled", view_of(hit_tokens=[0, 16, 0, 0]), **only_hits), [0, 1, 0, 0])


@pytest.mark.parametrize("name", ["random", "power-of-two", "bailian-sampled"])
def test_a_draw_depends_on_the_seed_and_the_request(name):
    def draws(view):
        return [choose(name, view, r=r) for r in range(100)]

    assert draws(STATE_X) == draws(STATE_X._replace(now=9.0, last_chosen=2))
    assert draws(STATE_X) != draws(STATE_X._replace(seed=1))


def test_what_is_compared_by_default_exists():
    assert set(DEFAULT_POLICIES) < set(policy_names())
