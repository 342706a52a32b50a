"""Sessions from message chains: by hand, against the definition, and on conversations with known answers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.messages import Call, SlowChains, message_log
from oracles.tau_bench_messages import interleaved_calls
from oracles.tries import plant

from agentctl.ingest import compaction
from agentctl.ingest.ids import Ids
from agentctl.ingest.message_chains import (
    CONFIDENCE,
    KINDS,
    RETRY_WITHIN,
    MessageChains,
    derive_message_chain_sessions,
    first_nodes,
)
from agentctl.ingest.trie import Trie


def call(messages: str, arrival: float, end: float | None = None, **more) -> Call:
    """A call of words; those that begin with "a" are answers. It takes half a second unless told."""
    return Call(tuple(messages.split()), arrival, arrival + 0.5 if end is None else end, **more)


def derive(*calls: Call) -> MessageChains:
    return derive_message_chain_sessions(*message_log(calls))


def kinds(chains: MessageChains) -> list[str]:
    return [KINDS[kind] for kind in chains.kind]


def test_a_conversation_is_one_session_and_a_stranger_with_the_same_system_prompt_another():
    chains = derive(call("sys u", 0), call("sys v", 1), call("sys u a1 w", 2), call("sys u a1 w a2 x", 3))
    assert chains.parent_row.tolist() == [-1, -1, 0, 2]
    assert chains.session.tolist() == [0, 1, 0, 0]
    assert kinds(chains) == ["start", "start", "extended", "extended"]


def test_without_an_answer_in_between_nothing_is_continued():
    # A probe with the system prompt alone is no parent of everybody's first question.
    assert derive(call("sys", 0), call("sys u", 1), call("sys u v", 2)).parent_row.tolist() == [-1, -1, -1]


def test_the_longest_earlier_list_is_the_parent_even_if_a_shorter_one_is_later():
    chains = derive(call("s u", 0), call("s u a v", 1), call("s u", 2), call("s u a v a2 w", 3))
    assert chains.parent_row.tolist() == [-1, 0, -1, 1]


def test_the_same_prompt_after_a_failure_is_a_retry_and_the_next_turn_follows_it():
    chains = derive(
        call("s u", 0, status="aborted"), call("s u", 1, status="error"), call("s u", 2), call("s u a v", 3)
    )
    assert chains.retry_of.tolist() == [-1, 0, 1, -1]
    assert chains.parent_row.tolist() == [-1, -1, -1, 2]
    assert set(chains.session) == {0}
    assert kinds(chains) == ["start", "retry", "retry", "extended"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (call("s u", 0), call("s u", 1)),  # it did not fail
        (call("s u", 0, end=2, status="error"), call("s u", 1)),  # it had not failed yet
        (call("s u", 0, status="error"), call("s u", RETRY_WITHIN + 1)),  # a job of the next hour
        (call("s u", 0, status="error"), call("s u", 1, party=1)),
    ],
)
def test_the_same_prompt_otherwise_is_another_session(first, second):
    assert derive(first, second).session.tolist() == [0, 1]


def test_a_failed_prompt_may_be_continued_without_an_answer():
    chains = derive(call("s u", 0, status="aborted"), call("s u v", 1))
    assert chains.parent_row.tolist() == [-1, 0] and kinds(chains) == ["start", "unanswered"]
    # ... but a failed probe with the system prompt alone belongs to nobody
    assert derive(call("s", 0, status="error"), call("s v", 1)).parent_row.tolist() == [-1, -1]


def test_equal_first_prompts_are_told_apart_by_the_answer_that_follows():
    first = [call("s u", 0, reply="a1"), call("s u", 1, reply="a2")]
    chains = derive(*first, call("s u a1 v", 2), call("s u a2 w", 3))
    assert chains.parent_row.tolist() == [-1, -1, 0, 1]
    assert kinds(chains)[2:] == ["answered", "answered"]


def test_equal_first_prompts_without_logged_answers_are_each_continued_once_the_later_first():
    chains = derive(call("s u", 0), call("s u", 1), call("s u a1 v", 2), call("s u a2 w", 3))
    assert chains.parent_row.tolist() == [-1, -1, 1, 0]
    assert kinds(chains)[2:] == ["contested", "extended"]


def test_an_answer_that_the_log_does_not_know_is_a_weaker_link():
    calls = [call("s u", 0, reply="a1"), call("s u a9 v", 1), call("s w", 2, reply="a2"), call("s w a2 x", 3)]
    assert kinds(derive(*calls)) == ["start", "differs", "start", "answered"]


def test_where_logged_answers_never_follow_they_are_written_in_another_way_and_say_nothing():
    assert kinds(derive(call("s u", 0, reply="A1"), call("s u a1 v", 1))) == ["start", "extended"]


def test_a_second_continuation_is_a_branch_of_the_same_session():
    chains = derive(call("s u", 0), call("s u a v", 1), call("s u a w", 2))
    assert chains.parent_row.tolist() == [-1, 0, 0] and kinds(chains)[2] == "branch"


def test_a_parent_that_had_ended_comes_before_one_still_running():
    calls = [call("s u", 0), call("s u", 1, end=9), call("s u a v", 2)]
    assert derive(*calls).parent_row.tolist() == [-1, -1, 0]
    assert kinds(derive(call("s u", 1, end=9), call("s u a v", 2))) == ["start", "overlap"]


def test_parties_never_share_a_session():
    assert derive(call("s u", 0), call("s u a v", 1, party=1)).session.tolist() == [0, 1]


def test_a_first_prompt_with_answers_is_a_resumed_session():
    assert kinds(derive(call("s u a v", 0), call("s u a v a2 w", 1))) == ["resumed", "extended"]


def test_a_prompt_that_is_not_known_is_alone():
    log, tree = message_log([call("s u", 0), call("s u a v", 1), call("s u a v a w", 2)])
    log.node[1] = -1
    chains = derive_message_chain_sessions(log, tree)
    assert chains.parent_row.tolist() == [-1, -1, 0] and chains.session.tolist() == [0, 1, 0]


def test_no_rows_are_no_sessions():
    assert [part.size for part in derive()] == [0, 0, 0, 0, 0]


def test_every_kind_of_link_has_a_confidence():
    assert CONFIDENCE.size == len(KINDS) and np.all((CONFIDENCE > 0) & (CONFIDENCE <= 1))


def condensed(**changes) -> list[Call]:
    """A session that ends at 200 tokens, and a shorter prompt that begins with the same two messages."""
    old = [call("s u", 0, prompt=100), call("s u a v a w", 1, prompt=200)]
    return [*old, call("s u summary", 10, **({"prompt": 150} | changes))]


def test_a_shorter_history_of_the_same_task_goes_on_with_its_session():
    chains = derive(*condensed())
    assert chains.parent_row.tolist() == [-1, 0, 1] and kinds(chains)[2] == "compacted"
    assert chains.session.tolist() == [0, 0, 0]


@pytest.mark.parametrize("changes", [{"prompt": 200}, {"prompt": -1}, {"party": 1}])
def test_a_history_that_did_not_shrink_or_of_somebody_else_is_a_new_session(changes):
    assert derive(*condensed(**changes)).session.tolist() == [0, 0, 1]


def test_two_old_sessions_that_fit_are_one_too_many():
    old = [call("s u a v", 0, prompt=200), call("s u a2 w", 1, prompt=200)]
    assert derive(*old, call("s u summary", 10, prompt=150)).session.tolist() == [0, 1, 2]


def test_the_same_task_from_the_start_is_a_new_session():
    old = [call("s u", 0, prompt=100), call("s u a v a w", 1, prompt=200)]
    assert derive(*old, call("s u", 10, prompt=100)).session.tolist() == [0, 0, 1]


def test_a_second_compaction_goes_on_with_the_first():
    calls = [*condensed(), call("s u summary a x", 11, prompt=190), call("s u summary2", 12, prompt=120)]
    chains = derive(*calls)
    assert chains.parent_row.tolist() == [-1, 0, 1, 2, 3]


LONG = compaction.LONG_TOKENS


def summarised(**changes) -> list[Call]:
    """A long session that waits for a tool, and soon a short prompt with the same system prompt."""
    old = [call("s u", 0, prompt=100), call("s u a v", 1, prompt=LONG, calls_tool=True)]
    return [*old, call("s summary", 10, **({"prompt": LONG // 2} | changes))]


def test_an_unfinished_session_of_a_tenant_is_gone_on_with():
    chains = derive(*summarised())
    assert chains.parent_row.tolist() == [-1, 0, 1] and kinds(chains)[2] == "compacted"


def test_careful_rules_for_a_system_prompt_alone():
    log, tree = message_log(summarised())
    for name, value in (("calls_tool", False), ("party", -1)):
        changed = log._replace(**{name: np.full(3, value)})
        assert derive_message_chain_sessions(changed, tree).parent_row.tolist() == [-1, 0, -1]
    shorter = log._replace(prompt=log.prompt - 1)
    assert derive_message_chain_sessions(shorter, tree).parent_row.tolist() == [-1, 0, -1]
    for prompt in (LONG // 2 + 1, 100):  # too long, and no longer than a first prompt without a summary
        assert derive(*summarised(prompt=prompt)).parent_row.tolist() == [-1, 0, -1]
    *old, new = summarised()
    assert derive(*old, replace(new, arrival=130)).parent_row.tolist() == [-1, 0, -1]
    assert derive(*old, replace(new, messages=("s", "a", "a", "a", "x"))).parent_row.tolist() == [-1, 0, -1]
    goes_on = call("s u a v a2 w", 11, prompt=LONG + 9)
    assert derive(*summarised(), goes_on).parent_row.tolist() == [-1, 0, -1, 1]


WORDS = ("s", "u", "v", "a", "ab")


@st.composite
def small_logs(draw) -> list[Call]:
    """Up to 14 calls whose lists grow from one another; no tokens, so that nothing is compacted."""
    calls: list[Call] = []
    clock = 0.0
    for _ in range(draw(st.integers(1, 14))):
        old = draw(st.sampled_from(calls)) if calls and draw(st.integers(0, 3)) else None
        begin = () if old is None else old.messages
        if old is not None and old.reply and draw(st.booleans()):
            begin = (*begin, old.reply)
        new = draw(st.lists(st.sampled_from(WORDS), max_size=2))
        cut = draw(st.integers(0, 5))
        messages = (*begin[: len(begin) - (cut == 0)], *new) or ("s",)
        clock += draw(st.sampled_from([0.0, 1.0, 1.0, RETRY_WITHIN]))
        calls.append(
            Call(
                messages,
                clock,
                draw(st.sampled_from([clock, clock + 0.5, clock + 3, float("nan")])),
                draw(st.sampled_from([None, "a", "ab"])),
                draw(st.sampled_from(["ok", "ok", "ok", "error", "aborted"])),
                draw(st.sampled_from([0, 0, 0, 1])),
            )
        )
    return calls


@settings(max_examples=500)
@given(small_logs())
def test_parents_and_retries_equal_those_of_the_definition(calls):
    chains, slow = derive(*calls), SlowChains(calls)
    assert chains.retry_of.tolist() == slow.retry_of
    assert chains.parent_row.tolist() == slow.parent
    before = np.maximum(chains.parent_row, chains.retry_of)
    for row in np.flatnonzero(before >= 0):
        assert before[row] < row and chains.session[row] == chains.session[before[row]]
    assert chains.session.max() + 1 == np.count_nonzero(before < 0)


@given(small_logs(), st.randoms())
def test_how_the_nodes_are_numbered_makes_no_difference(calls, rng):
    log, tree = message_log(calls)
    shuffled = list(calls)
    rng.shuffle(shuffled)
    other, other_tree = message_log(shuffled)  # first use in another order: other numbers
    place = [shuffled.index(call) for call in calls]  # equal calls are interchangeable
    moved = log._replace(node=other.node[place], reply=other.reply[place])
    for one, two in zip(
        derive_message_chain_sessions(log, tree),
        derive_message_chain_sessions(moved, other_tree),
        strict=True,
    ):
        assert one.tolist() == two.tolist()


@given(st.lists(st.lists(st.integers(0, 2), max_size=4), max_size=8))
def test_the_tree_that_ingest_grows_and_the_first_two_messages(chains):
    trie = Trie()
    starts = np.cumsum([0, *(1 + len(chain) for chain in chains)])
    values = np.array([word for chain in chains for word in (99, *chain)], np.uint64)
    tips = trie.insert(Ids(values, starts, np.zeros(len(chains), bool))).astype(np.int64)
    head, second = first_nodes(tips, trie.parent)
    planted = plant(chain[:1] for chain in chains).tip, plant(chain[:2] for chain in chains).tip
    for nodes, tip, length in ((head, planted[0], 1), (second, planted[1], 2)):
        for row, chain in enumerate(chains):
            assert (nodes[row] >= 0) == (len(chain) >= length)
            for other in range(row):
                if min(len(chain), len(chains[other])) >= length:
                    assert (nodes[row] == nodes[other]) == (tip[row] == tip[other])


@pytest.mark.parametrize("with_replies", [True, False])
@pytest.mark.parametrize("seed", [1, 2])
def test_tau_bench_conversations_are_found_exactly(seed, with_replies):
    calls = interleaved_calls(seed, with_replies=with_replies)
    chains = derive(*calls)
    row_of = {call.truth: row for row, call in enumerate(calls)}
    true_parent = [row_of.get((call.truth[0], call.truth[1] - 1), -1) for call in calls]
    exact = np.count_nonzero(chains.parent_row == true_parent)
    assert len(calls) == 1_229 and exact >= 0.999 * len(calls)
    assert chains.session.max() + 1 == 100


def test_on_tau_bench_the_number_of_answers_is_the_turn():
    assert all(call.assistants == call.truth[1] for call in interleaved_calls(1))
