"""Cases of the router's view small enough to follow by hand; the judge must know them before it judges."""

import math
from collections import Counter

import pytest
from oracles.reference_simulator import BatchCoefficients, Cluster, Limits, Request
from oracles.reference_view import Index, IndexSettings, Settings, gateway_of, matched_blocks, spread

from agentctl.sim import hashing
from agentctl.sim.hashing import tie_hash


def index_with(*insertions, **settings):
    """Every insertion is (blocks, when)."""
    index = Index(IndexSettings(block_tokens=1, **settings))
    for blocks, now in insertions:
        index.expire(now)
        index.insert(list(blocks), now)
    return index


@pytest.mark.parametrize(("eviction", "left"), [("tail", "xab"), ("head", "xbc")])
def test_a_request_loses_its_deepest_block_first_or_its_first_one(eviction, left):
    """Four blocks for a room of three; x was used last."""
    index = index_with(("abc", 0), ("x", 1), capacity_tokens=3, eviction=eviction)
    assert set(index.used) == set(left)


def test_a_block_that_is_used_again_stays():
    assert set(index_with(("ab", 0), ("c", 1), ("a", 2), ("d", 3), capacity_tokens=3).used) == set("cad")


def test_capacity_counts_whole_blocks():
    index = Index(IndexSettings(block_tokens=4, capacity_tokens=11))
    index.insert(list("abc"), 0.0)
    assert set(index.used) == set("ab")


def test_a_block_is_gone_when_its_time_to_live_is_over():
    index = index_with(("ab", 0.0), ("a", 1.0), ttl_s=2.0)
    index.expire(1.5)
    assert set(index.used) == set("ab")
    index.expire(2.0)
    assert set(index.used) == set("a")


def test_contiguous_matches_a_chain_from_its_start_and_any_engine_goes_on_where_another_has_the_block():
    def indexes(match):
        return [index_with((blocks, 0), match=match) for blocks in ("ab", "acd", "e")]

    assert matched_blocks(indexes("contiguous"), list("abcde")) == [2, 1, 0]
    assert matched_blocks(indexes("any_engine"), list("abcxe")) == [2, 2, 0]


def test_gateways_are_drawn_by_a_hash_of_the_seed_and_the_request():
    pairs = [(seed, r) for seed in (0, 7, 2**40 + 3) for r in (0, 1, 10**9)]
    assert [spread(*pair) for pair in pairs] == [tie_hash(*pair) for pair in pairs]
    assert [gateway_of(*pair, 5) for pair in pairs] == [hashing.gateway_of(*pair, 5) for pair in pairs]


def test_the_gateway_of_a_request_tells_nothing_of_how_ties_break():
    """All four by four outcomes are about equally likely; without a second hash only four would occur."""
    met = Counter((gateway_of(0, r, 4), tie_hash(0, r) % 4) for r in range(16_000))
    assert len(met) == 16
    assert all(850 < count < 1150 for count in met.values())


def views(requests, n_engines=1, choose=lambda view, r: 0, seed=0, **settings):
    """What the router sees at each request; batches take 1 s, blocks hold 1 token."""
    seen = {}

    def record(view, r):
        seen[r] = view
        return choose(view, r)

    limits = [Limits(kv_blocks=100, block_tokens=1, batch_time=BatchCoefficients(b0=1.0))] * n_engines
    Cluster(requests, limits, record, 1, seed, settings=Settings(**settings)).run()
    return [seen[r] for r in range(len(requests))]


def at(*times, prompt=4, output=1, chain=()):
    return [Request(prompt, output, arrival=t, chain=chain, session=i) for i, t in enumerate(times)]


def test_a_publish_shows_what_has_ended_but_not_what_arrives_at_that_instant():
    """The first request runs from 0 to 1 s, the second from 1 to 2."""
    first, second, third = views(at(0.0, 1.0, 1.5), metrics_interval_s=1.0)
    assert first.running_requests == first.waiting_requests == [0]
    assert (second.published_at, second.running_requests, second.kv_used_blocks) == (1.0, [0], [0])
    assert (third.published_at, third.running_requests, third.waiting_requests) == (1.0, [0], [0])
    assert (third.unpublished_requests, third.unpublished_tokens) == ([1], [4])
    assert views(at(0.0, 1.5, 2.0), metrics_interval_s=0.5)[1].published_at == 1.5


def test_metrics_are_as_old_as_their_way():
    """Published at 0.5 s, when the first request runs; seen from 0.9 s on."""
    before, early, late = views(at(0.0, 0.8, 0.95), metrics_interval_s=0.5, metrics_delay_s=0.4)
    assert before.published_at == -math.inf
    assert before.kv_total_blocks == [99]
    assert (early.published_at, early.running_requests, early.unpublished_requests) == (0.0, [0], [1])
    assert (late.published_at, late.running_requests, late.unpublished_requests) == (0.5, [1], [1])


def test_the_precise_index_hears_late_of_blocks():
    """Computed at 1 s, known at 1.5 s; never the whole prompt."""
    chain = (1, 2, 3, 4)
    assert [v.hit_tokens for v in views(at(0.0, 1.25, 1.5, chain=chain), index_delay_s=0.5)] == [
        [0],
        [0],
        [3],
    ]


def test_a_gateway_counts_its_own_requests_only():
    requests = at(*[0.125 * i for i in range(8)], output=20)
    seen = views(requests, gateways=2, metrics_interval_s=100.0)
    for r, view in enumerate(seen):
        mine = [q for q in range(r) if gateway_of(0, q, 2) == gateway_of(0, r, 2)]
        assert view.inflight_requests == view.unpublished_requests == [len(mine)]
        assert view.last_chosen == (0 if mine else -1)
    assert len({gateway_of(0, r, 2) for r in range(8)}) == 2


def test_active_blocks_count_a_shared_block_once():
    """Two requests in flight share two of four blocks; the third shares three with the first."""
    requests = at(0.0, 0.25, 0.5, output=5)
    for request, chain in zip(requests, [(1, 2, 3, 4), (1, 2, 5, 6), (1, 2, 3, 7)], strict=True):
        request.chain = chain
    assert [view.active_blocks for view in views(requests)] == [[4], [6], [7]]


def test_an_approximate_index_knows_at_once_what_it_sent_and_nothing_else():
    """Blocks of two tokens: two of the first request's four tokens are all that the second may find."""
    requests = at(0.0, 0.0, 0.5, chain=(1, 2, 3, 4))
    requests[2].prompt, requests[2].chain = 5, (1, 2, 3, 4, 5)
    index = IndexSettings(block_tokens=2)
    seen = views(requests, 2, choose=lambda view, r: 1, index=index)
    assert [view.hit_tokens for view in seen] == [[0, 0], [0, 2], [0, 4]]
    assert [view.inflight_prefill_tokens for view in seen] == [[0, 0], [0, 4], [0, 6]]


def test_nothing_differs_without_settings():
    [first, second] = views(at(0.0, 0.5))
    assert (first.published_at, second.published_at) == (0.0, 0.5)
    assert second.unpublished_requests == [0]
    assert (second.running_requests, second.step_ends_at) == ([1], [1.0])
