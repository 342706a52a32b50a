"""SGLang's radix tree in pieces does what the judge's does node by node, whatever its history."""

import numpy as np
import pytest
from oracles import books_sglang
from oracles.books import Engine, columns
from oracles.kernels import from_python
from oracles.random_clusters import cluster_of, give_chains, workload_of
from oracles.reference_sglang import Limits, Pool, path
from oracles.reference_simulator import Names, Request

from agentctl.sim import sglang_tree
from agentctl.sim.content import compile_content
from agentctl.sim.make_state import make_limits, make_state
from agentctl.sim.sglang_holding import take_pages

MATCH, INSERT, LOCK, UNLOCK, MAKE_ROOM = (
    from_python(getattr(sglang_tree, name)) for name in ("match", "insert", "lock", "unlock", "make_room")
)
TAKE = from_python(take_pages)
PAGES = 60


def families(rng):
    """24 prompts that branch off one another at all places, some of them twice the same."""
    prompts = [tuple(range(100, 100 + int(rng.integers(1, 20))))]
    for fresh in range(1000, 24_000, 1000):
        base = prompts[int(rng.integers(len(prompts)))]
        new = int(rng.integers(0, 12))
        prompts.append(base[: int(rng.integers(1, len(base) + 1))] + tuple(range(fresh, fresh + new)))
    requests = [Request(len(prompt), 1) for prompt in prompts]
    give_chains(requests, prompts, 1, hashes_tails=True)
    return requests


class Both:
    """The same history in both trees, compared after every step."""

    def __init__(self, requests):
        workload, limits = workload_of(requests, 1), Limits(PAGES)
        self.s = make_state(
            make_limits(cluster_of([limits])), compile_content(workload, 1), workload.requests
        )
        self.names, self.requests = Names(requests, 1, 1), requests
        self.pool, self.held = Pool(PAGES), []

    def names_of(self, r, n):
        return [self.names.name(r, j) for j in range(n)]

    def end(self, r, n):
        """A request computes its first n pages, if that many can be had, and holds their end for a while."""
        node = self.pool.match(self.names_of(r, n))
        piece, there = MATCH(self.s, 0, r, n)
        assert there == len(path(node))
        self.hold(piece, node)
        if self.make_room(n - there):
            mine = path(node) + self.pool.take(n - there)
            TAKE(self.s, 0, n - there)
            piece, there_now = INSERT(self.s, 0, r, n)
            assert there_now == there
            self.hold(piece, self.pool.insert(self.names_of(r, n), mine))

    def hold(self, piece, node):
        LOCK(self.s, 0, piece)
        self.pool.lock(node)
        self.held.append((piece, node))

    def drop(self, which):
        piece, node = self.held.pop(which)
        UNLOCK(self.s, 0, piece)
        self.pool.lock(node, -1)

    def make_room(self, pages):
        there_is = self.pool.make_room(pages)
        assert bool(MAKE_ROOM(self.s, 0, pages)) == there_is
        return there_is

    def check(self):
        engine = self.s.engines[0]
        assert (engine.n_unused, engine.n_free) == (len(self.pool.unused), len(self.pool.free))
        cached = {name for node in self.pool.nodes() for name in node.names}
        of = Engine(self.s, 0, columns(self.s.jobs), None, columns(self.s.path))
        nodes = columns(self.s.nodes[0, : of.engine.n_slots])
        in_tree = books_sglang.check_tree(of, nodes)
        books_sglang.check_leaves(of, nodes, in_tree)
        assert sum(nodes.high[x] - nodes.low[x] for x in in_tree) == len(cached)
        for r, request in enumerate(self.requests):
            found = [name in cached for name in self.names_of(r, request.prompt)]
            ranges = range(of.jobs.path_start[r], of.jobs.path_stop[r])
            here = [min(of.lines.held[of.path.line[at]], of.path.length[at]) for at in ranges]
            assert sum(here) == sum(found)


@pytest.mark.parametrize("seed", range(30))
def test_every_lookup_insertion_and_eviction_is_the_judges(seed):
    rng = np.random.default_rng(seed)
    both = Both(families(rng))
    for _ in range(150):
        what = rng.random()
        if what < 0.55:
            r = int(rng.integers(24))
            both.end(r, int(rng.integers(0, both.requests[r].prompt + 1)))
        elif what < 0.95 and both.held:
            both.drop(int(rng.integers(len(both.held))))
        else:
            both.make_room(int(rng.integers(1, 20)))
        while len(both.held) > 6:
            both.drop(0)
        both.check()
    while both.held:
        both.drop(0)
    assert both.make_room(PAGES)
    both.check()
