"""Turns, parents and gaps: by hand, against the definitions, and on tau-bench with its truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.tau_bench import RENDERINGS, rendering
from oracles.tries import plant
from oracles.turns import SlowTurns

from agentctl.ingest.sessions import NO_TIP
from agentctl.ingest.turns import (
    PARENT_MISSING,
    RESUMED_TOKENS,
    TOOL_STOPS,
    Log,
    order_turns,
    stop_kind,
)
from agentctl.schema import GAP_KINDS, ORIGINS, STATUSES

BLOCK = 10
NAN = float("nan")
UNKNOWN = {  # what a column holds where a row does not say
    "session": 0, "agent": -1, "end": NAN, "prompt": -1, "status": "ok", "stop": None, "named_parent": -1,
    "spawn": -1, "think": NAN, "named_turn": -1, "n_assistant": -1, "resumed": False,
    "message": -1,
}  # fmt: skip


class Ordered:
    """Turns of hand-written rows, in words. A row is a dict of Log's columns, `blocks` its chain of ids."""

    def __init__(self, *rows, resolution=0.0):
        self.trie = plant([row.get("blocks") or [] for row in rows])
        self.log = make_log(rows, self.trie)
        turns = order_turns(self.log, self.trie.parent, self.trie.depth, BLOCK, resolution)
        self.parent, self.turn, self.attempt = (part.tolist() for part in turns[:3])
        self.origin = [ORIGINS[code] for code in turns.origin]
        self.after, self.gap = turns.after_row.tolist(), turns.gap.tolist()
        self.kind = [GAP_KINDS[code] if code >= 0 else None for code in turns.gap_kind]


def make_log(rows, trie):
    def column(name, dtype=np.int64):
        return np.array([row.get(name, UNKNOWN.get(name)) for row in rows], dtype)

    return Log(
        session=column("session"), agent=column("agent"), arrival=column("arrival", float),
        end=column("end", float), prompt=column("prompt"),
        status=np.array([STATUSES.index(row.get("status", "ok")) for row in rows], np.int8),
        stop=np.array([stop_kind(row.get("stop")) for row in rows], np.int8),
        tip=np.where([row.get("blocks") is not None for row in rows], trie.tip, NO_TIP).astype(np.uint32),
        named_parent=column("named_parent"), spawn=column("spawn"), think=column("think", float),
        named_turn=column("named_turn"), n_assistant=column("n_assistant"), resumed=column("resumed", bool),
        message=column("message"),
    )  # fmt: skip


def turn(arrival, end, prompt, blocks=None, **others):
    return {"arrival": arrival, "end": end, "prompt": prompt, "blocks": blocks, **others}


def test_a_conversation_counts_its_turns_and_measures_its_gaps():
    found = Ordered(
        turn(0, 2, 15, [1, 2], stop="tool_calls"),
        turn(3, 4, 25, [1, 3, 4], stop="stop"),
        turn(14, 15, 35, [1, 3, 5, 6]),
        turn(16, 17, 45, [1, 3, 5, 7, 8]),
    )
    assert found.parent == [-1, 0, 1, 2]
    assert found.turn == [0, 1, 2, 3]
    assert found.after == [-1, 0, 1, 2]
    assert found.gap == pytest.approx([NAN, 1, 10, 1], nan_ok=True)
    assert found.kind == [None, "tool", "user", "unknown"]
    assert found.origin == ["new"] * 4


def test_sessions_do_not_see_each_other():
    found = Ordered(turn(0, 1, 10, [1]), turn(2, 3, 20, [1, 2], session=1))
    assert found.parent == [-1, -1]
    assert found.turn == [0, 0]
    assert found.after == [-1, -1]


def test_the_deepest_shared_prompt_is_the_parent_and_not_the_latest():
    # A side request that shares only the system prompt comes between two turns.
    found = Ordered(turn(0, 1, 25, [1, 2, 3]), turn(2, 3, 12, [1, 9]), turn(4, 5, 35, [1, 2, 4, 5]))
    assert found.parent == [-1, -1, 0]
    assert found.turn == [0, 1, 2]


def test_a_block_completed_by_the_last_prompt_token_may_change():
    found = Ordered(turn(0, 1, 20, [1, 2]), turn(2, 3, 35, [1, 3, 4, 5]))
    assert found.parent == [-1, 0]


def test_without_chains_the_longest_run_of_growing_prompts_is_followed():
    found = Ordered(turn(0, 1, 10), turn(2, 3, 30), turn(4, 5, 20), turn(6, 7, 40))
    assert found.parent == [-1, 0, 0, 2]
    assert found.origin == ["new"] * 4


def test_a_retry_keeps_turn_and_parent():
    found = Ordered(
        turn(0, 1, 15, [1, 2]),
        turn(2, 3, 25, [1, 3, 4], status="error"),
        turn(5, 6, 25, [1, 3, 4], status="aborted"),
        turn(8, 9, 25, [1, 3, 4]),
        turn(10, 11, 35, [1, 3, 5, 6]),
    )
    assert found.parent == [-1, 0, 0, 0, 3]
    assert found.turn == [0, 1, 1, 1, 2]
    assert found.attempt == [0, 0, 1, 2, 0]
    assert found.kind == [None, "unknown", "retry", "retry", "unknown"]
    assert found.after == [-1, 0, 1, 2, 3]
    assert found.origin == ["new"] * 5


def test_a_retry_that_the_log_calls_a_child_of_the_failed_attempt_gets_its_parent():
    found = Ordered(
        turn(0, 1, 15, [1, 2]),
        turn(2, 3, 25, [1, 3, 4], status="aborted", named_parent=0),
        turn(5, 6, 25, [1, 3, 4], named_parent=1),
    )
    assert found.parent == [-1, 0, 0]


def test_a_failure_without_token_counts_is_retried_by_the_next_request():
    found = Ordered(turn(0, 1, 15), turn(2, 3, -1, status="error"), turn(4, 5, 25))
    assert found.turn == [0, 1, 1]
    assert found.attempt == [0, 0, 1]
    assert found.parent == [-1, -1, 0]  # what the failed one asked is not known


def test_the_retry_of_an_abort_without_token_counts_extends_what_that_extended_and_not_the_abort():
    found = Ordered(turn(0, 1, -1, status="aborted"), turn(2, 3, 25), turn(4, 5, 35))
    assert found.parent == [-1, -1, 1]
    assert found.attempt == [0, 1, 0]


def test_the_same_prompt_again_after_success_is_a_turn_of_its_own():
    found = Ordered(turn(0, 1, 15, [1, 2]), turn(2, 3, 25, [1, 3, 4]), turn(4, 5, 25, [1, 3, 4]))
    assert found.turn == [0, 1, 2]
    assert found.attempt == [0, 0, 0]
    assert found.parent == [-1, 0, 0]


def test_a_compacted_prompt_follows_the_turn_that_nobody_continued():
    found = Ordered(turn(0, 1, 25, [1, 2, 9]), turn(2, 3, 45, [1, 2, 4, 5, 6]), turn(4, 5, 22, [1, 7, 8]))
    assert found.parent == [-1, 0, 1]
    assert found.origin == ["new", "new", "compacted"]


def test_a_prompt_that_begins_differently_has_no_parent():
    found = Ordered(turn(0, 1, 25, [1, 2, 3]), turn(2, 3, 22, [7, 8, 9]))
    assert found.parent == [-1, -1]
    assert found.turn == [0, 1]


def test_a_session_that_starts_with_history_is_resumed():
    def origin(**row):
        return Ordered(turn(0, 1, **row)).origin[0]

    assert origin(prompt=RESUMED_TOKENS) == "new"
    assert origin(prompt=RESUMED_TOKENS + 1) == "resumed"
    assert origin(prompt=RESUMED_TOKENS + 1, n_assistant=0) == "new"  # a long first prompt, as the log tells
    assert origin(prompt=10, n_assistant=1) == "resumed"
    assert origin(prompt=10, resumed=True) == "resumed"


def test_a_parent_outside_the_log_makes_an_orphan():
    assert Ordered(turn(0, 1, 10, named_parent=PARENT_MISSING)).origin == ["orphan"]


def test_a_named_parent_wins_unless_it_is_later_or_of_another_session():
    rows = [turn(0, 1, 15, [1, 2]), turn(2, 3, 25, [1, 3, 4]), turn(4, 5, 35, [1, 3, 5, 6])]
    assert Ordered(rows[0], rows[1], rows[2] | {"named_parent": 0}).parent == [-1, 0, 0]
    assert Ordered(rows[0], rows[1], rows[2] | {"named_parent": 2}).parent == [-1, 0, 1]
    assert Ordered(rows[0], rows[1] | {"session": 1}, rows[2] | {"named_parent": 1}).parent == [-1, -1, 0]


def test_a_request_that_overlaps_its_predecessor_is_timed_from_its_start():
    found = Ordered(turn(0, 10, 15, [1, 2]), turn(4, 12, 25, [1, 3, 4]))
    assert (found.after[1], found.gap[1], found.kind[1]) == (0, 4.0, "overlap")


def test_arrivals_cut_to_whole_seconds_do_not_overlap_within_one():
    rows = turn(0, 10.7, 15, [1, 2], stop="tool_use"), turn(10, 12, 25, [1, 3, 4], think=0.4)
    assert Ordered(*rows).kind[1] == "overlap"
    found = Ordered(*rows, resolution=1.0)
    assert (found.after[1], found.gap[1], found.kind[1]) == (0, 0.4, "tool")


def test_the_logs_think_time_counts_only_when_measured_from_the_same_request():
    main = turn(0, 10, 15, [1, 2], stop="tool_use")
    later = turn(100, 110, 25, [1, 3, 4], think=89.0)
    assert Ordered(main, later).gap[1] == 89.0
    spawned = turn(11, 95, 12, [8, 9], agent=3, spawn=0)
    found = Ordered(main, spawned, later)
    assert found.after == [-1, 0, 1]
    assert found.gap[1:] == [1.0, 5.0]
    assert found.kind == [None, "subagent", "subagent"]


def test_parallel_sub_agents_do_not_wait_for_each_other_and_the_main_line_waits_for_both():
    found = Ordered(
        turn(0, 10, 15, [1, 2]),
        turn(11, 20, 12, [7, 8], agent=0, spawn=0),
        turn(11, 21, 12, [7, 9], agent=1, spawn=0),
        turn(
            22, 30, 22, [7, 10, 11], agent=0, spawn=0
        ),  # agent 1 ended later than agent 0, and does not matter
        turn(40, 50, 25, [1, 3, 4]),
    )
    assert found.after == [-1, 0, 0, 1, 3]
    assert found.gap[1:] == [1, 1, 2, 10]
    assert found.turn == [0, 0, 0, 1, 1]
    assert found.parent == [-1, -1, -1, 1, 0]


def test_a_sub_agent_that_forks_the_context_has_its_spawner_as_parent():
    found = Ordered(turn(0, 10, 15, [1, 2]), turn(11, 20, 25, [1, 3, 4], agent=0, spawn=0, n_assistant=1))
    assert found.parent == [-1, 0]
    assert found.turn == [0, 0]
    assert found.origin == ["new", "new"]


def test_a_link_to_the_spawner_does_not_make_it_the_parent():
    # Otherwise the sub-agent, not the next turn, would be the first child that names the spawner's output.
    spawner, sub_agent = (
        turn(0, 10, 15, [1, 2]),
        turn(11, 20, 25, [7, 8, 9], agent=0, spawn=0, named_parent=0),
    )
    found = Ordered(spawner, sub_agent, turn(21, 30, 25, [1, 3, 4], named_parent=0))
    assert found.parent == [-1, -1, 0]
    assert found.after == [-1, 0, 1]


def test_without_any_end_nothing_is_known_to_have_released_a_request():
    found = Ordered(turn(0, NAN, 15), turn(5, NAN, 25))
    assert found.after == [-1, -1]
    assert found.kind == [None, None]
    assert found.parent == [-1, 0]


def test_an_end_before_its_arrival_is_unknown():
    assert Ordered(turn(5, 4, 15), turn(6, 7, 25)).after == [-1, -1]


def test_the_logs_turn_numbers_win():
    assert Ordered(turn(0, 1, 15, named_turn=4), turn(2, 3, 25)).turn == [4, 5]


def test_finish_reasons_announce_tools_or_a_user():
    assert {GAP_KINDS[stop_kind(reason)] for reason in TOOL_STOPS} == {"tool"}
    assert {GAP_KINDS[stop_kind(reason)] for reason in ("stop", "end_turn")} == {"user"}
    assert stop_kind("length") == stop_kind(None) == -1


def test_no_rows_have_no_turns():
    trie = plant([])
    turns = order_turns(make_log([], trie), trie.parent, trie.depth, None)
    assert [part.size for part in turns] == [0] * 8


rows_of_any_log = st.builds(
    dict,
    session=st.integers(0, 1),
    agent=st.sampled_from([-1, -1, 0, 1]),
    step=st.sampled_from([0, 0, 1, 2, 5]),
    length=st.sampled_from([NAN, -1, 0, 1, 3, 9]),
    fork=st.integers(0, 12),
    keep=st.integers(0, 4),
    more=st.lists(st.integers(1, 2), max_size=2),
    spare=st.sampled_from([-10, -9, -3, -1, 0, 0, 4, 30]),
    has_chain=st.sampled_from([True, True, True, False]),
    status=st.sampled_from(["ok", "ok", "ok", "error", "aborted", "timeout", "rejected", "proxy_cache"]),
    stop=st.sampled_from([None, "stop", "tool_use"]),
    named_parent=st.sampled_from([-1, -1, -1, PARENT_MISSING, 0, 1, 2, 5]),
    spawn=st.sampled_from([-1, -1, 0, 1, 3]),
    think=st.sampled_from([NAN, NAN, 0.25, 2.0]),
    named_turn=st.sampled_from([-1, -1, -1, 0, 3]),
    n_assistant=st.sampled_from([-1, -1, 0, 2]),
    resumed=st.sampled_from([False, False, True]),
    message=st.sampled_from([-1, -1, -1, 0, 1]),
)


def placed(drafts):
    """Rows in order of arrival whose chains fork from one another."""
    rows, clock = [], 0
    for draft in drafts:
        clock += draft["step"]
        base = rows[draft["fork"] % len(rows)]["ids"] if rows else []
        ids = base[: draft["keep"]] + draft["more"]
        prompt = max(len(ids) * BLOCK + draft["spare"], -1)
        blocks = ids if draft["has_chain"] else None
        rows.append(draft | {"arrival": clock, "end": clock + draft["length"], "ids": ids, "blocks": blocks})
        rows[-1]["prompt"] = prompt
    return rows


@settings(max_examples=400)
@given(drafts=st.lists(rows_of_any_log, min_size=1, max_size=13), resolution=st.sampled_from([0.0, 1.0]))
def test_turns_equal_those_of_the_definitions(drafts, resolution):
    found = Ordered(*placed(drafts), resolution=resolution)
    expected = SlowTurns(found.log, found.trie.parent.tolist(), BLOCK, resolution)
    assert found.parent == expected.parent
    assert found.turn == expected.turn
    assert found.attempt == expected.attempt
    assert found.origin == expected.origin
    assert found.after == expected.after
    assert found.kind == expected.kind
    assert found.gap == pytest.approx(expected.gap, nan_ok=True)


@given(drafts=st.lists(rows_of_any_log, min_size=1, max_size=13))
def test_every_pointer_goes_to_an_earlier_row_of_the_session_and_no_gap_is_negative(drafts):
    found = Ordered(*placed(drafts))
    for row, (parent, after) in enumerate(zip(found.parent, found.after, strict=True)):
        for other in (parent, after):
            assert other < row
            assert other < 0 or found.log.session[other] == found.log.session[row]
        assert (found.kind[row] is None) == (after < 0) == np.isnan(found.gap[row])
        assert not found.gap[row] < 0


@pytest.mark.parametrize("file", RENDERINGS)
def test_tau_bench_turns_are_those_of_its_truth(file):
    bench = rendering(file)
    n = bench.session.size
    unknown = np.full(n, -1)
    log = Log(
        session=bench.session, agent=unknown, arrival=bench.arrival, end=bench.number("end_unix_s"),
        prompt=bench.prompt,
        status=np.array([STATUSES.index(row["status"]) for row in bench.truth], np.int8),
        stop=np.array([stop_kind(row["finish_reason"]) for row in bench.truth], np.int8),
        tip=bench.trie.tip, named_parent=unknown, spawn=unknown, think=np.full(n, NAN), named_turn=unknown,
        n_assistant=unknown, resumed=np.zeros(n, bool), message=unknown,
    )  # fmt: skip
    turns = order_turns(log, bench.trie.parent, bench.trie.depth, bench.block_tokens)
    assert turns.parent_row.tolist() == bench.parent_row.tolist()
    assert turns.turn_index.tolist() == bench.number("turn_index").tolist()
    # Five retries follow an error that these formats leave out: they look like first attempts.
    retries = bench.number("attempt") > 0
    assert retries.sum() == 14
    assert turns.attempt.sum() == 9
    assert np.all(retries[turns.attempt > 0])
    direct = (turns.after_row == bench.parent_row) & (turns.after_row >= 0)
    assert direct.sum() == 320
    assert turns.gap[direct] == pytest.approx(bench.number("gap_from_parent_end_s")[direct], abs=2e-6)
    kinds = [row["gap_kind"] for row in bench.truth]
    assert [GAP_KINDS[kind] for kind in turns.gap_kind[direct]] == [
        kinds[row] for row in np.flatnonzero(direct)
    ]
