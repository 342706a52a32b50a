"""Policies of papers that remember what they sent: Preble, DualMap and ConServe, through short sequences."""

import numpy as np
from oracles.asking import Router, path_of, plain
from oracles.state_x import view_of

from agentctl.estimators.batch_time import BatchTime
from agentctl.policies import _kv_budget, preble_aibrix

OUT = np.inf

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
