"""The prefix tree against a tree grown in dictionaries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.tries import plant

from agentctl.ingest.ids import Ids
from agentctl.ingest.trie import UNKNOWN_TIP, Trie, count_conflicts, number_by_first_use, salt_ids

chain = st.lists(st.integers(0, 3) | st.sampled_from([2**63, 2**64 - 1]), max_size=7)
chains = st.lists(st.none() | chain, max_size=25)


def as_ids(rows: list[list[int] | None]) -> Ids:
    lengths = [len(row or []) for row in rows]
    values = np.array([block for row in rows for block in row or []], dtype=np.uint64)
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return Ids(values, starts, np.array([row is None for row in rows], dtype=np.bool_))


def path(trie: Trie, tip: int) -> list[int]:
    found = []
    while tip:
        found.append(int(trie.hash[tip]))
        tip = int(trie.parent[tip])
    return found[::-1]


@given(st.lists(chains, max_size=4))
def test_two_chains_share_exactly_their_common_start(batches):
    trie = Trie()
    tips = np.concatenate([np.empty(0, np.uint32), *(trie.insert(as_ids(batch)) for batch in batches)])
    rows = [row for batch in batches for row in batch]
    oracle = plant(row or [] for row in rows)
    assert trie.n_nodes == oracle.parent.size - 1
    for row, tip in zip(rows, tips, strict=True):
        if row is None:
            assert tip == UNKNOWN_TIP
        else:
            assert path(trie, int(tip)) == row


@given(chains, st.randoms())
def test_numbers_depend_on_the_order_of_the_rows_not_on_that_of_reading(rows, random):
    oracle = plant(row or [] for row in rows)
    order = list(range(len(rows)))
    random.shuffle(order)
    trie = Trie()
    tips = np.empty(len(rows), dtype=np.uint32)
    tips[order] = trie.insert(as_ids([rows[k] for k in order]))
    tree = number_by_first_use(trie, tips)
    known = np.array([row is not None for row in rows], dtype=np.bool_)
    assert tree.parent.tolist() == oracle.parent.tolist()
    assert tree.depth.tolist() == oracle.depth.tolist()
    assert tree.tips[known].tolist() == oracle.tip[known].tolist()
    assert (tree.tips[~known] == UNKNOWN_TIP).all()
    for node in range(1, tree.parent.size):
        assert tree.parent[node] < node
        first = int(tree.first_row[node])
        assert node in ancestors(tree.parent, tree.tips[first])
        assert not any(node in ancestors(tree.parent, tip) for tip in tree.tips[:first] if tip != UNKNOWN_TIP)


def ancestors(parent: np.ndarray, tip: int) -> set[int]:
    found = set()
    while tip:
        found.add(int(tip))
        tip = parent[tip]
    return found


@given(chains, chains)
def test_merging_tries_equals_inserting_into_one(one, two):
    left, right, both = Trie(), Trie(), Trie()
    left_tips, right_tips = left.insert(as_ids(one)), right.insert(as_ids(two))
    both.insert(as_ids(one))
    both.insert(as_ids(two))
    number = left.merge(right.parent, right.hash)
    assert left.n_nodes == both.n_nodes
    for row, tip in zip(two, right_tips, strict=True):
        if row is not None:
            assert path(left, int(number[tip])) == row
    for row, tip in zip(one, left_tips, strict=True):
        if row is not None:
            assert path(left, int(tip)) == row


def test_rows_that_were_dropped_leave_no_nodes():
    trie = Trie()
    tips = trie.insert(as_ids([[1, 2], [7, 8, 9], [1, 3]]))
    tree = number_by_first_use(trie, tips[[0, 2]])
    assert tree.hash.tolist() == [0, 1, 2, 3]
    assert tree.parent.tolist() == [0, 0, 1, 1]
    assert tree.first_row.tolist() == [-1, 0, 0, 1]


@settings(max_examples=5)
@given(st.integers(0, 2**32))
def test_a_tree_that_outgrows_its_tables_is_the_same_tree(seed):
    random = np.random.default_rng(seed)
    rows = [random.integers(0, 2**64, 400, dtype=np.uint64).tolist() for _ in range(60)]
    rows += [[*row[: int(random.integers(400))], 5] for row in rows]
    trie = Trie()
    tips = [int(tip) for part in (rows[:7], rows[7:]) for tip in trie.insert(as_ids(part))]
    assert trie.n_nodes == plant(rows).parent.size - 1 > 1 << 13
    assert all(path(trie, tip) == row for row, tip in zip(rows, tips, strict=True))


def test_one_chain_longer_than_all_tables_fits():
    trie = Trie()
    long = list(range(100_000))
    (tip,) = trie.insert(as_ids([long]))
    assert path(trie, int(tip)) == long


@given(st.lists(st.integers(0, 2**48), max_size=20, unique=True))  # any two 64-bit scopes must meet somewhere
def test_salting_keeps_ids_of_one_scope_apart_and_those_of_two_scopes_too(values):
    def salted(salt: int) -> list[int]:
        ids = np.array(values, dtype=np.uint64)
        salt_ids(ids, np.array([0, len(values)]), np.array([salt], dtype=np.uint64))
        return ids.tolist()

    one, two = salted(1), salted(2)
    assert len(set(one)) == len(set(two)) == len(values)
    assert set(one).isdisjoint(two)


@pytest.mark.parametrize(
    ("rows", "n"),
    [([[1, 2], [1, 3]], 0), ([[1, 2], [3, 2]], 1), ([[1, 2], [3, 2], [4, 2], [1, 1]], 2), ([], 0), ([[]], 0)],
)
def test_ids_under_more_than_one_parent_are_counted_once_each(rows, n):
    trie = Trie()
    trie.insert(as_ids(rows))
    assert count_conflicts(trie.hash) == n
