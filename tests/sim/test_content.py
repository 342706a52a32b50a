"""Content of blocks: equal places on lines hold equal tokens, lines form a tree, and block sizes convert."""

import math
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from oracles.random_clusters import Case, cases, give_chains, workload_of
from oracles.reference_simulator import Names, Request
from oracles.tries import branching_chains, plant

from agentctl.errors import ConfigError
from agentctl.sim.content import Content, compile_content

QUIET = settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))

Block = tuple[int, int]  # line, place in it


def ranges(content: Content, r: int) -> list[tuple[int, int]]:
    """(line, how many of its first blocks) of request r, from the root."""
    of_r = slice(content.start[r], content.start[r + 1])
    return list(zip(content.line[of_r].tolist(), content.length[of_r].tolist(), strict=True))


def blocks(content: Content, r: int) -> list[Block]:
    return [(line, i) for line, length in ranges(content, r) for i in range(length)]


def groups(names: dict[tuple[int, int], object]) -> set[frozenset[tuple[int, int]]]:
    """Which blocks share a name."""
    by_name: dict[object, set[tuple[int, int]]] = {}
    for block, name in names.items():
        by_name.setdefault(name, set()).add(block)
    return {frozenset(blocks) for blocks in by_name.values()}


@QUIET
@given(cases())
def test_the_simulator_and_the_judge_hold_the_same_blocks_for_equal(case: Case):
    size = case.limits[0].block_tokens
    content, judge = compile_content(case.workload, size), Names(case.requests, case.trace_block, size)
    mine, judged = {}, {}
    for r, request in enumerate(case.requests):
        path = blocks(content, r)
        assert len(path) == (request.prompt + request.output - 1) // size
        for j, block in enumerate(path):
            mine[r, j], judged[r, j] = block, judge.name(r, j)
    assert groups(mine) == groups(judged)


@QUIET
@given(cases())
def test_lines_form_a_tree_and_paths_take_beginnings_of_them(case: Case):
    """Engines keep one number per line: that is right only if a block always follows the same block."""
    content = compile_content(case.workload, case.limits[0].block_tokens)
    before: dict[Block, Block | None] = {}
    for r in range(len(case.requests)):
        path = ranges(content, r)
        assert all(0 <= line < content.n_lines and length > 0 for line, length in path)
        assert len({line for line, _ in path}) == len(path)
        above = None
        for block in blocks(content, r):
            assert before.setdefault(block, above) == above
            above = block


@QUIET
@given(cases())
def test_equal_blocks_hold_equal_tokens_after_equal_prefixes(case: Case):
    """Where every parent's prompt and answer really are what its child repeats."""
    size = case.limits[0].block_tokens
    content = compile_content(case.workload, size)
    is_true = all(
        request.parent < 0 or extends(case.tokens[request.parent], case.requests[request.parent], prompt)
        for request, prompt in zip(case.requests, prompts(case), strict=True)
    )
    if not is_true:
        return
    held: dict[Block, tuple[int, ...]] = {}
    for r, tokens in enumerate(case.tokens):
        for j, block in enumerate(blocks(content, r)):
            prefix = tokens[: (j + 1) * size]
            assert held.setdefault(block, prefix) == prefix


def prompts(case: Case) -> list[tuple[int, ...]]:
    return [tokens[: q.prompt] for q, tokens in zip(case.requests, case.tokens, strict=True)]


def extends(parent_tokens: tuple[int, ...], parent: Request, prompt: tuple[int, ...]) -> bool:
    """A retry repeats the prompt, a later turn the answer too."""
    n = len(parent_tokens) if len(prompt) >= len(parent_tokens) else parent.prompt
    return prompt[:n] == parent_tokens[:n]


@given(branching_chains().filter(any))
def test_a_path_crosses_at_most_the_logarithm_of_the_nodes(ids: list[list[int]]):
    """To leave a line is to go where at most half of the nodes below are."""
    trie = plant(ids)
    chains = [trie_path(trie, int(tip)) for tip in trie.tip if tip]
    requests = [Request(2 * len(chain), 1, chain=chain) for chain in chains]
    content = compile_content(workload_of(requests, 2), 2)
    n_nodes = len({node for chain in chains for node in chain})
    assert max(Counter(lines_of(content)).values()) <= 1 + math.log2(n_nodes)
    assert sum(len(blocks(content, r)) for r in range(len(chains))) == sum(map(len, chains))


def trie_path(trie, tip: int) -> tuple[int, ...]:
    path = []
    while tip:
        path.append(tip)
        tip = int(trie.parent[tip])
    return tuple(reversed(path))


def lines_of(content: Content) -> list[int]:
    """The request of every range."""
    return [r for r in range(content.start.size - 1) for _ in ranges(content, r)]


def session(trace_block, engine_block, hashes_tails=True, turns=((6, 4), (13, 3))):
    """Two turns: 6 + 4 tokens, then 13 of which the first 10 repeat them."""
    stream = tuple(range(100))
    requests = [Request(prompt, output) for prompt, output in turns]
    requests[1].parent = 0
    give_chains(requests, [stream[:prompt] for prompt, _ in turns], trace_block, hashes_tails)
    content = compile_content(workload_of(requests, trace_block), engine_block)
    return [blocks(content, r) for r in range(len(turns))]


@pytest.mark.parametrize(("trace_block", "engine_block"), [(4, 4), (4, 2), (4, 1), (2, 4), (1, 2), (8, 2)])
@pytest.mark.parametrize("hashes_tails", [True, False])
def test_a_child_names_its_parents_answer_but_for_the_last_token(trace_block, engine_block, hashes_tails):
    first, second = session(trace_block, engine_block, hashes_tails)
    assert len(first) == (6 + 4 - 1) // engine_block
    assert second[: len(first)] == first


def test_a_shorter_child_confirms_only_the_prompt():
    first, second = session(2, 2, turns=((6, 4), (8, 3)))  # 8 tokens do not hold 6 + 4
    assert first[:3] == second[:3]
    assert first[3] != second[3]


def test_a_request_without_a_child_shares_its_answer_with_nobody():
    requests = [Request(4, 5), Request(4, 5)]
    give_chains(requests, [(1, 2, 3, 4)] * 2, 2, hashes_tails=True)
    content = compile_content(workload_of(requests, 2), 2)
    a, b = blocks(content, 0), blocks(content, 1)
    assert a[:2] == b[:2]
    assert not set(a[2:]) & set(b[2:])


def test_an_identical_partial_block_is_shared_by_its_whole_engine_blocks():
    requests = [Request(7, 1), Request(7, 1)]
    give_chains(requests, [tuple(range(7))] * 2, 4, hashes_tails=True)
    content = compile_content(workload_of(requests, 4), 1)
    assert blocks(content, 0) == blocks(content, 1)
    assert len(blocks(content, 0)) == 7


def test_block_sizes_that_do_not_divide_each_other_are_refused():
    requests = [Request(12, 1)]
    give_chains(requests, [tuple(range(12))], 6, hashes_tails=True)
    with pytest.raises(ConfigError, match="engine blocks of 4 tokens do not fit the trace's blocks of 6"):
        compile_content(workload_of(requests, 6), 4)
