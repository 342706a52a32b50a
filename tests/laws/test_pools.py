"""What must hold of prefill and decode pools whatever the workload, shown of the judge."""

from __future__ import annotations

import math
import random
from dataclasses import astuple, fields, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.comparison import QUIET, WEIGHTS, weighted
from oracles.random_clusters import cases, ticks
from oracles.reference_placement import Disaggregated, Needs, Pinned
from oracles.reference_pools import LATER, Network, Placement, PoolCluster
from oracles.reference_simulator import AT_ARRIVAL, BatchCoefficients, Cluster, Limits, Request, Result
from oracles.reference_view import Settings

ROLES = st.sampled_from(
    [("prefill", "decode"), ("prefill", "decode", "decode"), ("prefill", "prefill", "decode"),
     ("prefill", "both"), ("both", "decode"), ("prefill", "both", "decode"), ("both", "both", "decode")]
)  # fmt: skip
NETWORKS = st.builds(
    Network,
    st.one_of(st.floats(0.5, 50.0), st.floats(4.0, 1000.0), st.just(math.inf)),
    st.sampled_from([0.0, 0.0, 0.125, 3.0]),
)


class Local:
    """A policy of no pools."""

    def __init__(self, choose):
        self.choose = choose

    def place(self, view, r):
        engine = self.choose(view, r)
        return Placement(engine, engine)

    def ended(self, r):
        pass


class Dice:
    """All that may be answered, at random; waiting only for what can end without the one that waits."""

    def __init__(self, roles, seed):
        self.roles, self.random = roles, random.Random(seed)
        self.going, self.safe, self.ends = set(), set(), []

    def pairs(self):
        engines = range(len(self.roles))
        down = {("prefill", "both"), ("prefill", "decode"), ("both", "decode")}
        return [
            Placement(p, d)
            for p in engines
            for d in engines
            if (self.roles[p], self.roles[d]) in down or (p == d and self.roles[p] != "prefill")
        ]

    def place(self, view, r):
        self.check(view)
        if self.going and self.random.random() < 0.3:
            return None
        placement = self.random.choice(self.pairs())
        self.going.add(r)
        if placement.prefill == placement.decode:
            self.safe.add(r)
        elif self.random.random() < 0.3:
            return Placement(placement.prefill, LATER)
        return placement

    def place_decode(self, view, r):
        self.check(view)
        self.going.discard(r)
        if self.safe and "both" not in self.roles and self.random.random() < 0.5:
            return None
        self.going.add(r)
        self.safe.add(r)
        return self.random.choice([e for e, role in enumerate(self.roles) if role == "decode"] or [1])

    def check(self, view):
        for used, total in zip(view.kv_used_blocks, view.kv_total_blocks, strict=True):
            assert 0 <= used <= total
        assert min(view.inflight_prefill_tokens + view.pending_prefill_tokens) >= 0

    def ended(self, r):
        self.ends.append(r)
        self.going.discard(r)
        self.safe.discard(r)


def pooled(case, roles, placer, network, requests=None, limits=None):
    return PoolCluster(
        requests or case.requests, [limits or case.limits[0]] * len(roles), list(roles), placer, network,
        trace_block=case.trace_block, seed=case.seed, concurrency=case.concurrency, settings=case.settings,
    )  # fmt: skip


def same(a: tuple, b: tuple) -> bool:
    return all(x == y or (x != x and y != y) for x, y in zip(a, b, strict=True))


@settings(QUIET, max_examples=100)
@given(cases(), WEIGHTS, NETWORKS)
def test_a_pool_that_does_both_is_no_pool(case, weights, network):
    without = Cluster(
        case.requests, case.limits, weighted(weights), case.trace_block, case.seed, case.concurrency,
        case.settings,
    )  # fmt: skip
    roles = ["both"] * len(case.limits)
    pool = pooled(case, roles, Local(weighted(weights)), network)
    n_fields = len(fields(Result))
    for a, b in zip(without.run(), pool.run(), strict=True):
        assert same(astuple(a), astuple(b)[:n_fields])
        assert b.decode_engine == b.engine and (b.moves, b.moved) == (0, 0)


@settings(QUIET, max_examples=200)
@given(cases(), ROLES, NETWORKS, st.integers(0, 2**32))
def test_everything_ends_once_and_tokens_bytes_and_blocks_are_conserved(case, roles, network, seed):
    dice = Dice(roles, seed)
    cluster = pooled(case, roles, dice, network)
    results = cluster.run()
    assert sorted(dice.ends) == list(range(len(case.requests)))
    assert not (dice.going or dice.safe)
    for request, result in zip(cluster.requests, results, strict=True):
        check_result(cluster, request, result)
    check_bandwidth([q for q in results if q.moves], network)
    assert not (cluster.hand_overs or cluster.waiting or cluster.on_engine or cluster.link.transfers)
    for engine in cluster.engines:
        assert len(engine.pool.free) == engine.pool.usable and not any(engine.pool.users)
        assert not (engine.hands_over or engine.remote or engine.waiting or engine.running)
    for gateway in cluster.router.gateways:
        assert not any(gateway.in_flight)


def check_result(cluster, request, result):
    if result.status == "rejected":
        assert (result.engine, result.decode_engine, result.moves) == (-1, -1, 0)
        return
    assert result.arrival <= result.scheduled < result.first_token <= result.finish
    assert len(result.token_times) == request.output
    assert (result.token_times[0], result.token_times[-1]) == (result.first_token, result.finish)
    assert result.token_times == sorted(result.token_times)
    if not result.preemptions:
        assert result.hit + result.prefilled == request.prompt
    assert result.moves == (result.engine != result.decode_engine)
    first, second = cluster.roles[result.engine], cluster.roles[result.decode_engine]
    if not result.moves:
        assert first != "prefill" or request.output == 1
        return
    assert first != "decode" and second != "prefill" and {first, second} != {"both"}
    assert result.moved + result.decode_hit == request.prompt
    assert result.first_token <= result.transfer_began <= result.transfer_ended < result.token_times[1]
    alone = cluster.network.latency_s + result.moved * cluster.bytes_per_token / cluster.network.bytes_per_s
    assert result.transfer_ended - result.transfer_began >= alone * (1 - 1e-9) - 1e-9


def check_bandwidth(moves, network):
    """Between any two instants no more bytes have moved than the link passes; it rests only without work."""
    for a in moves:
        for b in moves:
            first, last = a.transfer_began, b.transfer_ended
            moved = sum(q.moved for q in moves if first <= q.transfer_began and q.transfer_ended <= last)
            assert not moved or moved / network.bytes_per_s <= (last - first) * (1 + 1e-9) + 1e-9
    clock = 0.0  # whatever the shares, the last byte leaves when that of a queue of the same work does
    for at, moved in sorted((q.transfer_began + network.latency_s, q.moved) for q in moves):
        clock = max(clock, at) + moved / network.bytes_per_s
    if moves:
        assert math.isclose(clock, max(q.transfer_ended for q in moves), rel_tol=1e-9)


@st.composite
def conversations(draw) -> list[Request]:
    """Sessions that only append, each turn when the one before has ended."""
    made = []
    for session in range(draw(st.integers(1, 5))):
        start, before = draw(ticks(0, 40, 0.25)), 0
        for k in range(draw(st.integers(1, 4))):
            fresh, output = draw(st.integers(1, 14)), draw(st.integers(1, 9))
            prompt = before + fresh
            chain = tuple(1 + session * 1000 + block for block in range(prompt // 2))
            last = (len(made) - 1,) if k else ()
            made.append(
                Request(
                    prompt, output, start + k, chain, *(last or (-1,)), session, 1 if k else 0, 0.25, last
                )
            )
            before = prompt + output
    return made


def limits_for(requests, **more):
    longest = max(q.prompt + q.output for q in requests)
    coefficients = BatchCoefficients(0.25, 0.125, 0.0625)
    return Limits(longest // 2 + 3, 2, batch_time=coefficients, **more)


KV = st.sampled_from(["oracle", "per_turn", "quantile"])


@settings(QUIET, max_examples=80)
@given(conversations(), st.integers(1, 2), st.integers(1, 3), KV, NETWORKS, st.booleans())
def test_conserve_moves_kv_once_per_conversation(requests, n_prefill, n_decode, kv, network, tight):
    roles = ["prefill"] * n_prefill + ["decode"] * n_decode
    limits = limits_for(requests)
    budget = (limits.kv_blocks - 1) * 2 if tight else 10**6
    needs = Needs(requests, dict.fromkeys(range(n_prefill, n_prefill + n_decode), budget), kv)
    placer = Pinned(needs, dict.fromkeys(range(n_prefill), 1.0))
    results = PoolCluster(requests, [limits] * len(roles), roles, placer, network, trace_block=2).run()
    for session in {request.session for request in requests}:
        mine = [(requests[r], q) for r, q in enumerate(results) if requests[r].session == session]
        assert all(q.status == "done" for _, q in mine)
        first = next((k for k, (request, _) in enumerate(mine) if request.output > 1), len(mine))
        assert [q.moves for _, q in mine] == [k == first for k in range(len(mine))]
        assert len({q.decode_engine for _, q in mine[first:]}) <= 1  # pinned
        assert all(q.engine == q.decode_engine for _, q in mine[first + 1 :])
    assert not needs.held and not any(needs.used.values())


@settings(QUIET, max_examples=80)
@given(conversations(), st.integers(1, 2), st.integers(1, 3), NETWORKS, st.booleans(), st.booleans())
def test_full_disaggregation_moves_kv_once_per_turn(requests, n_prefill, n_decode, network, caching, late):
    roles = ["prefill"] * n_prefill + ["decode"] * n_decode
    limits = limits_for(requests, prefix_caching=caching)
    budget = dict.fromkeys(range(n_prefill, n_prefill + n_decode), 2 * (limits.kv_blocks - 1))
    placer = Disaggregated(Needs(requests, budget), dict.fromkeys(range(n_prefill), 1.0), late)
    results = PoolCluster(requests, [limits] * len(roles), roles, placer, network, trace_block=2).run()
    for request, result in zip(requests, results, strict=True):
        assert result.status == "done" and result.moves == (request.output > 1)
        if not caching and result.moves:
            assert (result.moved, result.preemptions) == (request.prompt, 0)
    assert not any(placer.needs.used.values())


@settings(QUIET, max_examples=60)
@given(cases(), NETWORKS)
def test_one_at_a_time_a_hand_over_adds_its_transfer_and_nothing_else(case, network):
    """So a link of unlimited speed and without latency adds nothing."""
    alone = [
        replace(request, arrival=1e6 * r, release=AT_ARRIVAL, deps=(), session=r)
        for r, request in enumerate(case.requests)
    ]
    longest = max(q.prompt + q.output for q in alone)
    limits = replace(
        case.limits[0], kv_blocks=longest + 99, watermark=0.0, max_model_len=None, prefix_caching=False
    )
    case = replace(case, concurrency=None, settings=Settings())  # no publishes for all that time
    here = Cluster(alone, [limits], lambda view, r: 0, case.trace_block).run()
    over = Dice(("prefill", "decode"), 0)
    over.place = lambda view, r: Placement(0, 1)
    for request, a, b in zip(
        alone, here, pooled(case, over.roles, over, network, alone, limits).run(), strict=True
    ):
        transfer = network.latency_s + request.prompt / network.bytes_per_s if request.output > 1 else 0.0
        later = [a.token_times[0], *(time + transfer for time in a.token_times[1:])]
        assert all(math.isclose(x, y, rel_tol=1e-12) for x, y in zip(later, b.token_times, strict=True))
        assert (a.first_token, a.hit, a.prefilled) == (b.first_token, b.hit, b.prefilled)
        if transfer == 0:
            assert a.token_times == b.token_times
