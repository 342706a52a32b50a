import numpy as np
from hypothesis import given, settings
from oracles.lru import belady_hits, ideal_hits, lru_hits, most_hits
from oracles.tries import branching_chains, plant

from agentctl.analyzers.belady import belady_hit_blocks, intervals
from agentctl.analyzers.strands import weave
from agentctl.analyzers.stretches import stretches


def optimum(chains, capacity):
    trie = plant(chains)
    reuse = stretches(weave(trie.parent, trie.depth, trie.tip), trie.tip)
    return belady_hit_blocks(intervals(reuse), capacity).tolist()


def test_the_block_needed_soonest_is_kept():
    chains = [[1], [2], [2], [1]]
    assert optimum(chains, 1) == [0, 0, 1, 0]
    assert optimum(chains, 2) == [0, 0, 1, 1]


def test_a_scan_that_is_never_used_again_does_not_enter_the_cache():
    assert optimum([[1], [7, 8, 9], [1]], 1) == [0, 0, 1]


def test_no_capacity_hits_nothing():
    assert optimum([[1], [1]], 0) == [0, 0]
    assert optimum([], 3) == []


@given(branching_chains())
def test_hits_equal_a_clairvoyant_cache_played_block_by_block(chains):
    for capacity in (1, 2, 3, 5, 9):
        assert optimum(chains, capacity) == belady_hits(chains, capacity)


@settings(max_examples=25)
@given(branching_chains(max_size=15))
def test_no_replacement_can_hit_more(chains):
    for capacity in (1, 2, 4):
        assert sum(optimum(chains, capacity)) == most_hits(chains, capacity)


@given(branching_chains())
def test_optimum_lies_between_lru_and_an_infinite_cache(chains):
    for capacity in (1, 3, 6):
        assert sum(lru_hits(chains, capacity)) <= sum(optimum(chains, capacity)) <= sum(ideal_hits(chains))


@given(branching_chains())
def test_a_cache_as_large_as_the_blocks_in_waiting_reaches_the_ideal(chains):
    trie = plant(chains)
    reuse = stretches(weave(trie.parent, trie.depth, trie.tip), trie.tip)
    ends = np.bincount(reuse.request(), reuse.blocks, len(chains))
    starts = np.bincount(reuse.previous, reuse.blocks, len(chains))
    waiting = int(np.cumsum(starts - ends).max(initial=0))
    assert optimum(chains, waiting) == ideal_hits(chains)
    if waiting:
        assert sum(optimum(chains, waiting - 1)) < sum(ideal_hits(chains))
