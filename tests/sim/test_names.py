"""Names of blocks: equal names hold equal tokens, and the conversions of block sizes."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from oracles.random_clusters import Case, cases, give_chains, workload_of
from oracles.reference_simulator import Names, Request

from agentctl.errors import ConfigError
from agentctl.sim.names import BlockNames


def groups(names: dict[tuple[int, int], object]) -> set[frozenset[tuple[int, int]]]:
    """Which blocks share a name."""
    by_name: dict[object, set[tuple[int, int]]] = {}
    for block, name in names.items():
        by_name.setdefault(name, set()).add(block)
    return {frozenset(blocks) for blocks in by_name.values()}


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(cases())
def test_the_simulator_and_the_judge_name_the_same_blocks_alike(case: Case):
    size = case.limits[0].block_tokens
    names, judge = BlockNames(case.workload, size), Names(case.requests, case.trace_block, size)
    mine, judged = {}, {}
    for r in range(len(case.requests)):
        for j, name in enumerate(names.of(r).tolist()):
            assert 0 <= name < names.n_names
            mine[r, j], judged[r, j] = name, judge.name(r, j)
    assert groups(mine) == groups(judged)


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(cases())
def test_equal_names_hold_equal_tokens_after_equal_prefixes(case: Case):
    """Where every parent's prompt and answer really are what its child repeats."""
    size = case.limits[0].block_tokens
    names = BlockNames(case.workload, size)
    is_true = all(
        request.parent < 0 or extends(case.tokens[request.parent], case.requests[request.parent], prompt)
        for request, prompt in zip(case.requests, prompts(case), strict=True)
    )
    if not is_true:
        return
    content: dict[int, tuple[int, ...]] = {}
    for r, tokens in enumerate(case.tokens):
        for j, name in enumerate(names.of(r).tolist()):
            prefix = tokens[: (j + 1) * size]
            assert content.setdefault(name, prefix) == prefix


def prompts(case: Case) -> list[tuple[int, ...]]:
    return [tokens[: q.prompt] for q, tokens in zip(case.requests, case.tokens, strict=True)]


def extends(parent_tokens: tuple[int, ...], parent: Request, prompt: tuple[int, ...]) -> bool:
    """A retry repeats the prompt, a later turn the answer too."""
    n = len(parent_tokens) if len(prompt) >= len(parent_tokens) else parent.prompt
    return prompt[:n] == parent_tokens[:n]


def session(trace_block, engine_block, hashes_tails=True, turns=((6, 4), (13, 3))):
    """Two turns: 6 + 4 tokens, then 13 of which the first 10 repeat them."""
    stream = tuple(range(100))
    requests = [Request(prompt, output) for prompt, output in turns]
    requests[1].parent = 0
    give_chains(requests, [stream[:prompt] for prompt, _ in turns], trace_block, hashes_tails)
    names = BlockNames(workload_of(requests, trace_block), engine_block)
    return [names.of(r).tolist() for r in range(len(turns))]


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
    names = BlockNames(workload_of(requests, 2), 2)
    a, b = names.of(0).tolist(), names.of(1).tolist()
    assert a[:2] == b[:2]
    assert not set(a[2:]) & set(b[2:])


def test_an_identical_partial_block_is_shared_by_its_whole_engine_blocks():
    requests = [Request(7, 1), Request(7, 1)]
    give_chains(requests, [tuple(range(7))] * 2, 4, hashes_tails=True)
    names = BlockNames(workload_of(requests, 4), 1)
    np.testing.assert_array_equal(names.of(0), names.of(1))


def test_block_sizes_that_do_not_divide_each_other_are_refused():
    requests = [Request(12, 1)]
    give_chains(requests, [tuple(range(12))], 6, hashes_tails=True)
    with pytest.raises(ConfigError, match="engine blocks of 4 tokens do not fit the trace's blocks of 6"):
        BlockNames(workload_of(requests, 6), 4)
