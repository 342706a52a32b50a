"""What must hold of KV tiers whatever the workload, shown of the judge, whom the simulator equals."""

from __future__ import annotations

import math
from dataclasses import astuple, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.comparison import QUIET, WEIGHTS, weighted
from oracles.random_clusters import cases, ticks
from oracles.reference_simulator import AT_ARRIVAL, BatchCoefficients, Cluster, Limits, Request
from oracles.reference_tiers import Store, Tier, TieredCluster
from oracles.tiering import in_turn, scattered, tiered, tiers


def same(a: tuple, b: tuple) -> bool:
    return all(x == y or (x != x and y != y) for x, y in zip(a, b, strict=True))


@settings(QUIET, max_examples=60)
@given(cases(), WEIGHTS, st.data())
def test_a_tier_without_capacity_is_no_tier(case, weights, data):
    tier = replace(data.draw(tiers(case.limits[0].block_tokens)), capacity_tokens=0)
    without = Cluster(
        case.requests, case.limits, weighted(weights), case.trace_block, case.seed, case.concurrency,
        case.settings,
    )  # fmt: skip
    for a, b in zip(without.run(), tiered(case, weighted(weights), [tier]).run(), strict=True):
        assert same(astuple(a)[:-2], astuple(b)[:-2])
        assert b.load_s == 0 and sum(b.tier_hits) == 0


def check_moves(store: Store) -> None:
    stored: dict = {}  # name -> when its store ended, first
    for move in store.moves:
        assert move.began <= move.ended < math.inf
        if move.kind == "store":
            assert move.size == len(move.names) * store.tier.unit_tokens * store.bytes_per_token
            for name in move.names:
                stored.setdefault(name, move.ended)
    for move in store.moves:
        if move.kind == "load":  # a tier never serves what was never stored
            assert all(stored[name] <= move.began for name in move.names)
            assert 0 < move.size <= len(move.names) * store.tier.unit_tokens * store.bytes_per_token
            alone = store.alone(move.size / store.bytes_per_token, len(move.names))
            assert move.ended - move.began >= alone * (1 - 1e-9) - 1e-9  # company never helps
    units_in = sum(len(move.names) for move in store.moves if move.kind == "store")
    assert units_in == len(store.units) + len(store.lost)  # what came in is there, or was replaced
    assert len(store.units) * store.tier.unit_tokens <= store.tier.capacity_tokens
    assert all(unit.here and unit.readers == 0 for unit in store.units.values())
    check_bandwidth(store)


def check_bandwidth(store: Store) -> None:
    """Between any two instants no more work is done than the tier can do, or one engine's link."""
    engines = {move.engine for move in store.moves}
    capacities = [(1.0, engines), *((store.tier.share, {engine}) for engine in engines)]
    rates = {"load": store.tier.read_bytes_per_s, "store": store.tier.write_bytes_per_s}
    for first in store.moves:
        for last in store.moves:
            inside = [m for m in store.moves if first.began <= m.began and m.ended <= last.ended]
            for capacity, some in capacities:
                work = sum(m.size / rates[m.kind] for m in inside if m.engine in some)
                assert work == 0 or work <= capacity * (last.ended - first.began) * (1 + 1e-9) + 1e-9


@settings(QUIET, max_examples=250)
@given(scattered())
def test_everything_ends_and_tokens_bytes_and_units_are_conserved(drawn):
    case, some, layers = drawn
    cluster = tiered(case, in_turn(case), some, layers)
    results = cluster.run()
    started_over = {r for engine in cluster.engines for r in engine.gave_back}  # and found more or less then
    for r, (request, result) in enumerate(zip(cluster.requests, results, strict=True)):
        if result.status == "rejected":
            continue
        assert result.arrival <= result.scheduled < result.first_token <= result.finish
        if not result.preemptions and r not in started_over:
            assert result.hit + sum(result.tier_hits) + result.prefilled == request.prompt
    for store in cluster.stores:
        check_moves(store)
    loads = [m for store in cluster.stores for m in store.moves if m.kind == "load"]
    assert sum(m.size for m in loads) >= sum(sum(result.tier_hits) for result in cluster.results.values())
    for engine in cluster.engines:
        assert len(engine.pool.free) == engine.pool.usable and not any(engine.pool.users)
        assert not (engine.moves or engine.loading or engine.ready or engine.lost_names)


@settings(QUIET, max_examples=60)
@given(cases(), st.sampled_from(["none", "async", "layerwise"]))
def test_one_at_a_time_a_tier_of_unlimited_speed_is_a_bigger_cache(case, overlap):
    """With company it is not: its units are found from the end of a prefill on, not from their scheduling."""
    alone = [
        replace(request, arrival=1e6 * r, release=AT_ARRIVAL, deps=(), session=r)
        for r, request in enumerate(case.requests)
    ]
    block = case.limits[0].block_tokens
    most = max(request.prompt + request.output for request in alone)
    small = replace(
        case.limits[0], kv_blocks=most // block + 3, watermark=0.0, max_model_len=None, prefix_caching=True
    )
    big = replace(small, kv_blocks=1 + len(alone) * (most // block + 3))
    tier = Tier(unit_tokens=block, write_decode=True, overlap=overlap)

    expected = Cluster(alone, [big], weighted({}), case.trace_block).run()
    found = TieredCluster(alone, [small], weighted({}), [tier], trace_block=case.trace_block).run()
    for a, b in zip(expected, found, strict=True):
        assert a.hit == b.hit + sum(b.tier_hits)
        assert (a.prefilled, a.first_token, a.finish) == (b.prefilled, b.first_token, b.finish)


@settings(QUIET, max_examples=80)
@given(
    st.integers(2, 8),
    st.integers(1, 40),
    st.tuples(ticks(1, 64, 0.125), ticks(0, 64, 0.01), ticks(0, 64, 0.0001)),
    st.sampled_from([4, 16, 1000]),
    st.lists(st.tuples(st.floats(0.5, 1000), st.floats(0, 4)), min_size=2, max_size=2),
    st.tuples(st.sampled_from(["none", "async", "layerwise"]), st.booleans(), st.sampled_from([4, 8])),
)
def test_a_slower_tier_never_makes_a_request_faster_that_is_alone(units, more, costs, budget, speeds, rules):
    """Where the GPU is the limit; bandwidth, latency, or both are worse."""
    b0, b_prefill, b_attention = costs
    overlap, use_if_faster, unit = rules
    coefficients = BatchCoefficients(b0, b_prefill, b_attention=b_attention)
    limits = Limits(1000, 4, max_num_batched_tokens=budget, batch_time=coefficients)
    chain = tuple(range(2 * units + more))
    warm = Request(8 * units, 1, 0.0, chain[: 2 * units])
    late = Request(8 * units + more, 2, 1e6, chain, session=1)
    fast, slow = max(read for read, _ in speeds), min(read for read, _ in speeds)
    low, high = min(latency for _, latency in speeds), max(latency for _, latency in speeds)

    def finish(read: float, latency: float) -> float:
        tier = Tier(
            read_bytes_per_s=read, latency_s=latency, unit_tokens=unit, use_if_faster=use_if_faster,
            overlap=overlap,
        )  # fmt: skip
        run = TieredCluster([warm, late], [limits] * 2, lambda view, r: r, [tier], trace_block=4).run()
        return run[1].finish

    assert finish(fast, low) <= finish(slow, high) + 1e-6
