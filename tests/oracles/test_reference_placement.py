"""Rules of placement by hand: the products' on the cross-check state, ConServe's and its baselines'.

Blocks hold 16 tokens, a token is 1 byte. A batch takes 1 s, and 1 s more per block of prefill; a decode adds
nothing. The link takes no time.
"""

import pytest
from oracles.reference_placement import (
    AmpdLimits,
    Deciding,
    Disaggregated,
    Needs,
    Pinned,
    ampd_local,
    dynamo_splits,
    llmd_splits,
    vllm_router_pd,
)
from oracles.reference_pools import LATER, PoolCluster
from oracles.reference_simulator import AFTER_END, BatchCoefficients, Limits, Request

# ---------------------------------------------------------------------------------------- products' rules

HITS = {"A": 18_000, "B": 19_200, "C": 2_400, "D": 0}  # of 20,000 prompt tokens, by decode engine


def test_llm_d_and_dynamo_split_where_the_cross_check_says():
    # Uncached: A 2,000 (0.10), B 800 (0.04), C 17,600 (0.88), D 20,000 (1.0).
    remote = {"A": False, "B": False, "C": True, "D": True}
    assert {e: llmd_splits(20_000, hit, 2048) for e, hit in HITS.items()} == remote
    assert {e: dynamo_splits(20_000, hit) for e, hit in HITS.items()} == remote


def test_llm_d_splits_at_the_limits_and_never_by_default():
    assert llmd_splits(4096, 2048, 2048, 4096)  # at least: both limits are reached
    assert not llmd_splits(4096, 2049, 2048, 4096)
    assert not llmd_splits(4095, 0, 2048, 4096)
    assert not llmd_splits(20_000, 0)


def test_dynamo_splits_above_both_limits_only():
    assert not dynamo_splits(2048, 0) and dynamo_splits(2049, 0)
    assert not dynamo_splits(10_000, 3_000)  # 7,000 of 10,000 is not more than 0.7
    assert dynamo_splits(10_000, 2_999)


def test_vllm_router_takes_the_cheapest_way_of_its_calibration():
    costs = {"local-append": 0.2, "warm-remote": 0.3, "cold-remote": 0.9}
    assert vllm_router_pd(costs) == "local-append"
    assert vllm_router_pd({**costs, "warm-remote": 0.2}) == "warm-remote"  # a tie: first of the list
    with pytest.raises(ValueError, match="calibration"):
        vllm_router_pd({})


def test_ampd_stays_local_if_the_decode_steps_allow_it_and_it_is_soon_enough_or_soonest():
    # Remote on 0: max(1, 2) + 0.5 + 0.1 = 2.6; on 1: max(3, 2) + 0.6 = 3.6.
    common = {"queues": {0: 1.0, 1: 3.0}, "compute": 0.5, "move_history": 2.0, "move_appended": 0.1}

    def decide(own_queue, tbt=0.03, added=0.01, ttft_slo=1.0):
        slo = AmpdLimits(ttft_slo, tbt_slo=0.05)
        return ampd_local(own_queue, **common, tbt=tbt, added=added, limits=slo)

    assert decide(0.5) == LATER  # 1.0 meets the SLO
    assert decide(2.05) == LATER  # 2.55 does not, but beats 2.6
    assert decide(2.2) == 0  # 2.7 does neither
    assert decide(0.0, tbt=0.045) == 0  # a chunk would make 0.055 of a step


# --------------------------------------------------------------------------------------- sessions on engines


def chain(session, tokens):
    return tuple((session, block) for block in range(tokens // 16))


def conversation(session, start, turns, first=0):
    """`turns`: (appended, output) each; request numbers from `first` on; the next turn follows at once."""
    made, before = [], 0
    for k, (fresh, output) in enumerate(turns):
        prompt = before + fresh
        made.append(
            Request(
                prompt, output, start + k, chain(session, prompt), first + k - 1 if k else -1, session,
                AFTER_END if k else 0, 0.0, (first + k - 1,) if k else (),
            )
        )  # fmt: skip
        before = prompt + output
    return made


def run(requests, roles, placer, **more):
    limits = Limits(kv_blocks=1000, batch_time=BatchCoefficients(1.0, 1 / 16), **more)
    return PoolCluster(requests, [limits] * len(roles), list(roles), placer).run()


# Two turns: 48 + 16, then 16 appended to 64 and 16 more: a final context of 96 tokens. Alone on ConServe:
# 1 + 3 and 15 steps: 19; the next turn on the decoder has hit 48 (63 have KV), and 1 + 2 and 15 steps: 37.
TURNS = [(48, 16), (16, 16)]
PD = ("prefill", "decode", "decode")


def two_sessions():
    return conversation(0, 0.0, TURNS) + conversation(1, 1.0, TURNS, first=2)


def test_conserve_moves_kv_once_and_appends_on_the_decoder():
    requests = conversation(0, 0.0, TURNS)
    a, b = run(requests, PD, Pinned(Needs(requests, {1: 1000, 2: 1000}), {0: 1.0}))
    assert (a.engine, a.decode_engine, a.moves, a.moved, a.first_token, a.finish) == (0, 1, 1, 48, 4.0, 19.0)
    assert (b.engine, b.decode_engine, b.moves, b.hit, b.first_token, b.finish) == (1, 1, 0, 48, 22.0, 37.0)


def test_conserve_takes_the_decoder_with_the_most_free_kv():
    # The cross-check: 208,448 free of 308,448 on the first of three, for 16,431.
    requests = conversation(0, 0.0, [(15_500, 931)])
    needs = Needs(requests, dict.fromkeys((1, 2, 3), 308_448))
    needs.used = {1: 100_000, 2: 200_000, 3: 290_000}
    assert (needs.at_admission(0), needs.admit(0), needs.used[1]) == (16_431, 1, 116_431)
    # One session on engine 1: the next one goes to 2.
    requests = two_sessions()
    results = run(requests, PD, Pinned(Needs(requests, {1: 1000, 2: 1000}), {0: 1.0}))
    assert [result.decode_engine for result in results] == [1, 1, 2, 2]


def test_conserve_admits_a_session_when_its_whole_need_has_room():
    # One decoder of 96 + 95 tokens: the second session waits until the first has ended, at 37. That counts.
    requests = two_sessions()
    placer = Pinned(Needs(requests, {1: 191}), {0: 1.0})
    first, second = run(requests, PD[:2], placer)[1:3]
    assert (first.finish, second.arrival, second.scheduled) == (37.0, 1.0, 37.0)
    assert (placer.needs.used, placer.needs.held) == ({1: 0}, {})
    # 192: both at once.
    assert run(requests, PD[:2], Pinned(Needs(requests, {1: 192}), {0: 1.0}))[2].scheduled == 4.0


def test_conserve_by_turn_needs_the_first_turn_only_and_may_go_over_its_budget():
    # 64 + 64 tokens are admitted to 128; both later turns go over it, without a check.
    requests, over = two_sessions(), []
    placer = Pinned(Needs(requests, {1: 128}, "per_turn"), {0: 1.0})
    later_turn = placer.needs.later_turn
    placer.needs.later_turn = lambda r, e: (later_turn(r, e), over.append(placer.needs.used[e]))
    results = run(requests, PD[:2], placer)
    assert results[2].scheduled == 4.0
    assert over == [160, 192] and placer.needs.used == {1: 0}


def test_conserve_by_quantile_needs_what_sessions_ended_with():
    requests = two_sessions()
    needs = Needs(requests, {1: 1000}, "quantile", 0.5)
    assert needs.at_admission(0) == 64  # nothing is known
    needs.finals = [70, 90, 200]
    assert needs.at_admission(0) == 90
    needs.admit(0)
    assert needs.used == {1: 90}
    needs.later_turn(1, 1)  # 96 in all: 6 more
    assert needs.used == {1: 96}
    needs.give_back(0, 1)
    assert (needs.used, needs.finals[-1]) == ({1: 0}, 96)


def test_conserve_gives_a_session_that_no_budget_holds_the_largest_for_itself():
    # 64 and then 32 more, where 95 fit: the second session waits until the first has ended.
    requests = two_sessions()
    placer = Pinned(Needs(requests, {1: 95}), {0: 1.0})
    first, second = run(requests, PD[:2], placer)[1:3]
    assert (first.finish, second.arrival, second.scheduled) == (37.0, 1.0, 37.0)
    assert placer.needs.used == {1: 0}


def test_conserve_rejects_a_request_that_no_budget_holds():
    requests = two_sessions()
    results = run(requests, PD[:2], Pinned(Needs(requests, {1: 63}), {0: 1.0}))
    assert [result.status for result in results[::2]] == ["rejected", "rejected"]


def test_conserve_takes_the_prefill_engine_with_the_least_work_over_its_rate():
    # 48 tokens are in flight on engine 0 and 16 on engine 1, which is four times slower.
    requests = [
        Request(n, 2, at, chain(s, n), session=s) for s, (n, at) in enumerate([(48, 0), (16, 0.5), (16, 1)])
    ]
    results = run(
        requests, ("prefill", "prefill", "decode"), Pinned(Needs(requests, {2: 1000}), {0: 4.0, 1: 1.0})
    )
    assert [result.engine for result in results] == [0, 1, 0]  # 48/4 against 16/1


def test_conserve_hands_over_the_first_turn_that_decodes():
    requests = conversation(0, 0.0, [(48, 1), (16, 16), (16, 16)])
    results = run(requests, PD, Pinned(Needs(requests, {1: 1000, 2: 1000}), {0: 1.0}))
    assert [(result.engine, result.moves) for result in results] == [(0, 0), (0, 1), (1, 0)]


def test_collocated_pins_sessions_to_the_least_loaded_engine():
    requests = two_sessions()
    results = run(requests, ("both", "both"), Pinned(Needs(requests, {0: 1000, 1: 1000})))
    assert [(result.engine, result.moves, result.hit) for result in results] == [
        (0, 0, 0), (0, 0, 48), (1, 0, 0), (1, 0, 48),
    ]  # fmt: skip


@pytest.mark.parametrize("at_hand_over", [False, True])
def test_full_disaggregation_moves_the_whole_history_every_turn(at_hand_over):
    # Without reuse: 48, then 80 tokens. 1 + 3 + 15 = 19; 19 + 1 + 5 + 15 = 40.
    requests = conversation(0, 0.0, TURNS)
    placer = Disaggregated(Needs(requests, {1: 1000, 2: 1000}), {0: 1.0}, at_hand_over)
    a, b = run(requests, PD, placer, prefix_caching=False)
    assert [(q.engine, q.moved, q.finish) for q in (a, b)] == [(0, 48, 19.0), (0, 80, 40.0)]
    assert placer.needs.used == {1: 0, 2: 0}


def test_full_disaggregation_waits_before_the_prefill_or_after_it():
    # One decoder for 65 tokens: sessions of one turn, 48 + 16 tokens, one at a time. The first ends at 19.
    requests = conversation(0, 0.0, TURNS[:1]) + conversation(1, 1.0, TURNS[:1], first=1)
    early = run(requests, PD[:2], Disaggregated(Needs(requests, {1: 65}), {0: 1.0}))[1]
    assert (early.scheduled, early.first_token, early.finish) == (19.0, 23.0, 38.0)
    late = run(requests, PD[:2], Disaggregated(Needs(requests, {1: 65}), {0: 1.0}, at_hand_over=True))[1]
    assert (late.scheduled, late.first_token, late.transfer_began, late.finish) == (4.0, 8.0, 19.0, 34.0)


def test_decided_by_turn_goes_remote_when_the_rule_says_so_and_comes_back_to_its_decoder():
    # Dynamo's rule on small numbers: 32 of 80 tokens are not on the decoder (0.4).
    requests = conversation(0, 0.0, TURNS)
    for share, engine, moved in ((0.3, 0, 32), (0.4, 1, 0)):

        def is_remote(view, r, decode, share=share):
            return dynamo_splits(requests[r].prompt, view.hit_tokens[decode], tokens=31, share=share)

        placer = Deciding(Needs(requests, {1: 1000, 2: 1000}), {0: 1.0}, is_remote)
        b = run(requests, PD, placer)[1]
        assert (b.engine, b.decode_engine, b.moved) == (engine, 1, moved)
