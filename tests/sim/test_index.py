"""Segments of lines against the judge's blocks one by one, after every look and every insertion."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.comparison import QUIET, check_equal, run_both
from oracles.kernels import from_python
from oracles.random_clusters import cluster_of, make_case, workload_of
from oracles.reference_simulator import BatchCoefficients, Limits, Request
from oracles.reference_view import Index as JudgeIndex
from oracles.reference_view import IndexSettings, Settings, matched_blocks

from agentctl.cluster import IndexParams
from agentctl.sim import index as kernels
from agentctl.sim.content import Content
from agentctl.sim.index import Index
from agentctl.sim.make_state import OwnIndex, make_limits, make_state
from agentctl.sim.sight import Sight

expire, insert, match = map(from_python, (kernels.expire, kernels.insert, kernels.match))

Path = list[tuple[int, int]]  # (line, how many of its first blocks) from the root
Block = tuple[int, int]  # line, place in it
B = 4  # tokens


@st.composite
def prompts(draw: st.DrawFn) -> list[tuple[Path, int]]:
    """Paths through a tree of lines, and of each how many blocks are the prompt's (the rest is output)."""
    above: list[Path] = []  # what comes before each line
    for line in range(draw(st.integers(1, 6))):
        base = draw(st.integers(-1, line - 1))
        above.append([*above[base], (base, draw(st.integers(1, 6)))] if base >= 0 else [])
    made = []
    for _ in range(draw(st.integers(1, 30))):
        line = draw(st.integers(0, len(above) - 1))
        path = [*above[line], (line, draw(st.integers(1, 6)))]
        n = sum(length for _, length in path)
        made.append((path, draw(st.sampled_from([n, n, draw(st.integers(0, n))]))))
    return made


@st.composite
def index_params(draw: st.DrawFn) -> IndexParams:
    return IndexParams(
        block_tokens=B,
        capacity_tokens=draw(st.sampled_from([None, 3, 11, 28, 60, 160])),
        ttl_s=draw(st.sampled_from([None, 1.0, 4.0, 20.0])),
        eviction=draw(st.sampled_from(["tail", "head"])),
        match=draw(st.sampled_from(["contiguous", "any_engine"])),
    )


def content_of(paths: list[Path]) -> Content:
    start = np.cumsum([0, *map(len, paths)]).astype(np.int64)
    ranges = np.array([pair for path in paths for pair in path], np.int32).reshape(-1, 2)
    return Content(start, ranges[:, 0].copy(), ranges[:, 1].copy(), int(ranges[:, 0].max(initial=-1)) + 1)


def empty_index(params: IndexParams, paths: list[Path], n_gateways: int, n_engines: int):
    """(the index, what it keeps of requests)"""
    limits = make_limits(cluster_of([Limits(kv_blocks=10)] * n_engines))
    content = content_of(paths)
    requests = workload_of([Request(1, 1)] * len(paths), None).requests
    s = make_state(limits, content, requests, Sight(gateways=n_gateways), OwnIndex(params, B, content))
    return Index(s.router, s.routes, s.places, s.segments, s.path), s.asides


def names_of(path: Path) -> list[Block]:
    return [(line, place) for line, length in path for place in range(length)]


def believed(index: Index, g: int, e: int) -> list[tuple[Block, float]]:
    """Blocks with the time of their last use, the least recently used first."""
    found, x, before = [], index.routes[g, e].oldest_segment, 0
    while x:
        segment = index.segments[x]
        assert segment.previous == before
        blocks = [((segment.line, place), segment.used) for place in range(segment.low, segment.high)]
        found += blocks if index.router[0].from_head else reversed(blocks)
        x, before = segment.next, x
    assert index.routes[g, e].newest_segment == before
    assert index.routes[g, e].n_believed == len(found)
    return found


def check(index: Index, g: int, e: int, judge: JudgeIndex) -> None:
    assert believed(index, g, e) == list(judge.used.items())
    for line in range(index.places.shape[1]):
        place, low = index.places[g, line, e], 0
        while (line, low) in judge.used:
            low += 1
        assert place.held == low
        x, blocks = place.first, []
        while x:
            blocks += range(index.segments[x].low, index.segments[x].high)
            x = index.segments[x].deeper
        assert blocks == sorted(at for on, at in judge.used if on == line)


@settings(QUIET, max_examples=500)
@given(st.data(), prompts(), index_params(), st.integers(1, 2), st.integers(1, 3))
def test_segments_hold_and_match_what_single_blocks_do(data, asked, params, n_gateways, n_engines):
    index, asides = empty_index(params, [path for path, _ in asked], n_gateways, n_engines)
    judges = [
        [JudgeIndex(IndexSettings(**vars(params))) for _ in range(n_engines)] for _ in range(n_gateways)
    ]
    now = 0.0
    for r, (path, n_blocks) in enumerate(asked):
        now += data.draw(st.sampled_from([0.0, 0.5, 1.0, 3.0]))
        g, e = data.draw(st.integers(0, n_gateways - 1)), data.draw(st.integers(0, n_engines - 1))
        n_looked = max(n_blocks - data.draw(st.integers(0, 1)), 0)
        expire(index, g, now)
        match(index, g, asides[r].own_start, asides[r].own_stop, n_looked)
        for judge in judges[g]:
            judge.expire(now)
        blocks = names_of(path)[:n_blocks]
        hits = [B * n for n in matched_blocks(judges[g], blocks[:n_looked])]
        assert index.routes[g].hit_tokens.tolist() == hits
        insert(index, g, e, asides[r].own_start, n_blocks, now)
        judges[g][e].insert(blocks, now)
        for engine, judge in enumerate(judges[g]):
            check(index, g, engine, judge)
    assert index.router[0].n_segments <= index.segments.size


def test_a_router_believes_in_what_its_index_has_room_for_whatever_engines_hold():
    """Blocks of 2 tokens, room for 4 of them: the second request, of 6 tokens, pushes the first one's deepest
    block out. The engine still holds everything, and computes one token of the third request."""
    requests = [Request(4, 1), Request(6, 1, arrival=2.0, session=1), Request(5, 1, arrival=4.0, session=2)]
    for request, chain in zip(requests, [(1, 2), (3, 4, 5), (1, 2)], strict=True):
        request.chain = chain
    limits = Limits(kv_blocks=50, block_tokens=2, batch_time=BatchCoefficients(b0=1.0))
    own = Settings(index=IndexSettings(block_tokens=2, capacity_tokens=8))
    judged, outcome, told, shown = run_both(
        make_case(requests, [], 2, [limits], settings=own), lambda view, r: 0
    )
    assert shown == told
    assert [view["hit_tokens"] for _, view in shown] == [[0], [0], [2]]
    assert outcome.hit_tokens.tolist() == [0, 0, 4]
    check_equal(judged, outcome, relative=0.0)
