"""When session ids are believed: each rule by hand, with the legitimate log that resembles its target."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracles.tau_bench import rendering
from oracles.tries import plant

from agentctl.ingest.session_ids import (
    ENOUGH_ROWS,
    check_explicit_ids,
    differs_on_every_row,
    most_in_flight,
    nothing_in_common,
    one_for_all,
    split_turns_share,
    too_many_at_once,
    unrelated_share,
)
from agentctl.ingest.sessions import NO_TIP, derive_block_chain_sessions

NAN = float("nan")


def check(keys, chains=None, chain_session=None, ends=None):
    """Requests one a second; no end times and no chains unless given."""
    n = len(keys)
    trie = plant(chains or [])
    return check_explicit_ids(
        np.array(keys), np.arange(n, dtype=float), np.full(n, NAN) if ends is None else np.array(ends),
        trie.tip if chains else np.full(n, NO_TIP, np.uint32), trie.parent,
        None if chain_session is None else np.array(chain_session),
    )  # fmt: skip


def conversations(sessions, turns):
    """Chains and session of interleaved conversations that share nothing."""
    chains = [[100 * s + t for t in range(turn + 1)] for turn in range(turns) for s in range(1, sessions + 1)]
    return chains, [s for _ in range(turns) for s in range(sessions)]


def test_ids_that_follow_the_conversations_are_accepted():
    chains, session = conversations(sessions=20, turns=3)
    verdict = check(session, chains, session, ends=[i + 0.5 for i in range(60)])
    assert verdict.accepted
    assert verdict.reason is None
    assert verdict.numbers == {
        "ids": 20,
        "rows_without_id": 0,
        "single_request_ids_share": 0.0,
        "single_request_rows_in_chains_share": None,
        "largest_id_rows_share": 0.05,
        "most_in_flight": 1,
        "unrelated_ids_share": 0.0,
        "largest_id_conversations": None,
    }


def test_one_id_over_many_conversations_is_rejected_where_messages_tell_them_apart():
    everybody, pairs = [0] * 40, [i // 2 for i in range(40)]
    times = np.arange(40.0), np.full(40, NAN)
    tree = np.full(40, NO_TIP, np.uint32), plant([]).parent

    def reason(keys, conversation):
        return check_explicit_ids(np.array(keys), *times, *tree, None, np.array(conversation)).reason

    assert reason(everybody, pairs) == "one id covers 100.0% of the rows, which are 20 conversations"
    assert reason(everybody, [0] * 40) is None  # one long conversation
    assert reason(everybody, [min(c, 8) for c in pairs]) is None  # a session with its sub-agents
    assert reason(everybody, range(40)) is None  # calls that nobody continues
    assert reason(everybody, [-1] * 40) is None  # chains that begin in their middle
    assert reason(pairs, pairs) is None


def test_a_new_id_on_every_row_is_rejected_when_chains_show_turns():
    chains, session = conversations(sessions=20, turns=3)
    verdict = check(range(60), chains, session)
    assert not verdict.accepted
    assert verdict.reason == (
        "100.0% of the ids have one request, but 100.0% of these are turns of a chain of prompts"
    )


def test_a_new_id_on_every_row_is_accepted_when_nothing_shows_turns():
    assert check(range(60)).accepted
    assert check(range(60), [[i] for i in range(60)], chain_session=range(60)).accepted


def test_ids_that_nothing_can_test_are_said_to_be_untested():
    assert check(range(60)).is_blind
    assert not check(range(5)).is_blind  # a few are no pattern
    assert not check([i // 2 for i in range(60)]).is_blind
    assert not check(range(60), [[i] for i in range(60)], chain_session=range(60)).is_blind


def test_one_shot_calls_beside_a_few_long_sessions_are_accepted():
    # 200 calls alone, 5 sessions of 20: 98 % of the ids have one request, and the chains agree.
    keys = [*range(200), *(200 + i % 5 for i in range(100))]
    assert check(keys, chain_session=keys).accepted


def test_rule_1_needs_both_single_ids_and_turns_among_them():
    assert differs_on_every_row(0.96, 0.2)
    assert differs_on_every_row(0.95, 1.0) is None
    assert differs_on_every_row(1.0, 0.19) is None
    assert differs_on_every_row(1.0, None) is None


def test_only_requests_alone_under_their_id_are_looked_up_in_the_chains():
    keys, chains = np.array([0, 1, 2, 2, -1]), np.array([5, 6, 5, 5, 6])
    assert split_turns_share(keys, np.array([1, 1, 2]), chains) == 1.0  # rows 0 and 1 sit in sessions 5 and 6
    assert split_turns_share(np.array([0, 0]), np.array([2]), np.array([0, 0])) is None
    assert split_turns_share(keys, np.array([1, 1, 2]), None) is None


def test_a_constant_beside_many_ids_is_rejected():
    verdict = check([0] * 60 + list(range(1, 50)))
    assert verdict.reason == "one id covers 55.0% of the rows"


def test_a_log_of_one_session_is_accepted_until_no_task_is_that_long():
    assert check([7] * 500).accepted
    assert check([7] * ENOUGH_ROWS).reason == "one id covers 100.0% of the rows"


def test_rule_2_spares_a_few_ids_and_half_of_the_rows():
    assert one_for_all(largest=60, ids=9, rows=100) is None
    assert one_for_all(largest=60, ids=10, rows=100)
    assert one_for_all(largest=50, ids=10, rows=100) is None


def test_an_id_with_65_requests_at_once_is_rejected():
    ids = [0] * 65 + [1 + i // 5 for i in range(100)]
    verdict = check(ids, ends=[100.0] * 65 + [200.0] * 100)
    assert verdict.reason == "one id has 65 requests in flight at once"
    assert check(ids).accepted  # the rule abstains without end times
    assert check(ids).numbers["most_in_flight"] is None


def test_rule_3_allows_64_and_abstains_when_it_cannot_count():
    assert too_many_at_once(64) is None
    assert too_many_at_once(65)
    assert too_many_at_once(None) is None


def test_one_request_ends_before_another_starts_at_the_same_instant():
    keys = np.zeros(3, np.int64)
    assert most_in_flight(keys, np.array([0.0, 1.0, 1.0]), np.array([1.0, 2.0, 2.0])) == 2
    assert most_in_flight(keys, np.array([0.0, 1.0, 2.0]), np.array([NAN, NAN, NAN])) is None


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 6), st.integers(1, 4)), max_size=12))
def test_requests_in_flight_are_those_counted_at_every_arrival(spans):
    keys = np.array([key for key, _, _ in spans], np.int64)
    start = np.array([float(begin) for _, begin, _ in spans])
    end = start + np.array([float(length) for _, _, length in spans])
    at_once = [
        sum(1 for j in range(len(spans)) if keys[j] == keys[i] and start[j] <= start[i] < end[j])
        for i in range(len(spans))
        if keys[i] >= 0
    ]
    assert most_in_flight(keys, start, end) == (max(at_once) if at_once else None)


def test_ids_whose_prompts_begin_differently_are_rejected():
    chains = [[i, 100 + i] for i in range(40)]
    verdict = check([i // 2 for i in range(40)], chains)
    assert verdict.reason == "the prompts of 100.0% of the ids share no prefix"


def test_sub_agents_with_prompts_of_their_own_are_accepted():
    # Main line of two turns, two sub-agents of one call each that begin differently.
    session = [[1], [50], [60], [1, 2]]
    chains = [[1000 * s + block for block in chain] for s in range(10) for chain in session]
    verdict = check([s for s in range(10) for _ in session], chains)
    assert verdict.accepted
    assert verdict.numbers["unrelated_ids_share"] == 0.0


def test_prefixes_are_compared_only_between_known_chains_of_one_id():
    trie = plant([[1], [2], [3, 4], [3, 5], [9]])
    tip = trie.tip.copy()
    tip[4] = NO_TIP
    keys = np.array([0, 0, 1, 1, 1])
    assert unrelated_share(keys, tip, trie.parent) == 0.5  # id 0 of two
    assert unrelated_share(np.arange(5), tip, trie.parent) is None
    assert unrelated_share(np.full(5, -1), tip, trie.parent) is None


def test_rule_4_needs_most_ids_to_be_unrelated():
    assert nothing_in_common(0.51)
    assert nothing_in_common(0.5) is None
    assert nothing_in_common(None) is None


def test_a_log_without_any_id_says_so():
    verdict = check([-1, -1])
    assert (verdict.accepted, verdict.reason) == (False, "no row has a session id")


def test_tau_bench_keeps_its_ids_and_loses_a_proxys_random_ones():
    log = rendering("bailian/trace_blksz_16.jsonl.gz")
    tree = (log.trie.tip, log.trie.parent)
    chains = derive_block_chain_sessions(
        log.arrival, log.prompt, log.output, *tree, log.trie.depth, log.block_tokens
    )
    times = (log.arrival, log.number("end_unix_s"))
    assert check_explicit_ids(log.session, *times, *tree, chains.session).accepted
    random_ids = np.arange(log.session.size)
    verdict = check_explicit_ids(random_ids, *times, *tree, chains.session)
    assert verdict.reason is not None and verdict.reason.startswith("100.0% of the ids have one request")
