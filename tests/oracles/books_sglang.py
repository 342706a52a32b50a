"""The books of a simulated cluster of SGLang engines: what must be true of its state between two kernels.

Plain loops over plain lists, as in oracles.books, which has what both schedulers share.
"""

from __future__ import annotations

from collections import Counter

from oracles.books import Engine, chain, check_counters, check_queue, columns

from agentctl.sim.state import NO_NEWS, NONE, State


def check(s: State) -> None:
    """Raises AssertionError when anything is lost, counted twice or out of order."""
    jobs, path, no_holds = columns(s.jobs), columns(s.path), columns(s.holds)
    for e in range(s.engines.size):
        of = Engine(s, e, jobs, no_holds, path)
        nodes = columns(s.nodes[e, : of.engine.n_slots])
        check_queue(of)
        check_counters(of)
        check_batch(of)
        in_tree = check_tree(of, nodes)
        check_pages(of, nodes, in_tree)
        check_leaves(of, nodes, in_tree)
        check_ends(of, nodes, in_tree)


def check_batch(of: Engine) -> None:
    engine, jobs, size = of.engine, of.jobs, of.limits.block_tokens
    rest = len(of.running) - engine.n_decoding - engine.n_prefilling
    if engine.n_prefilling and of.limits.mixed_chunk:  # the decodes are part of the batch
        assert engine.n_decoding == 0 <= rest
        rest = 0
    assert rest in (0, 1)
    if rest:
        assert of.running[-1] == engine.chunked
    if not of.is_busy:
        assert engine.n_prefilling == 0 == engine.run_steps
    elif engine.run_steps:
        assert engine.n_prefilling == 0 == rest
        assert 0 <= engine.run_ended <= engine.run_begun <= min(engine.run_ended + 1, engine.run_steps)
        for r in of.running:
            assert 0 <= jobs.n_blocks[r] * size - jobs.computed[r] - engine.run_begun < size
            assert jobs.emitted[r] + engine.run_steps <= jobs.output[r]
    else:
        assert sum(of.planned) > 0 and (engine.n_prefilling or not rest)
        for r, tokens in zip(of.running, of.planned, strict=True):
            left = jobs.prompt[r] + jobs.emitted[r] - jobs.computed[r]
            assert 0 <= tokens <= left and 0 <= jobs.n_blocks[r] * size - jobs.computed[r] - tokens < size
            assert r == engine.chunked or not tokens or tokens == left


def check_tree(of: Engine, nodes) -> set[int]:
    """The pieces that are in the tree: a beginning of each line that the engine holds, each below the one
    before it; slots are in the tree or free."""
    found, lines, news, at = [], of.lines, set(), of.engine.first_news
    while at != NONE:
        assert at not in news
        news.add(at)
        at = lines.news[at]
    for line, x in enumerate(lines.first_run):
        assert (line in news) == (lines.news[line] != NO_NEWS)
        assert of.known[line] == lines.held[line] or line in news
        stop = lines.held[line]
        while stop > 0:
            assert nodes.line[x] == line and nodes.low[x] < nodes.high[x] == stop
            found.append(x)
            stop, x = nodes.low[x], nodes.parent[x]
        assert x == NONE or nodes.line[x] != line
    free = chain(nodes.parent, of.engine.first_slot)
    assert sorted(found + free) == list(range(of.engine.n_slots)), "every slot is in one place"
    children = Counter(nodes.parent[x] for x in found)
    for x in found:
        assert nodes.parent[x] == NONE or nodes.parent[x] in found
        assert nodes.n_children[x] == children[x]
        if nodes.below[x] != NONE:
            assert children[x] == 1 and nodes.parent[nodes.below[x]] == x
    return set(found)


def check_pages(of: Engine, nodes, in_tree: set[int]) -> None:
    """unused + in the tree + running requests' own = all."""
    engine, jobs = of.engine, of.jobs
    size = {x: nodes.high[x] - nodes.low[x] for x in in_tree}
    own = sum(jobs.n_blocks[r] - jobs.n_named[r] for r in of.running)
    assert engine.n_unused >= 0
    assert engine.n_unused + sum(size.values()) + own == of.limits.usable_blocks
    assert engine.n_free == engine.n_unused + sum(size[x] for x in in_tree if nodes.pins[x] == 0)


def check_leaves(of: Engine, nodes, in_tree: set[int]) -> None:
    """The heap has every leaf that nobody uses, and an older one is never below a younger."""
    heap = nodes.leaf[: of.engine.n_leaves]
    assert sorted(heap) == sorted(x for x in in_tree if not nodes.n_children[x] and not nodes.pins[x])
    for place, x in enumerate(heap):
        assert nodes.place[x] == place
        assert place == 0 or nodes.used[heap[(place - 1) // 2]] < nodes.used[x]
    assert all(nodes.place[x] == NONE for x in in_tree - set(heap))


def check_ends(of: Engine, nodes, in_tree: set[int]) -> None:
    """A running request uses the tree down to the end of its first pages, and pins are such requests."""
    jobs, path = of.jobs, of.path
    ends = Counter(jobs.top[r] for r in of.running)
    for x in in_tree:
        used = sum(nodes.pins[y] > 0 for y in in_tree if nodes.parent[y] == x)
        assert nodes.pins[x] == ends[x] + used
    for r in of.running:
        pages, x = [], jobs.top[r]
        while x != NONE:
            pages += [(nodes.line[x], i) for i in reversed(range(nodes.low[x], nodes.high[x]))]
            x = nodes.parent[x]
        ranges = range(jobs.path_start[r], jobs.path_stop[r])
        content = [(path.line[at], i) for at in ranges for i in range(path.length[at])]
        assert pages[::-1] == content[: jobs.n_named[r]]
