"""The authors' runs by hand, and against the judge of clusters.

A batch takes 1 s, and 1 s more per prefill token unless another figure is given; a transfer 4.849 ms, and the
prefill engine 40 us a token.
"""

from oracles.conserve_paper import Recorded, transfer, wrong_turn
from oracles.reference_conserve import Coefficients, Conversation, Run
from oracles.reference_simulator import AFTER_END, BatchCoefficients, Cluster, Limits, Request
from pytest import approx

PLAIN = Coefficients(h0=0.0, b0=1.0, b_prefill=1.0, b_decode=0.0, b_context=0.0)
MOVED = transfer(1)


def run(conversations, policy, engines=1, **more):
    return Run(conversations, policy, engines, coefficients=PLAIN, **more).run()


def test_one_conversation_is_prefilled_moved_and_served_where_it_is():
    # 17 tokens take 0.00068 s and move; on the decoder one token of them is left: 1 + 1, then 2 more steps.
    # The next turn has 20 + 9 tokens, of which 19 have KV and 16 are a whole block: 1 + 13, and 1 more step.
    (result,) = run([Conversation(5.0, [17, 9], [3, 2])], "conserve")
    start = 5.0 + 17 * 4e-5 + MOVED
    assert result.turns[0].sent == start == result.asked
    assert result.turns[0].token_times == approx([start + 2, start + 3, start + 4])
    assert result.turns[1].token_times == approx([start + 4 + 14, start + 4 + 15])
    assert (result.moves, result.moved) == (1, 17)
    assert result.ttfet == approx(17 * 4e-5 + MOVED + 18)
    assert result.e2e == approx(result.ttfet + 1)


def test_collocated_computes_its_first_turn_and_waits_for_the_queue_outside_of_its_clock():
    # The second would have begun when the first had been prefilled, 40 ms after it.
    a, b = run([Conversation(0.0, [1000], [2]), Conversation(0.0, [10], [1])], "collocated", 2)
    assert (a.turns[0].sent, b.turns[0].sent) == (0.0, 1000 * 4e-5)
    assert a.turns[0].token_times == [1001.0, 1002.0] and a.moves == 0
    assert b.ttfet == approx(11.0)


def test_disaggregated_sends_the_whole_history_every_turn():
    # 10 tokens, one step for their last one and one more; then 10 + 2 + 4.
    (result,) = run([Conversation(0.0, [10, 4], [2, 1])], "disaggregated")
    first = 10 * 4e-5 + MOVED + 3
    assert [turn.end for turn in result.turns] == approx([first, first + 16 * 4e-5 + MOVED + 2])
    assert (result.moves, result.moved, result.before) == (2, 26, 0.0)


def test_who_waits_looks_every_50_ms_from_its_own_beginning():
    # Room for one of them. The first has it until 4.0449; the second began to look at 0.0058 and sees it at
    # 0.0058 + 81 * 0.05. Neither clock counts that.
    talks = [Conversation(0.0, [1000], [2]), Conversation(0.0, [20], [1])]
    a, b = run(talks, "conserve", budget=1002)
    assert a.turns[0].end == approx(1000 * 4e-5 + MOVED + 1 + 8 + 1)  # 8 tokens behind 62 whole blocks
    began = 1020 * 4e-5 + MOVED
    looks = -(-(a.turns[0].end - began) // 0.05)
    assert b.turns[0].sent == approx(began + looks * 0.05)
    assert b.ttfet == approx(20 * 4e-5 + MOVED + 1 + 4)


def test_a_session_goes_where_most_room_is_left_and_per_turn_may_exceed_it():
    talks = [
        Conversation(0.0, [30, 1], [1, 1]),
        Conversation(0.0, [10, 50], [1, 1]),
        Conversation(0.0, [5], [1]),
    ]
    talks[2] = Conversation(0.0, [5, 1], [1, 1])
    assert [r.engine for r in run(talks, "conserve", 2, budget=62)] == [0, 1, 0]
    assert [r.engine for r in run(talks, "conserve", 2, kv="per_turn", budget=40)] == [0, 1, 1]


def test_the_quantile_is_that_of_conversations_that_have_ended():
    machine = Run([Conversation(0.0, [10], [2])], "conserve", 1, kv="quantile", quantile=0.5)
    assert machine._need(Conversation(0.0, [10], [2])) == 12
    machine.finals = [70, 90, 200]
    assert machine._need(Conversation(0.0, [10], [2])) == 90
    assert machine._need(Conversation(0.0, [100], [2])) == 102


def test_a_wrong_turn_pauses_its_conversation_and_nobody_else():
    right, wrong = ([Conversation(0.0, [17, 9], [3, 2], wrong)] for wrong in (set(), {1}))
    (a,), (b,) = (run(talk, "conserve", kv="per_turn") for talk in (right, wrong))
    assert b.turns[0].token_times == a.turns[0].token_times
    assert b.turns[1].first_token - a.turns[1].first_token == approx(wrong_turn(20, 9))
    (c,) = run(wrong, "conserve", kv="per_turn", history_start=25_000)
    assert c.turns[1].first_token - a.turns[1].first_token == approx(wrong_turn(25_020, 9))


def test_recorded_wrong_turns_do_not_wait_for_each_other_and_delay_on_paper():
    # Sent at 0 and at 0.5, 1 s each: busy until 2 s and the transfer.
    queue = Recorded()
    assert [queue.first_turn(at, 25_000).end for at in (0.0, 0.5)] == [1.0, 2.0]
    busy = 2.0 + transfer(25_000)
    one, two = (queue.wrong_turn(0.6, 15_400, 68) for _ in range(2))
    assert one == two == busy + wrong_turn(15_400, 68)
    assert queue.delay(0.5) == 0.0
    assert queue.delay(busy + 0.01) == approx(5.6e-3 + 0.95e-6 * 15_468 - 0.01)
    assert queue.first_turn(3.0, 25_000).start == 3.0


def test_with_room_for_all_one_engine_is_the_ordinary_one():
    """Collocated on one engine, against the judge of clusters, in batches of 40 tokens."""
    talks = [Conversation(0.01 * s, [9 + 40 * s, 3, 20], [4 + s, 2, 3]) for s in range(5)]
    coefficients = BatchCoefficients(0.25, 0.125, 0.0625, 0.03125, 0.03125)
    results = Run(
        talks, "collocated", 1, coefficients=Coefficients(0.0, 0.25, 0.125, 0.0625, 0.03125), batch_tokens=40
    ).run()
    requests = []
    for s, talk in enumerate(talks):
        for k in range(3):
            chain = tuple((s, block) for block in range(talk.prompt(k) // 16))
            before = (len(requests) - 1,) if k else ()
            requests.append(
                Request(
                    talk.prompt(k), talk.output[k], results[s].turns[0].sent + 1e-9 * k, chain,
                    before[0] if k else -1, s, AFTER_END if k else 0, 0.0, before,
                )
            )  # fmt: skip
    limits = Limits(kv_blocks=1000, max_num_batched_tokens=40, batch_time=coefficients)
    judged = Cluster(requests, [limits], lambda view, r: 0, 16).run()
    for request, turn in zip(judged, [turn for result in results for turn in result.turns], strict=True):
        assert request.token_times == turn.token_times
