"""Sessions from block chains: by hand, against the definition, and on traces with known answers."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.sessions import b_cubed, block_chain_parents
from oracles.tau_bench import read_lines, rendering
from oracles.tries import plant

from agentctl.ingest.sessions import NO_TIP, derive_block_chain_sessions, session_band

MOONCAKE = Path(__file__).parents[2] / "sample_traces/mooncake_conversation.jsonl.gz"


def derive(requests, max_fanout=8, block_tokens=100):
    """requests: (prompt tokens, output tokens, block ids), one a second."""
    prompt, output, chains = zip(*requests, strict=True)
    trie = plant(chains)
    return derive_block_chain_sessions(
        np.arange(len(prompt), dtype=float), np.array(prompt), np.array(output),
        trie.tip, trie.parent, trie.depth, block_tokens, max_fanout,
    )  # fmt: skip


def test_a_conversation_is_one_session_and_a_stranger_another():
    chains = derive([(200, 20, [1, 2]), (230, 9, [5, 6, 7]), (310, 30, [1, 2, 3]), (400, 1, [1, 2, 3, 4])])
    assert chains.parent_row.tolist() == [-1, -1, 0, 2]
    assert chains.session.tolist() == [0, 1, 0, 0]


def test_a_prompt_too_short_for_the_earlier_answer_does_not_continue_it():
    assert derive([(200, 108, [1, 2]), (300, 1, [1, 2, 3])]).parent_row.tolist() == [-1, 0]
    assert derive([(200, 109, [1, 2]), (300, 1, [1, 2, 3])]).parent_row.tolist() == [-1, -1]


def test_a_partial_tail_need_not_be_shared():
    # The first prompt fills one block and half of block 9, which the longer prompt does not have.
    assert derive([(150, 1, [1, 9]), (300, 1, [1, 2, 3])]).parent_row.tolist() == [-1, 0]


def test_a_template_that_branches_more_than_the_guard_allows_joins_nobody():
    strangers = [(100, 1, [1])] + [(300, 1, [1, 10 + k, 20 + k]) for k in range(9)]
    assert derive(strangers, max_fanout=8).session.tolist() == list(range(10))
    assert derive(strangers, max_fanout=9).session.tolist() == [0] * 10
    assert derive(strangers, max_fanout=None).session.tolist() == [0] * 10


def test_requests_that_nobody_continues_yet_are_continued_first():
    # Two equal first prompts, then two second turns: one each, the later first.
    twins = [(100, 10, [1]), (100, 10, [1]), (200, 5, [1, 2]), (200, 5, [1, 3]), (200, 5, [1, 4])]
    assert derive(twins).parent_row.tolist() == [-1, -1, 1, 0, 1]


def test_rows_without_prompt_or_chain_are_alone():
    trie = plant([[1], [1, 2], [1, 2]])
    tip = trie.tip.copy()
    tip[2] = NO_TIP
    chains = derive_block_chain_sessions(
        np.zeros(3), np.array([100, -1, 200]), np.array([-1, 5, 5]), tip, trie.parent, trie.depth, 100
    )
    assert chains.session.tolist() == [0, 1, 2]


def test_no_rows_are_no_sessions():
    trie = plant([])
    none = np.zeros(0, np.int64)
    chains = derive_block_chain_sessions(
        np.zeros(0), none, none, np.zeros(0, np.uint32), trie.parent, trie.depth, 16
    )
    assert [part.size for part in chains] == [0, 0, 0]


def test_confidence_falls_towards_the_guard_from_both_sides():
    def of_last(width):
        """Confidence of a request behind a block with `width` successors, guard 4."""
        strangers = [(200, 1, [1, 10 + k]) for k in range(width)]
        return derive([(100, 1, [1]), *strangers], max_fanout=4).confidence[-1]

    values = [of_last(width) for width in (1, 2, 4, 5, 10, 50)]
    assert values == pytest.approx([0.8, 0.6, 0.2, 0.0, 0.5, 0.9])


def test_a_request_that_resembles_nothing_is_surely_alone():
    assert derive([(100, 1, [1]), (100, 1, [2])]).confidence.tolist() == [1.0, 1.0]


@st.composite
def small_logs(draw):
    """Up to 14 requests whose chains branch from one another, in blocks of 10 tokens."""
    chains, prompts, outputs, known = [], [], [], []
    for _ in range(draw(st.integers(1, 14))):
        start = draw(st.sampled_from(chains)) if chains and draw(st.booleans()) else []
        kept = start[: draw(st.integers(0, 4))]
        chains.append(kept + draw(st.lists(st.integers(1, 3), max_size=2)))
        spare = draw(st.sampled_from([-10, -7, -1, 0, 0, 3, 12]))
        prompts.append(max(len(chains[-1]) * 10 + spare, -1))
        outputs.append(draw(st.sampled_from([-1, 0, 1, 5, 9, 15])))
        known.append(draw(st.integers(0, 9)) > 0)
    return chains, prompts, outputs, known


@settings(max_examples=300)
@given(log=small_logs(), max_fanout=st.sampled_from([1, 2, 3, None]))
def test_parents_equal_those_of_the_definition(log, max_fanout):
    chains, prompts, outputs, known = log
    trie = plant(chains)
    tip = np.where(known, trie.tip, NO_TIP).astype(np.uint32)
    found = derive_block_chain_sessions(
        np.zeros(len(prompts)),
        np.array(prompts),
        np.array(outputs),
        tip,
        trie.parent,
        trie.depth,
        10,
        max_fanout,
    )
    tips = [int(node) if is_known else None for node, is_known in zip(trie.tip, known, strict=True)]
    expected = block_chain_parents(prompts, outputs, tips, trie.parent.tolist(), 10, max_fanout)
    assert found.parent_row.tolist() == expected
    for row, parent in enumerate(expected):
        assert parent < row
        assert parent < 0 or found.session[row] == found.session[parent]
    assert found.session.max() + 1 == expected.count(-1)
    assert np.all((found.confidence >= 0) & (found.confidence <= 1))


def test_mooncake_conversation_has_the_published_band():
    rows = read_lines(MOONCAKE)
    trie = plant([row["hash_ids"] for row in rows])
    arrival, prompt, output = (
        np.array([row[name] for row in rows]) for name in ("timestamp", "input_length", "output_length")
    )
    tree = (trie.tip, trie.parent, trie.depth)
    band = session_band(arrival / 1e3, prompt, output, *tree, 512, fanouts=(1, 2, 4, 8, 64, None))
    assert [row.sessions for row in band] == [12_021, 9_389, 8_460, 8_294, 8_262, 67]
    assert [row.multi_turn for row in band[1:5]] == [1_750, 1_915, 1_925, 1_927]


def derive_rendering(log, max_fanout=8):
    trie = log.trie
    return derive_block_chain_sessions(
        log.arrival, log.prompt, log.output, trie.tip, trie.parent, trie.depth, log.block_tokens, max_fanout
    )


@pytest.mark.parametrize(
    ("file", "recall", "links"),
    [("bailian/trace_blksz_16.jsonl.gz", 0.93, 311), ("mooncake/trace_512.jsonl", 0.66, 259)],
)
def test_tau_bench_conversations_are_never_mixed(file, recall, links):
    log = rendering(file)
    found = derive_rendering(log)
    precision, share = b_cubed(found.session.tolist(), log.session.tolist())
    assert precision == 1.0
    assert share >= recall
    linked = found.parent_row >= 0
    assert np.all(log.session[linked] == log.session[found.parent_row[linked]])
    assert np.sum(linked & (found.parent_row == log.parent_row)) >= links  # of 327


def test_without_a_guard_tau_bench_conversations_mix():
    log = rendering("mooncake/trace_512.jsonl")
    assert b_cubed(derive_rendering(log, None).session.tolist(), log.session.tolist())[0] < 0.9
