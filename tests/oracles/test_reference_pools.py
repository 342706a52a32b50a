"""The judge's pools by hand: scenarios small enough to compute on paper.

Blocks hold 16 tokens, a token is 1 byte. A batch takes 1 s, and 1 s more per block of prefill; a decode adds
nothing. Engine 0 is a prefill engine and engine 1 a decode engine, unless a test says otherwise. Chains name
a block by a letter. The link passes 16 bytes per second: a block per second.
"""

import math

import pytest
from oracles.reference_pools import LATER, Network, Placement, PoolCluster
from oracles.reference_simulator import BatchCoefficients, Limits, Request

SECOND_PER_BLOCK = BatchCoefficients(b0=1.0, b_prefill=1 / 16)
LARGE = 1000  # blocks
OVER, LOCAL = Placement(0, 1), Placement(1, 1)
BLOCK_PER_SECOND, FREE = Network(16.0), Network()


class Script:
    """Placements by request; what the views showed."""

    def __init__(self, placements, later=()):
        self.placements, self.later = placements, dict(later)
        self.views, self.over = [], []

    def place(self, view, r):
        self.views.append(view)
        answer = self.placements[r]
        return answer(self) if callable(answer) else answer

    def place_decode(self, view, r):
        self.views.append(view)
        answer = self.later[r]
        return answer(self) if callable(answer) else answer

    def ended(self, r):
        self.over.append(r)


def request(chain, tokens, arrival=0.0, output=2, parent=-1, **more):
    return Request(tokens, output, arrival, tuple(chain), parent, **more)


def limits(usable=LARGE, **more):
    return Limits(**{"kv_blocks": usable + 1, "batch_time": SECOND_PER_BLOCK, **more})


def run(requests, placements, roles=("prefill", "decode"), usable=None, network=BLOCK_PER_SECOND, **more):
    """`usable`: blocks by engine."""
    engines = [limits(n, **more) for n in usable or [LARGE] * len(roles)]
    placer = placements if isinstance(placements, Script) else Script(placements)
    return PoolCluster(requests, engines, list(roles), placer, network).run()


A = request("abcd", 64, output=3)


def test_p1_the_prompt_is_computed_here_its_kv_moves_once_and_the_rest_is_computed_there():
    # Prefill 1 + 4. Then 0.5 s of latency and 64/16 = 4 s: 9.5. Two more tokens, 1 s each.
    (a,) = run([A], [OVER], network=Network(16.0, 0.5))
    assert (a.engine, a.decode_engine, a.scheduled, a.first_token) == (0, 1, 0.0, 5.0)
    assert (a.transfer_began, a.transfer_ended, a.moved, a.moves) == (5.0, 9.5, 64, 1)
    assert (a.token_times, a.finish) == ([5.0, 10.5, 11.5], 11.5)
    assert (a.prefilled, a.hit, a.decode_hit) == (64, 0, 0)


def test_p1_one_on_a_decode_engine_is_served_there_as_without_pools():
    (a,) = run([A], [LOCAL])
    assert (a.engine, a.decode_engine, a.token_times, a.moves) == (1, 1, [5.0, 6.0, 7.0], 0)


def test_p2_hand_overs_share_the_link_whatever_their_engines_are():
    # Two prefill engines and two decode engines. First tokens at 5 and at 6. A moves a block alone until 6,
    # then both half a block per second: A's other 3 take until 12; B has 1 left, until 13.
    four = ("prefill", "prefill", "decode", "decode")
    a, b = run([A, request("efgh", 64, 1.0)], [Placement(0, 2), Placement(1, 3)], four)
    assert (a.transfer_ended, b.transfer_ended) == (12.0, 13.0)
    # A latency of 1 s: A moves from 6 on, B from 7 on; the same, a second later. Latencies do not share.
    a, b = run([A, request("efgh", 64, 1.0)], [Placement(0, 2), Placement(1, 3)], four, None, Network(16, 1))
    assert (a.transfer_ended, b.transfer_ended) == (13.0, 14.0)


def test_p3_the_prefill_side_holds_the_blocks_until_the_transfer_ends():
    # 5 blocks: B does not fit beside A, which is computed by 5 and gone by 9. Then 1 + 4 and 4 s.
    b = run([A, request("efgh", 64)], [OVER, OVER], usable=(5, LARGE))[1]
    assert (b.scheduled, b.first_token, b.transfer_ended) == (9.0, 14.0, 18.0)


def test_p3_a_transfer_that_takes_no_time_gives_them_back_at_once():
    # At 5 engine 0 has its turn before engine 1 admits A, and another one after that.
    b = run([A, request("efgh", 64)], [OVER, OVER], usable=(5, LARGE), network=FREE)[1]
    assert (b.scheduled, b.first_token) == (5.0, 10.0)


def test_p4_the_decoder_admits_when_the_blocks_fit_and_nobody_overtakes():
    # One batch of 4 + 4 + 1 blocks: all have a first token at 10. 7 blocks on the decoder: A takes 5, for 65
    # tokens; B needs 5, and C, which would fit, is behind it. A has all its 17 tokens after 16 steps.
    three = [request("abcd", 64, output=17), request("efgh", 64), request("i", 16)]
    a, b, c = run(three, [OVER] * 3, usable=(LARGE, 7), network=FREE)
    assert (a.transfer_began, a.finish) == (10.0, 26.0)
    assert (b.first_token, b.transfer_began, c.transfer_began, b.finish, c.finish) == (10, 26, 26, 27, 27)


def test_p4_the_first_token_needs_a_place_too():
    # Both have a first token at 9, and KV of 4 blocks. 9 blocks are one too few: A has 5 until its end at 25.
    two = [request("abcd", 64, output=17), request("efgh", 64)]
    assert run(two, [OVER] * 2, usable=(LARGE, 9), network=FREE)[1].transfer_began == 25.0
    assert run(two, [OVER] * 2, usable=(LARGE, 10), network=FREE)[1].transfer_began == 9.0


def test_p4_while_kv_moves_others_run_and_seats_are_free():
    # One seat. A is on its way from 5 to 9; C is local on the decoder from 6 to 1 + 1, and 2 more tokens: 10.
    # A's KV is here at 9, but has a seat at 10 only.
    a, c = run([A, request("x", 16, 6.0, 3)], [OVER, LOCAL], max_num_seqs=1)
    assert (c.token_times, a.transfer_ended, a.token_times) == ([8.0, 9.0, 10.0], 9.0, [5.0, 11.0, 12.0])


def test_p4_what_has_come_goes_before_a_preempted_one_that_waits_for_its_blocks():
    # 7 blocks on the decoder. C, local, has 5 of them from its first token at 5 on; A takes the other 2 then,
    # and moves at half a byte per second: until 37. At 21 C has 17 tokens and needs a sixth block for the
    # 81st: it preempts itself and waits in front of A, 6 blocks against 5. At 37 A runs, until 39. Then C is
    # found but for its last token: the other 3 at 40, 41 and 42.
    two = [request("a", 16, output=3), request("cdef", 64, output=20)]
    a, c = run(two, [OVER, LOCAL], usable=(LARGE, 7), network=Network(0.5))
    assert (a.first_token, a.transfer_began, a.transfer_ended, a.finish) == (2.0, 5.0, 37.0, 39.0)
    assert (c.preemptions, c.token_times[-4:], c.prefilled) == (1, [21.0, 40.0, 41.0, 42.0], 64)


def session(turn_1, **more):
    """B extends A, which left KV of 64 + 2 tokens on its decoder, by the block e."""
    return [A, request("abcde", 80, 50.0, 2, parent=0)], [OVER, turn_1]


def test_p5_prefixes_are_found_on_both_sides_and_only_what_is_missing_moves():
    # The prefill engine has 4 of 5 blocks: 1 + 1 s. So has the decoder: one moves, 1 s, then a token.
    b = run(*session(OVER))[1]
    assert (b.hit, b.prefilled, b.first_token) == (64, 16, 52.0)
    assert (b.decode_hit, b.moved, b.transfer_ended, b.finish) == (64, 16, 53.0, 54.0)


def test_p5_without_prefix_caches_the_whole_history_is_computed_and_moved_again():
    b = run(*session(OVER), prefix_caching=False)[1]
    assert (b.hit, b.prefilled, b.first_token, b.moved, b.finish) == (0, 80, 56.0, 80, 62.0)


def test_p5_appended_locally_it_hits_what_the_decoder_has_and_nothing_moves():
    b = run(*session(LOCAL))[1]
    assert (b.engine, b.hit, b.prefilled, b.moves, b.token_times) == (1, 64, 16, 0, [52.0, 53.0])


def test_p5_what_a_decoder_computed_does_not_go_back_to_the_prefill_engine():
    # A turn of 17 tokens leaves KV of 5 blocks on the decoder; the prefill engine has the prompt's 4. Of "f"
    # and of the fifth block: 2 computed, but only "f" is moved. First token at 50 + 1 + 2.
    a, b = request("abcd", 64, output=17), request("abcdef", 96, 50.0, parent=0)
    result = run([a, b], [OVER, OVER])[1]
    assert (result.hit, result.prefilled, result.decode_hit, result.moved) == (64, 32, 80, 16)
    assert (result.first_token, result.finish) == (53.0, 55.0)


def test_p5_what_is_on_its_way_cannot_be_found_before_it_is_here():
    # Both hand-overs of the same prompt have begun before one has ended: 2 * 64 bytes, 8 s. c comes later.
    same = [request("abcd", 64), request("abcd", 64), request("abcd", 64, 30.0)]
    a, b, c = run(same, [OVER] * 3)
    # b hits 48 of a's tokens in the same batch (never all): 1 + 4 + 1.
    assert (a.first_token, a.moved, b.moved, a.transfer_ended, b.transfer_ended) == (6.0, 64, 64, 14.0, 14.0)
    # All of c is on its decoder: nothing but the latency, which is 0.
    assert (c.hit, c.decode_hit, c.moved, c.moves, c.transfer_ended) == (48, 64, 0, 1, c.first_token)


def test_p5_routers_hear_of_it_at_the_end_of_the_transfer():
    # A's prompt is computed by 5 and on the decoder at 9; its next step there ends at 10.
    late = [request("abcde", 80, at, 1) for at in (8.5, 9.5)]
    script = Script([OVER, LOCAL, LOCAL])
    run([A, *late], script)
    assert [view.hit_tokens for view in script.views] == [[0, 0], [64, 0], [64, 64]]


def test_p6_an_output_of_one_token_ends_where_its_prompt_was_computed():
    (a,) = run([request("abcd", 64, output=1)], [OVER])
    assert (a.engine, a.decode_engine, a.first_token, a.finish, a.moves) == (0, 0, 5.0, 5.0, 0)


def test_p7_one_preempted_on_its_decoder_is_computed_anew_there():
    # Both have a first token at 1 + 8 = 9 and take 5 of 11 blocks each. At 25 each has 17 and needs a sixth
    # block for the 81st: A gets it, and B is preempted. A has all its 20 at 28.
    a, b = run(
        [request("abcd", 64, output=20), request("efgh", 64, output=20)], [OVER] * 2, usable=(99, 11),
        network=FREE,
    )  # fmt: skip
    assert (a.finish, a.preemptions, b.preemptions, b.moves) == (28.0, 0, 1, 1)
    # B's 5 blocks were whole and are found: the last token is a decode, no more is computed, nothing moves.
    assert (b.prefilled, b.token_times[16], b.token_times[17], b.finish) == (64, 25.0, 29.0, 31.0)


def test_p8_what_no_permitted_placement_can_serve_is_rejected():
    wrong = [Placement(0, 0), Placement(1, 0), Placement(7, 1), Placement(0, 7), Placement(LATER, LATER)]
    for placement in wrong:  # decoding on a prefill engine, upstream, no such engine
        assert run([A], [placement])[0].status == "rejected"
    both = ("both", "both")
    assert run([A], [Placement(0, 1)], both)[0].status == "rejected"
    assert run([A], [Placement(0, 0)], both)[0].status == "done"
    # 64 + 17 - 1 tokens are 5 blocks on the decoder; on the prefill engine 64 are 4.
    big = request("abcd", 64, output=17)
    assert [run([big], [OVER], usable=n)[0].status for n in ((4, 5), (3, 5), (4, 4))] == [
        "done", "rejected", "rejected",
    ]  # fmt: skip
    assert run([big], [LOCAL], usable=(3, 5))[0].status == "done"
    # Nothing could: the placer is not asked, and hears that it has ended.
    script = Script([OVER])
    assert run([big], script, usable=(4, 4))[0].status == "rejected"
    assert (script.views, script.over) == ([], [0])


def test_p9_who_is_told_to_wait_is_asked_again_when_a_request_ends():
    # B may go when A has ended, at 9 + 2; its wait counts. C, which came later, has not waited.
    placements = [OVER, lambda script: OVER if 0 in script.over else None, LOCAL]
    a, b, c = run([A, request("efgh", 64, 1.0), request("x", 16, 2.0, 1)], placements)
    assert (a.finish, b.arrival, b.scheduled, b.first_token) == (11.0, 1.0, 11.0, 16.0)
    assert c.scheduled == 2.0


def test_p9_a_decoder_chosen_at_the_hand_over_holds_the_kv_until_it_is_known():
    # A asks at 5 and must wait for C, which is on the decoder until 20. Engine 0 has 5 blocks: B waits for A.
    later = Placement(0, LATER)
    script = Script([later, later, LOCAL], {0: lambda s: 1 if 2 in s.over else None, 1: 1})
    a, b, c = run([A, request("efgh", 64, 1.0), request("x", 16, 0.0, 19)], script, usable=(5, LARGE))
    assert (c.finish, a.first_token, a.transfer_began, a.transfer_ended) == (20.0, 5.0, 20.0, 24.0)
    assert (b.scheduled, b.first_token, b.transfer_ended) == (24.0, 29.0, 33.0)


def test_p9_a_decoder_that_cannot_serve_it_rejects_it_at_the_hand_over():
    # Engine 2 is too small for A. Its blocks are given back: B, which fits alone only, starts at 5.
    later = Placement(0, LATER)
    a, b = run(
        [A, request("efgh", 64)], Script([later, later], {0: 2, 1: 1}), ("prefill", "decode", "decode"),
        (5, 9, 4),
    )  # fmt: skip
    assert (a.status, a.moves, math.isnan(a.first_token)) == ("rejected", 0, True)
    assert (b.status, b.scheduled, b.decode_engine) == ("done", 5.0, 1)


def test_p10_a_request_is_in_flight_on_both_sides_while_it_is_on_its_first():
    # At 1 A is computed; at 6 its KV moves; at 20 it has ended.
    looks = [request("x", 16, at, 1) for at in (1.0, 6.0, 20.0)]
    script = Script([OVER, LOCAL, LOCAL, LOCAL])
    run([A, *looks], script)
    views = script.views[1:]
    assert [view.inflight_requests for view in views] == [[1, 1], [0, 1], [0, 0]]
    assert [view.inflight_prefill_tokens for view in views] == [[64, 0], [0, 0], [0, 0]]
    # What engines publish: at 1 four blocks are in use on the one, at 6 also five on the other, and A waits.
    assert [view.kv_used_blocks for view in views] == [[4, 0], [4, 5], [0, 0]]
    assert [view.waiting_requests for view in views] == [[0, 0], [0, 1], [0, 0]]
    assert [view.pending_prefill_tokens for view in views] == [[64, 0], [0, 0], [0, 0]]
    assert [view.context_tokens for view in views] == [[64, 0], [0, 65], [0, 0]]
    assert [(view.last_chosen, view.last_decode) for view in script.views] == [
        (-1, -1),
        (0, 1),
        (1, 1),
        (1, 1),
    ]


@pytest.mark.parametrize("network", [FREE, BLOCK_PER_SECOND])
def test_p11_deflection_is_a_local_placement_on_a_decode_engine(network):
    # A's prompt is computed on the decoder in one batch with C's decodes: 1 + 4 s for both.
    a, c = run([request("abcd", 64, 3.0), request("x", 16, 0.0, 5)], [LOCAL, LOCAL], network=network)
    assert c.token_times == [2.0, 3.0, 8.0, 9.0, 10.0]
    assert a.token_times == [8.0, 9.0]
