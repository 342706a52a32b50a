"""Pieces of text on the token grid, against the same rules over dictionaries of paths."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import chained

from agentctl.ingest.placing import Pieces, apart, numbered_hashes, place
from agentctl.ingest.trie import UNKNOWN_TIP

text = st.lists(st.sampled_from([b"a", b"bb", b"ccc", b"ddddd" * 9]), max_size=6)
rows = st.lists(st.tuples(text, st.none() | st.integers(0, 60)), min_size=1, max_size=14)


def pieces_of(prompts) -> Pieces:
    """A tree of these lists of pieces."""
    node_of: dict[tuple[bytes, ...], int] = {(): 0}
    parent, sizes, tips = [0], [0], []
    for prompt in prompts:
        for n in range(1, len(prompt) + 1):
            if (path := tuple(prompt[:n])) not in node_of:
                node_of[path] = len(parent)
                parent.append(node_of[path[:-1]])
                sizes.append(len(path[-1]))
        tips.append(node_of[tuple(prompt)])
    hashes = numbered_hashes(len(parent))
    return Pieces(np.array(parent, np.uint32), hashes, np.array(sizes, np.int64), np.array(tips, np.uint32))


def paths(grid) -> list[list[int]]:
    found = []
    for tip in grid.tips.tolist():
        path = []
        while tip:
            path.append(tip)
            tip = int(grid.parent[tip])
        found.append(path[::-1])
    return found


def as_array(counts) -> np.ndarray:
    return np.array([-1 if count is None else count for count in counts], dtype=np.int64)


@settings(max_examples=200)
@given(rows, st.integers(1, 7))
def test_two_prompts_share_the_blocks_that_the_rules_name_alike(rows, block):
    grid = place(pieces_of([row[0] for row in rows]), as_array([row[1] for row in rows]), block, 4.0)
    reported = [(sum(map(len, pieces)), n) for pieces, n in rows if n is not None]
    size, tokens = sum(a for a, _ in reported), sum(b for _, b in reported)
    mean = tokens / size if size and tokens else 0.25
    expected = chained.blocks(rows, block, mean)
    names: dict[int, tuple] = {}
    for path, wanted in zip(paths(grid), expected, strict=True):
        assert len(path) == len(wanted)
        for node, name in zip(path, wanted, strict=True):
            assert names.setdefault(node, name) == name
    assert len(set(names.values())) == len(names)
    assert (grid.parent[1:] < np.arange(1, grid.parent.size)).all()


@given(rows, st.integers(1, 7))
def test_every_prompt_has_its_full_blocks_and_keeps_its_tokens(rows, block):
    counts = as_array([row[1] for row in rows])
    grid = place(pieces_of([row[0] for row in rows]), counts, block, 4.0)
    known = counts >= 0
    assert (grid.prompt_tokens[known] == counts[known]).all() and (grid.prompt_tokens >= 0).all()
    assert (grid.is_estimated == ~known).all()
    assert [len(path) for path in paths(grid)] == (grid.prompt_tokens // block).tolist()


def test_a_turn_is_placed_behind_the_turn_before_whatever_its_bytes():
    """40 tokens for the first 10 bytes, 8 for the next 100: the shared part ends at 40."""
    grid = place(pieces_of([[b"ddddd" * 9], [b"ddddd" * 9, b"ccc"]]), np.array([40, 48]), 8, 4.0)
    first, second = paths(grid)
    assert len(first) == 5 and second[:5] == first and len(second) == 6


def test_fewer_tokens_than_the_shared_part_has_are_counted_and_clipped():
    pieces = pieces_of([[b"a", b"bb"], [b"a", b"bb", b"ccc"]])
    grid = place(pieces, np.array([32, 16]), 8, 4.0)
    assert grid.n_clipped == 1
    assert paths(grid)[1] == paths(grid)[0][:2]


def test_more_tokens_than_the_same_text_had_before_are_blocks_of_its_own():
    pieces = pieces_of([[b"a"], [b"a"], [b"a"], [b"a", b"bb"]])
    grid = place(pieces, np.array([16, 32, 40, 32]), 8, 4.0)
    one, two, three, longer = paths(grid)
    assert two[:2] == one and len(two) == 4 and three[:4] == two and len(three) == 5
    assert longer[:2] == one and not set(longer[2:]) & set(three)


def test_a_count_that_no_text_has_leaves_the_blocks_unknown():
    grid = place(pieces_of([[b"a"], [b"a"]]), np.array([1 << 29, 8]), 8, 4.0)
    assert grid.n_absurd == 1 and grid.tips.tolist() == [UNKNOWN_TIP, 1]


def test_a_failed_request_that_came_first_has_the_tokens_of_its_retry():
    grid = place(pieces_of([[b"a", b"ccc"], [b"a", b"ccc"]]), np.array([-1, 57]), 8, 4.0)
    assert grid.prompt_tokens.tolist() == [57, 57] and grid.is_estimated.tolist() == [True, False]


@given(rows.filter(lambda rows: all(pieces for pieces, _ in rows)), st.randoms())
def test_models_share_nothing_and_each_is_as_if_it_were_alone(rows, random):
    group = np.array([random.randrange(2) for _ in rows])
    pieces, counts = pieces_of([row[0] for row in rows]), as_array([row[1] for row in rows])
    names = np.array([7, 8], dtype=np.uint64)
    both = apart(pieces, group, names)
    together = paths(place(both, np.maximum(counts, 0), 3, 4.0))
    seen = [set(), set()]
    for number, path in zip(group, together, strict=True):
        seen[number] |= set(path)
    assert not seen[0] & seen[1]
    for number in (0, 1):
        mine = np.flatnonzero(group == number)
        alone = place(pieces._replace(tips=pieces.tips[mine]), np.maximum(counts[mine], 0), 3, 4.0)
        lengths = [len(together[row]) for row in mine]
        assert lengths == [len(path) for path in paths(alone)]
        assert len(seen[number]) == len({node for path in paths(alone) for node in path})
    assert not set(both.hash[1:].tolist()) & set(pieces.hash[1:].tolist())


def test_hashes_that_stand_for_numbers_differ_and_are_the_same_everywhere():
    hashes = numbered_hashes(5)
    assert len(set(hashes.tolist())) == 5
    assert hashes[1] == 0x910A2DEC89025CC1  # splitmix64 of 1
