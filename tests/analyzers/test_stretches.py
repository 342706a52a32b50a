import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracles.lru import ideal_hits, last_users
from oracles.tries import Trie, branching_chains, plant

from agentctl.analyzers.strands import weave
from agentctl.analyzers.stretches import Stretches, stretches


def collect(trie: Trie) -> Stretches:
    return stretches(weave(trie.parent, trie.depth, trie.tip), trie.tip)


def unrolled(reuse: Stretches, r: int) -> list[int]:
    """The previous user of each reused block of request r, from the root down."""
    part = slice(reuse.offset[r], reuse.offset[r + 1])
    return np.repeat(reuse.previous[part], reuse.blocks[part]).tolist()


def test_a_grown_conversation_is_one_stretch_per_turn():
    trie = plant([[1, 2], [1, 2, 3], [1, 2, 3, 4, 5]])
    reuse = collect(trie)
    assert [unrolled(reuse, r) for r in range(3)] == [[], [0, 0], [1, 1, 1]]
    assert reuse.blocks.tolist() == [2, 3]


def test_a_chain_remembers_who_touched_each_part_last():
    trie = plant([[1, 2, 3, 4], [1, 2], [1, 9], [1, 2, 3, 4]])
    reuse = collect(trie)
    assert unrolled(reuse, 3) == [2, 1, 0, 0]
    assert reuse.request().tolist() == [1, 2, 3, 3, 3]


def test_requests_without_blocks_have_no_stretches():
    reuse = collect(plant([[], [1], [], [1]]))
    assert reuse.offset.tolist() == [0, 0, 0, 0, 1]
    assert reuse.hit_blocks().tolist() == [0, 0, 0, 1]
    assert collect(plant([])).hit_blocks().size == 0


@given(branching_chains())
def test_stretches_name_the_last_user_of_every_block(chains):
    reuse = collect(plant(chains))
    for r, users in enumerate(last_users(chains)):
        assert unrolled(reuse, r) == [user for user in users if user is not None]
    assert reuse.hit_blocks().tolist() == ideal_hits(chains)


@given(branching_chains())
def test_strands_cover_each_node_once_and_each_is_a_path(chains):
    trie = plant(chains)
    strands = weave(trie.parent, trie.depth, trie.tip)
    for strand in range(strands.above.size):
        nodes = np.flatnonzero(strands.of_node[1:] == strand) + 1
        assert nodes.size == strands.start[strand + 1] - strands.start[strand] > 0
        assert trie.parent[nodes].tolist() == [strands.above[strand], *nodes[:-1]]
    assert strands.start[-1] == trie.parent.size - 1


@given(branching_chains())
def test_a_chain_crosses_at_most_log_many_strands(chains):
    trie = plant(chains)
    strands = weave(trie.parent, trie.depth, trie.tip)
    used = trie.tip[trie.tip > 0]
    assert all(strands.level[strands.of_node[used]] <= 1 + np.log2(max(1, used.size)))


def test_a_long_conversation_is_walked_in_one_step_however_many_turns_grew_it():
    trie = plant([list(range(10 * turn)) for turn in range(1, 60)])
    assert weave(trie.parent, trie.depth, trie.tip).level.tolist() == [1]


@given(branching_chains(), st.integers(0, 3))
def test_some_of_the_requests_may_be_followed_on_strands_woven_for_all(chains, keep):
    trie = plant(chains)
    some = slice(keep, None, 2)
    reuse = stretches(weave(trie.parent, trie.depth, trie.tip), trie.tip[some])
    assert reuse.hit_blocks().tolist() == ideal_hits(chains[some])
