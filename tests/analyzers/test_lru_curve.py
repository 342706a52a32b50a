import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracles.lru import ideal_hits, lru_hits
from oracles.tries import branching_chains, plant

from agentctl.analyzers.lru_curve import lru_hit_tokens
from agentctl.analyzers.strands import weave
from agentctl.analyzers.stretches import stretches


def curve(chains, prompt_tokens=None, block_tokens=1, since=0):
    trie = plant(chains)
    n_blocks = trie.depth[trie.tip].astype(np.int64)
    reuse = stretches(weave(trie.parent, trie.depth, trie.tip), trie.tip)
    tokens = n_blocks * block_tokens if prompt_tokens is None else np.array(prompt_tokens)
    return lru_hit_tokens(reuse, n_blocks, tokens, block_tokens, since)


def at(hits, capacity):
    """The curve is flat beyond its last column."""
    return hits[:, min(capacity, hits.shape[1] - 1)].tolist()


def test_the_head_of_a_prompt_outlives_its_tail():
    hits = curve([[1, 2, 3], [1, 2, 3]])
    assert hits[1].tolist() == [0, 1, 2, 3]


def test_a_block_is_kept_while_fewer_blocks_than_the_capacity_are_newer():
    hits = curve([[1], [5, 6, 7], [1]])
    assert hits[1].tolist() == [0, 0, 0, 0, 1]


def test_a_partial_last_block_takes_a_whole_place_but_counts_its_own_tokens():
    hits = curve([[1, 2], [1, 2]], prompt_tokens=[20, 20], block_tokens=16)
    assert hits[1].tolist() == [0, 16, 20]


def test_requests_before_the_mark_fill_the_cache_but_are_counted_apart():
    hits = curve([[1], [1], [1]], since=2)
    assert hits.tolist() == [[0, 1], [0, 1]]


def test_nothing_reused_is_a_curve_of_one_zero():
    assert curve([[1], [2]]).tolist() == [[0], [0]]
    assert curve([]).tolist() == [[0], [0]]


@given(branching_chains())
def test_curve_equals_a_cache_played_block_by_block_at_every_capacity(chains):
    half = len(chains) // 2
    hits = curve(chains, since=half)
    for capacity in range(len({block for chain in chains for block in chain}) + 2):
        played = lru_hits(chains, capacity)
        assert at(hits, capacity) == [sum(played[:half]), sum(played[half:])]


@given(branching_chains(), st.randoms(use_true_random=False))
def test_tokens_equal_a_cache_played_block_by_block_with_partial_last_blocks(chains, random):
    size = {tuple(chain): 16 * len(chain) - random.choice([0, 0, 3, 15]) for chain in chains if chain}
    prompts = [size.get(tuple(chain), 7) for chain in chains]
    hits = curve(chains, prompts, block_tokens=16)
    for capacity in range(12):
        played = lru_hits(chains, capacity)
        tokens = sum(min(16 * n, prompt) for n, prompt in zip(played, prompts, strict=True))
        assert at(hits, capacity) == [0, tokens]


@given(branching_chains())
def test_more_cache_never_hits_less_and_the_end_of_the_curve_is_an_infinite_cache(chains):
    hits = curve(chains)[1]
    assert np.all(np.diff(hits) >= 0)
    assert hits[-1] == sum(ideal_hits(chains))
    assert hits.size == 1 or hits[-1] > hits[-2]
