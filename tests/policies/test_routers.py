"""Policies of production routers, decided on state X (oracles/state_x.py) and on cases small enough to
check by hand. Policies that remember are driven through sequences."""

from types import SimpleNamespace

import numpy as np
import pytest
from numba.extending import is_jitted
from oracles.state_x import PROMPT, STATE_X, A, B, C, D, view_of

from agentctl.policies import cache_aware_spill, llm_d
from agentctl.policies._draws import draw, draw_two, softmax
from agentctl.policies._rings import rendezvous, ring_distances
from agentctl.policies.base import load_policy, policy_names, tie_hash


def plain(function):
    """A compiled function as Python."""
    return function.py_func if is_jitted(function) else function


class Router:
    """One policy with its memory, asked request by request."""

    def __init__(self, name, n_engines=4, sessions=(), n_requests=1_000, **params):
        self.policy = load_policy(name, params)
        self.sessions = np.array(sessions or [0] * n_requests)
        n_sessions = int(self.sessions.max()) + 1
        size = self.policy.memory(n_requests, n_sessions, n_engines) if self.policy.memory else 0
        self.memory = np.zeros(size)
        self.last = -1

    def choose(self, view, r=0, prompt=PROMPT, **fields):
        n = self.sessions.size
        requests = SimpleNamespace(
            prompt_tokens=np.full(n, prompt), turn=np.ones(n, int), session=self.sessions
        )
        view = view._replace(memory=self.memory, last_chosen=self.last, **fields)
        self.last = int(plain(self.policy.choose)(view, requests, r, self.policy.my))
        return self.last

    def cost(self, view, prompt=PROMPT):
        requests = SimpleNamespace(prompt_tokens=np.array([prompt]), session=np.array([0]))
        return plain(self.policy.cost)(view._replace(memory=self.memory), requests, 0, self.policy.my)


def choose(name, view, r=0, prompt=PROMPT, sessions=(), **params):
    return Router(name, view.waiting_requests.size, sessions, **params).choose(view, r, prompt)


def i8(*values):
    return np.array(values, dtype=np.int64)


# The scores of A to D stand beside; the least wins unless it says most.
@pytest.mark.parametrize(
    ("name", "params", "engine"),
    [
        ("dynamo:kv", {}, D),  # 10,750 / 29,175 / 4,287.5 / 2,500
        ("dynamo:kv_approximate", {}, D),
        ("dynamo:kv", {"prefill_load_scale": 20}, A),  # 13,125 / 61,000 / 26,375 / 26,250
        ("dynamo:kv", {"overlap_credit": 0}, D),
        ("llm-d:default", {}, A),  # most: 6.2 / 3.48 / 4.26 / 4.0
        ("llm-d:precise", {}, A),
        ("llm-d:affinity", {}, A),  # most: 3.099 / 2.487 / out / out
        ("llm-d:token_load", {}, A),  # most: .99952 / .99361 / .99557 / .99523
        ("llm-d:active_request", {}, D),  # most: .6 / 0 / .8667 / 1
        ("sglang-router:cache_aware", {}, B),  # a gap of 15 of 64, a match of 0.96
        ("sglang-router:cache_aware", {"balance_abs_threshold": 8}, D),  # 15 > 8 and 15 > 1.5 * 0
        ("sglang-router:cache_aware", {"balance_abs_threshold": 15}, B),  # the threshold itself is even
        ("sglang-router:cache_aware", {"cache_threshold": 0.96}, D),  # and so is this one no match
        ("vllm-router:cache_aware", {}, B),
        ("vllm-router:kv_aware", {}, A),  # 14,000 / 428,800 / 55,800 / 20,000
        ("smg:least_load", {"queue_tokens": 1}, D),  # 3.122 / 19.494 / 1.532 / 0 s
        ("smg:cache_aware", {}, D),  # B matches longest and spills: D waits least of those that do not
        ("smg:cache_aware", {"balance_rel_threshold": 3}, B),  # 15 <= 3 * 5.75
        ("production-stack:prefixaware", {}, B),
        ("production-stack:kvaware", {}, B),  # 19,200 >= 18,000
        ("production-stack:kvaware", {"threshold": 800}, B),
        ("production-stack:kvaware", {"threshold": 799}, A),  # by rate: no engine has had a request
        ("production-stack:loadaware", {}, D),  # most: .8565 / -.6487 / .7722 / 1.0
        ("production-stack:loadaware", {"beta": 0}, B),
        ("aibrix:prefix-cache", {}, D),  # a gap of 15 > 8, and nothing matches on D
        ("aibrix:prefix-cache", {"max_gap": 15}, A),  # B's 15 > 5.75 + 6.65
        ("aibrix:prefix-cache", {"max_gap": 15, "n_deviations": 1.4}, B),
        ("aibrix:least-request", {}, D),
        ("aibrix:least-kv-cache", {}, D),
    ],
)
def test_state_x_is_decided_as_the_formulas_say(name, params, engine):
    assert choose(name, STATE_X, **params) == engine


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("dynamo:kv", {}, [10_750, 29_175, 4_287.5, 2_500]),
        ("llm-d:default", {}, [-6.2, -3.48, -4.26, -4.0]),
        ("llm-d:affinity", {}, [-3.099, -2.487, np.inf, np.inf]),
        ("llm-d:token_load", {}, [-0.99952, -0.99361, -0.99557, -0.99523]),
        ("llm-d:active_request", {}, [-0.6, 0, -0.8667, -1]),
        ("smg:least_load", {"queue_tokens": 1}, [3.122, 19.494, 1.532, 0]),
        ("production-stack:loadaware", {}, [-0.8565, 0.6487, -0.7722, -1]),
        ("vllm-router:kv_aware", {}, [14_000, 428_800, 55_800, 20_000]),
    ],
)
def test_state_x_costs_what_the_formulas_say(name, params, expected):
    np.testing.assert_allclose(Router(name, **params).cost(STATE_X), expected, atol=5e-4)


# Dynamo


def test_dynamos_credit_fades_with_excess_prefill():
    """64 blocks of prompt; engine 0 holds 32 and is one prompt behind: its credit halves to 16."""
    view = view_of(hit_tokens=[512, 0], inflight_prefill_tokens=[2_048, 1_024], active_blocks=[64, 64])
    np.testing.assert_allclose(Router("dynamo:kv", 2).cost(view, prompt=1_024), [224, 192])
    decayed = Router("dynamo:kv", 2, overlap_credit_decay=1).cost(view, prompt=1_024)
    np.testing.assert_allclose(decayed, [240, 192])


def test_dynamos_prefill_never_counts_below_zero_and_requests_count_when_weighed():
    view = view_of(hit_tokens=[1_008, 0], inflight_requests=[3, 0])
    costs = Router("dynamo:kv", 2, overlap_credit=2, request_weight=5).cost(view, prompt=1_024)
    np.testing.assert_allclose(costs, [15, 64])


def test_dynamo_breaks_ties_at_random_and_draws_by_softmax_above_temperature_zero():
    idle = view_of()
    assert {choose("dynamo:kv", idle, r=r) for r in range(50)} == {0, 1, 2, 3}
    drawn = [choose("dynamo:kv", STATE_X, r=r, temperature=0.5) for r in range(400)]
    weight = np.exp(-(np.array([10_750, 29_175, 4_287.5, 2_500]) - 2_500) / 26_675 / 0.5)
    expected = 400 * weight / weight.sum()
    assert np.all(np.abs(np.bincount(drawn, minlength=4) - expected) < 5 * np.sqrt(expected))


# llm-d


def test_each_llm_d_score_alone():
    """Waiting 0 / 3 / 0 / 0, running 6 / 12 / 2 / 0: an engine with no queue scores half at load_aware."""
    alone = dict.fromkeys(("queue_weight", "kv_weight", "prefix_weight"), 0)

    def score(**weight):
        return -Router("llm-d:default", **{**alone, **weight}).cost(STATE_X)

    np.testing.assert_allclose(score(queue_weight=1), [1, 0, 1, 1])
    np.testing.assert_allclose(score(running_weight=1), [0.5, 0, 10 / 12, 1])
    np.testing.assert_allclose(score(kv_weight=1), [0.75, 0.3, 0.95, 1])
    np.testing.assert_allclose(score(load_aware_weight=1), [0.5, 0.5 * 125 / 128, 0.5, 0.5])
    np.testing.assert_allclose(score(load_aware_weight=1, load_threshold=2), [0.5, 0, 0.5, 0.5])
    np.testing.assert_allclose(score(prefix_weight=1), [0.9, 0.96, 0.12, 0])
    length = score(prefix_weight=1, match_length_weight=0.5)
    np.testing.assert_allclose(length, [0.95, 0.98, 0.06 + 0.5 * (2_400 / 8_192) ** 2, 0])
    np.testing.assert_allclose(score(active_request_weight=1, idle_threshold=6), [1, 0, 1, 1])
    np.testing.assert_allclose(score(active_request_weight=1, max_busy_score=0.5), [0.3, 0, 13 / 30, 1])
    np.testing.assert_allclose(score(token_load_weight=1, queue_threshold_tokens=20_000), [0.9, 0, 0.07, 0])
    np.testing.assert_allclose(score(no_hit_lru_weight=1), [0.5] * 4)


def test_equal_queues_score_one_and_ties_are_random():
    idle = view_of()
    np.testing.assert_allclose(Router("llm-d:default").cost(idle), [-4] * 4)
    assert {choose("llm-d:default", idle, r=r) for r in range(50)} == {0, 1, 2, 3}


def affine(view, **params):
    my = load_policy("llm-d:affinity", params).my
    return np.flatnonzero(plain(llm_d.affine)(view, PROMPT, 0, my)).tolist()


def test_the_affinity_filter_keeps_holders_until_they_are_too_late():
    """TTFT of the holders A and B: 0 and 1,632 ms; of C and D: 63 and 0 ms."""
    assert affine(STATE_X) == [A, B]
    assert affine(STATE_X, affinity_threshold=0.95) == [B]
    assert affine(STATE_X, affinity_threshold=0.97) == [A, B, C, D]  # no holder
    assert affine(STATE_X, affinity_threshold=0) == [A, B, C, D]
    assert affine(STATE_X, affinity_threshold=0.95, max_ttft_penalty_ms=1_633) == [B]
    assert affine(STATE_X, affinity_threshold=0.95, max_ttft_penalty_ms=1_632) == [A, B, C, D]
    assert affine(STATE_X, affinity_threshold=0.95, max_ttft_penalty_ms=0) == [B]  # 0: never
    late = STATE_X._replace(inflight_prefill_tokens=i8(9_000, 18_000, 0, 0))
    assert affine(late, affinity_threshold=0.95, peak_prefill_throughput=1_000) == [
        B
    ]  # 18,000 ms are not above
    assert affine(STATE_X, exploration_probability=1) == [A, B, C, D]


def test_scores_compare_candidates_only():
    """Of A and B alone, A has the fewest waiting requests and B the most."""
    router = Router("llm-d:affinity", token_load_weight=0, active_request_weight=0, no_hit_lru_weight=0)
    view = STATE_X._replace(waiting_requests=i8(2, 4, 0, 8))
    router.policy = load_policy("llm-d:affinity", {**router.policy.params, "queue_weight": 1})
    np.testing.assert_allclose(router.cost(view), [-1, 0, np.inf, np.inf])


def test_requests_without_a_hit_go_round_the_engines_that_got_one_longest_ago():
    router = Router("llm-d:affinity", token_load_weight=0, active_request_weight=0)
    cold = view_of()
    np.testing.assert_allclose(-router.cost(cold), [1, 2 / 3, 1 / 3, 0])  # list order, while unused
    assert [router.choose(cold, r) for r in range(2)] == [0, 1]
    np.testing.assert_allclose(-router.cost(cold), [1 / 3, 0, 1, 2 / 3])
    assert [router.choose(cold, r) for r in range(2, 6)] == [2, 3, 0, 1]
    warm = cold._replace(hit_tokens=i8(0, 0, 0, 32))
    assert {router.choose(warm, r) for r in range(6, 40)} == {0, 1, 2, 3}  # neutral, and nothing is noted
    assert router.choose(cold, 40) == 2


def test_a_session_stays_with_its_engine_until_it_is_forgotten():
    router = Router("llm-d:session_affinity", sessions=[0, 0, 1, 0, 0])
    idle = view_of()
    load = i8(9, 0, 0, 0)
    assert router.choose(idle, 0) == 0
    assert router.choose(idle, 1, inflight_requests=load, now=299.0) == 0
    assert router.choose(idle, 2, inflight_requests=load, now=299.0) == 1  # another session
    assert router.choose(idle, 3, inflight_requests=load, now=598.0) == 0  # used 299 s ago
    assert router.choose(idle, 4, inflight_requests=load, now=898.0) != 0  # 300 s ago


def test_the_session_filter_comes_before_the_affinity_filter():
    router = Router("llm-d:session_affinity", sessions=[0, 0], affinity_filter=1)
    assert router.choose(view_of(), 0) == 0
    assert router.choose(view_of(hit_tokens=[0, 19_000, 0, 0]), 1) == 0


def test_a_session_score_does_not_move_the_session():
    """The bound engine is a candidate and loses: the session remains bound to it."""
    router = Router("llm-d:active_request", sessions=[0, 0, 0], session_weight=0.5, no_hit_lru_weight=0.1)
    idle = view_of()
    assert router.choose(idle, 0) == 0
    assert router.choose(idle, 1, inflight_requests=i8(9, 0, 9, 9)) == 1
    assert router.choose(idle, 2, inflight_requests=i8(1, 1, 2, 2)) == 0  # 0.5 more than engine 1


def test_weighted_random_draws_in_proportion_to_the_score_of_candidates():
    drawn = [choose("llm-d:default", STATE_X, r=r, weighted_random=1) for r in range(400)]
    expected = 400 * np.array([6.2, 3.48, 4.26, 4.0]) / 17.94
    assert np.all(np.abs(np.bincount(drawn, minlength=4) - expected) < 5 * np.sqrt(expected))
    drawn = {choose("llm-d:affinity", STATE_X, r=r, weighted_random=1) for r in range(60)}
    assert drawn == {A, B}


# cache_aware of sglang-router and vllm-router


def test_six_requests_of_one_session_go_as_they_did_through_the_real_router():
    """sglang-router 0.3.2, four engines, thresholds 2 and 1.5: three to one engine, then to each other."""
    router = Router("sglang-router:cache_aware", balance_abs_threshold=2)
    load, held, chosen = i8(0, 0, 0, 0), i8(0, 0, 0, 0), []
    for r in range(6):
        engine = router.choose(view_of(), r, inflight_requests=load.copy(), hit_tokens=held.copy())
        load[engine] += 1
        held[engine] = PROMPT - 1
        chosen.append(engine)
    assert chosen == [0, 0, 0, 1, 2, 3]


def test_an_idle_cluster_piles_every_new_session_on_the_first_engine():
    router = Router("sglang-router:cache_aware", sessions=range(20))
    assert {router.choose(view_of(), r) for r in range(20)} == {0}


def test_both_thresholds_must_be_passed_to_leave_the_holder():
    view = view_of(inflight_requests=[130, 65, 65, 65], hit_tokens=[19_000, 0, 0, 0])
    assert choose("sglang-router:cache_aware", view) == 1  # 65 > 64 and 130 > 97.5
    assert choose("sglang-router:cache_aware", view, balance_rel_threshold=2) == 0
    assert choose("sglang-router:cache_aware", view, balance_abs_threshold=65) == 0


def test_of_equal_matches_vllm_router_takes_the_least_loaded_and_sglang_router_the_first():
    """Seen of vllm-router 0.1.17 and sglang-router 0.3.2 with a system prompt that all engines got."""
    for load, calm in (([2, 1, 2, 0], 3), ([1, 0, 1, 2], 1), ([3, 1, 1, 1], 1), ([0, 0, 0, 0], 0)):
        view = view_of(hit_tokens=[10_000] * 4, inflight_requests=load)
        assert choose("vllm-router:cache_aware", view) == calm
        assert choose("sglang-router:cache_aware", view) == 0


# Sticky sessions


@pytest.mark.parametrize("name", ["sglang-router:manual", "sglang-router:manual_min_load", "smg:manual"])
def test_a_sticky_session_stays_whatever_the_load_until_it_was_idle_too_long(name):
    router = Router(name, sessions=[0] * 50)
    first = router.choose(view_of(), 0)
    load = i8(9, 9, 9, 9)
    load[first] = 100
    assert router.choose(view_of(), 1, inflight_requests=load, now=14_399.0) == first
    assert router.choose(view_of(), 2, inflight_requests=load, now=28_798.0) == first
    moved = {
        router.choose(view_of(), r, inflight_requests=load, now=14_400.0 * (r + 10)) for r in range(3, 50)
    }
    assert len(moved) > 1


def test_manual_assigns_at_random_or_by_load():
    sessions = range(60)
    view = view_of(inflight_requests=[1, 0, 0, 5])
    anywhere = Router("sglang-router:manual", sessions=sessions)
    assert {anywhere.choose(view, r) for r in range(60)} == {0, 1, 2, 3}
    by_load = Router("sglang-router:manual_min_load", sessions=sessions)
    assert {by_load.choose(view, r) for r in range(60)} == {1, 2}


def test_new_sessions_go_where_the_fewest_live_sessions_are():
    router = Router("vllm-router:sticky_least_loaded", sessions=[*range(12), 0, 4])
    chosen = [router.choose(view_of(), r) for r in range(12)]
    assert [sorted(chosen[k : k + 4]) for k in (0, 4, 8)] == [[0, 1, 2, 3]] * 3
    assert router.choose(view_of(), 12) == chosen[0]
    assert router.choose(view_of(), 13) == chosen[4]
    assert router.memory[1:5].tolist() == [3, 3, 3, 3]


def test_an_expired_session_no_longer_counts_and_is_placed_anew():
    router = Router("vllm-router:sticky_least_loaded", 2, sessions=[0, 1, 2, 1, 3, 0])
    idle = view_of(hit_tokens=[0, 0])
    first, second = router.choose(idle, 0), router.choose(idle, 1)
    assert sorted((first, second)) == [0, 1]
    router.choose(idle, 2, now=10.0)
    router.choose(idle, 3, now=7_000.0)
    assert router.memory[1:3].sum() == 3
    # Sessions 0 and 2 expire; session 1 is live. The new one goes to the engine without any.
    assert router.choose(idle, 4, now=7_300.0) == 1 - second
    assert router.memory[1:3].tolist() == [1, 1]
    router.choose(idle, 5, now=7_301.0)
    assert router.memory[1:3].sum() == 3


@pytest.mark.parametrize("ttl_s", [30, 60])
def test_the_sweep_comes_once_a_minute(ttl_s):
    router = Router("vllm-router:sticky_least_loaded", 2, sessions=[0, 1, 2, 1], ttl_s=ttl_s)
    idle = view_of(hit_tokens=[0, 0])
    router.choose(idle, 0)
    router.choose(idle, 1, now=59.0)  # session 0 is past its time and still counts
    assert router.memory[1:3].tolist() == [1, 1]
    router.choose(idle, 2, now=60.0)
    assert router.memory[1:3].sum() == 2


# Rings


def test_a_ring_gives_every_engine_its_share_and_loses_only_the_keys_of_a_lost_engine():
    four = np.array([plain(ring_distances)(key, 4, 160, 0) for key in range(500)])
    three = np.array([np.argmin(plain(ring_distances)(key, 3, 160, 0)) for key in range(500)])
    owner = np.argmin(four, axis=1)
    assert np.bincount(owner, minlength=4).min() > 500 / 4 / 2
    assert np.array_equal(three[owner != 3], owner[owner != 3])
    assert np.array_equal(three[owner == 3], np.argsort(four, axis=1)[owner == 3][:, 1])  # the next along


def test_rendezvous_prefers_engines_differently_for_each_key():
    order = {tuple(np.argsort(plain(rendezvous)(key, 3, 0))) for key in range(200)}
    assert len(order) == 6


@pytest.mark.parametrize(
    "name", ["vllm-router:consistent_hash", "smg:consistent_hashing", "production-stack:session"]
)
def test_a_session_keeps_its_place_on_the_ring_whatever_the_load(name):
    sessions = [*range(40), *range(40)]
    router = Router(name, sessions=sessions)
    chosen = [router.choose(STATE_X, r) for r in range(80)]
    assert chosen[:40] == chosen[40:]
    assert set(chosen) == {0, 1, 2, 3}
    again = Router(name, sessions=sessions)  # another gateway, asked in another order
    assert [again.choose(view_of(), r) for r in reversed(range(40))] == chosen[39::-1]
    nodes = int(router.policy.params["virtual_nodes"])
    assert chosen[:40] == [int(np.argmin(plain(ring_distances)(s, 4, nodes, 0))) for s in range(40)]


def test_an_overloaded_engine_passes_a_prefix_on_to_the_least_loaded(monkeypatch):
    monkeypatch.setattr("agentctl.policies.prefix_hash.prefix_key", lambda view, n: (5 << 32) + n)
    idle = view_of()
    order = np.argsort(plain(ring_distances)(plain(tie_hash)(5, 16), 4, 150, 0)).tolist()
    assert choose("smg:prefix_hash", idle) == order[0]

    def loaded(**requests):
        load = i8(0, 0, 0, 0)
        for place, count in requests.items():
            load[order[int(place[1])]] = count
        return idle._replace(inflight_requests=load)

    assert choose("smg:prefix_hash", loaded(p0=13)) == order[0]  # a share of 3.5: 13 <= 3.5 + 10
    assert choose("smg:prefix_hash", loaded(p0=13), load_above=9.6) == order[0]  # this request counts
    some = {"p1": 2, "p2": 1, "p3": 2}  # 19 > 6.25 + 10 and > 1.25 * 6.25
    assert choose("smg:prefix_hash", loaded(p0=19, **some)) == order[2]
    assert choose("smg:prefix_hash", loaded(p0=14)) == min(order[1:])  # 14 > 3.75 + 10: the first of three
    assert choose("smg:prefix_hash", loaded(p0=40, p1=40, p2=1)) == order[3]  # 40 > 20.5 + 10 and > 25.6
    assert choose("smg:prefix_hash", loaded(p0=40, p1=40), load_factor=2) == order[0]
    assert (
        choose("smg:prefix_hash", loaded(p0=1), load_factor=-1, load_above=-9) == order[0]
    )  # all overloaded


def test_a_short_prompt_is_hashed_by_its_whole_blocks(monkeypatch):
    asked = []
    monkeypatch.setattr("agentctl.policies.prefix_hash.prefix_key", lambda view, n: asked.append(n) or 5)
    idle = view_of()
    for prompt in (20_000, 100, 15):
        choose("smg:prefix_hash", idle, prompt=prompt)
    assert asked == [16, 6]  # 15 tokens are no block: a key of its own


# smg


def test_expected_wait_counts_what_was_sent_since_the_last_poll():
    """Three requests of 1,024 tokens each, whatever their length, at 2,000 tokens a second."""
    sent = STATE_X._replace(unpublished_requests=i8(0, 0, 0, 3), unpublished_tokens=i8(0, 0, 0, 50_000))
    np.testing.assert_allclose(Router("smg:least_load").cost(sent)[D], 1.536)
    full = STATE_X._replace(kv_used_blocks=np.full(4, 1_000))
    assert np.all(np.isfinite(Router("smg:least_load").cost(full)))


def test_an_engine_that_reports_no_tokens_is_judged_by_the_requests_that_wait():
    waiting = view_of(waiting_requests=[2, 0, 1, 3], pending_prefill_tokens=[0, 9_000, 0, 0])
    np.testing.assert_allclose(Router("smg:least_load").cost(waiting), [1.024, 0, 0.512, 1.536])
    tokens = Router("smg:least_load", queue_tokens=1).cost(waiting)
    np.testing.assert_allclose(tokens, [0, 4.5, 0, 0])


def test_waits_within_a_microsecond_are_ties():
    view, my = view_of(pending_prefill_tokens=[2, 1, 3_000, 0]), {"queue_tokens": 1}
    assert {choose("smg:least_load", view, r=r, throughput=2e6, **my) for r in range(60)} == {0, 1, 3}
    assert {choose("smg:least_load", view, r=r, throughput=1e5, **my) for r in range(60)} == {3}


def spills(*load, **params):
    my = load_policy("smg:cache_aware", params).my
    return [requests > plain(cache_aware_spill.spill_limit)(i8(*load), my) for requests in load]


def test_an_engine_spills_above_the_mean_and_a_margin_that_grows_slowly():
    assert spills(6, 15, 2, 0) == [False, True, False, False]  # 15 > 8.625 and 15 > 5.75 + 5
    assert spills(5, 1, 1, 1) == [False] * 4  # 5 > 3 but not > 2 + 4
    assert spills(9, 1, 1, 1) == [True, False, False, False]  # 9 > 4.5 and > 3 + 4
    assert spills(6, 1, 1, 0) == [False] * 4  # 6 > 3 but not > 2 + 4: the margin is 4 at least
    assert spills(9, 7, 7, 1) == [False] * 4  # 9 <= 1.5 * 6
    assert spills(5, 1, 1, 1, balance_abs_threshold=2) == [True, False, False, False]  # 5 > 2 + 2


def smg(view, **params):
    return {choose("smg:cache_aware", view, r=r, **params) for r in range(40)}


def test_smg_takes_the_calmest_of_the_best_matches():
    hits = [19_000, 19_000, 10_000, 0]
    assert smg(view_of(hit_tokens=hits)) == {0, 1}
    assert smg(view_of(hit_tokens=hits, running_requests=[1, 0, 0, 0])) == {1}
    assert smg(view_of(hit_tokens=[6_000, 0, 0, 0], running_requests=[1, 0, 0, 0])) == {
        1,
        2,
        3,
    }  # 0.3 is none


def test_only_when_every_holder_spills_others_are_asked_and_none_that_spills():
    hits = [19_000, 19_000, 0, 0, 0, 0]
    one = view_of(hit_tokens=hits, inflight_requests=[30, 1, 1, 1, 1, 1], running_requests=[0, 9, 0, 0, 0, 0])
    assert smg(one) == {1}
    both = one._replace(inflight_requests=i8(30, 30, 1, 1, 1, 1), running_requests=i8(0, 0, 9, 9, 1, 9))
    assert smg(both) == {4}
    miss = view_of(inflight_requests=[30, 1, 1, 1], running_requests=[0, 9, 9, 9])
    assert smg(miss) == {0}  # nobody to leave: all engines are asked
    even = view_of(hit_tokens=hits, inflight_requests=[9] * 6, running_requests=[5, 5, 0, 9, 9, 9])
    assert smg(even, balance_rel_threshold=-1, balance_abs_threshold=-9) == {2}  # all spill: anyone


def test_a_group_has_eight_engines_at_most():
    view = view_of(hit_tokens=[19_000] * 10, running_requests=[1] * 8 + [0] * 2)
    assert smg(view) <= set(range(8))


def test_a_match_loses_value_with_tokens_to_prefill():
    """Engine 0 is one prompt behind engine 1: 19,000 / 2 against 10,000."""
    view = view_of(hit_tokens=[19_000, 10_000, 0, 0], pending_prefill_tokens=[20_000, 0, 0, 0])
    assert smg(view) == {0}
    assert smg(view, overlap_decay=1) == {1}
    assert smg(view, temperature=1) == {0, 1}


# production-stack


def test_a_load_below_one_request_is_not_blown_up():
    view = view_of(running_requests=[1, 0, 0, 0])
    np.testing.assert_allclose(Router("production-stack:loadaware").cost(view), [0.75, -0.25, -0.25, -0.25])


def test_prefixaware_takes_any_of_the_deepest_and_by_default_also_no_match():
    view = view_of(hit_tokens=[640, 640, 320, 0], inflight_requests=[99, 0, 0, 0])
    assert {choose("production-stack:prefixaware", view, r=r) for r in range(40)} == {0, 1}
    assert {choose("production-stack:prefixaware", view_of(), r=r) for r in range(40)} == {0, 1, 2, 3}


def test_a_short_match_goes_to_the_lowest_rate_of_the_last_minute():
    router = Router("production-stack:prefixaware", min_match_characters=4 * 640)
    deep, shallow = view_of(hit_tokens=[640, 0, 0, 0]), view_of(hit_tokens=[639, 0, 0, 0])
    assert [router.choose(deep, r, now=float(r)) for r in range(2)] == [0, 0]
    assert [router.choose(shallow, r, now=10.0) for r in range(2, 6)] == [1, 2, 3, 1]
    assert router.choose(shallow, 6, now=59.5) == 2  # 2, 2, 1, 1 requests: the first of the least
    assert router.choose(shallow, 7, now=61.0) == 0  # its two are forgotten after 60 s


def test_kvaware_goes_by_rate_when_too_little_hits():
    router = Router("production-stack:kvaware")
    short, enough = view_of(hit_tokens=[0, 17_999, 0, 0]), view_of(hit_tokens=[0, 18_000, 18_000, 0])
    assert [router.choose(short, r) for r in range(3)] == [0, 1, 2]
    assert router.choose(enough, 3) == 1  # the first of two
    assert [router.choose(short, r, now=1.0) for r in range(4, 6)] == [3, 0]
    cold = view_of()
    assert router.choose(cold, 6, prompt=100, now=1.0) == 2  # no hit at all is never enough
    assert router.choose(cold, 7, prompt=100, now=61.0) == 0  # a minute later all are equal
    assert router.choose(cold, 8, prompt=100, now=120.9) == 1
    assert router.choose(cold, 9, prompt=100, now=121.0) == 0


# AIBrix


def test_aibrix_restricts_matching_to_the_least_busy_under_the_gate():
    view = view_of(inflight_requests=[9, 0, 0, 4], hit_tokens=[19_000, 0, 200, 19_000])
    assert choose("aibrix:prefix-cache", view) == 2
    view = view._replace(hit_tokens=i8(19_000, 0, 0, 19_000))
    assert {choose("aibrix:prefix-cache", view, r=r) for r in range(40)} == {1, 2}


def test_aibrix_compares_whole_percents_then_requests():
    view = view_of(inflight_requests=[3, 2, 2, 3], hit_tokens=[19_190, 19_010, 0, 18_000])
    assert choose("aibrix:prefix-cache", view) == 1  # 95 and 95 %
    assert (
        choose("aibrix:prefix-cache", view._replace(hit_tokens=i8(19_200, 19_010, 0, 0)), n_deviations=2) == 0
    )
    assert choose("aibrix:prefix-cache", view._replace(hit_tokens=i8(199, 0, 0, 0))) in {
        1,
        2,
    }  # 0 % is no match


# Draws and power of two choices


def test_draw_two_draws_all_pairs_and_never_the_same_engine_twice():
    pairs = [plain(draw_two)(3, 0, r) for r in range(600)]
    assert {*pairs} == {(a, b) for a in range(3) for b in range(3) if a != b}
    assert min(pairs.count(pair) for pair in {*pairs}) > 50
    assert plain(draw_two)(1, 0, 5) == (0, 0)


def test_the_first_drawn_wins_a_tie_of_two():
    for name in ("vllm-router:power_of_two", "sglang-router:power_of_two"):
        assert [choose(name, view_of(), r=r) for r in range(50)] == [
            plain(draw_two)(4, 0, r)[0] for r in range(50)
        ]
    chosen = [choose("vllm-router:power_of_two", STATE_X, r=r) for r in range(200)]
    assert chosen == [
        min(plain(draw_two)(4, 0, r), key=STATE_X.inflight_requests.__getitem__) for r in range(200)
    ]
    chosen = [choose("sglang-router:power_of_two", STATE_X, r=r) for r in range(200)]
    assert chosen == [
        min(plain(draw_two)(4, 0, r), key=STATE_X.context_tokens.__getitem__) for r in range(200)
    ]


def test_draws_follow_weights_and_softmax_falls_with_cost():
    weight = np.array([0.0, 3.0, 1.0])
    counts = np.bincount([plain(draw)(weight, 0, r) for r in range(4_000)], minlength=3)
    assert counts[0] == 0 and abs(counts[1] - 3_000) < 5 * np.sqrt(4_000 * 3 / 16)
    assert {plain(draw)(np.zeros(3), 0, r) for r in range(50)} == {0, 1, 2}
    np.testing.assert_allclose(plain(softmax)(np.array([10.0, 30.0, 20.0]), 0.5), np.exp([0, -2, -1]))
    np.testing.assert_allclose(plain(softmax)(np.array([10.0, np.inf, 30.0]), 0.5), [1, 0, np.exp(-2)])
    np.testing.assert_allclose(plain(softmax)(np.array([7.0, 7.0]), 0.5), [1, 1])


def test_kv_aware_draws_above_temperature_zero():
    """Costs scaled to 0..1: 0 / 1 / .101 / .014."""
    assert {choose("vllm-router:kv_aware", STATE_X, r=r, temperature=0.1) for r in range(200)} == {A, C, D}
    assert {choose("vllm-router:kv_aware", STATE_X, r=r, temperature=0.001) for r in range(100)} == {A}


ROUTERS = ("aibrix", "dynamo", "llm-d", "production-stack", "sglang-router", "smg", "vllm-router")


def test_every_router_of_the_list_has_policies():
    found = {name.split(":")[0] for name in policy_names() if ":" in name}
    assert set(ROUTERS) <= found
