"""Random pools with roles, and the judge's run of them beside the simulator's."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st
from oracles.comparison import check_equal, policy_of, recorded
from oracles.random_clusters import Case
from oracles.reference_pools import LATER, Network, Placement, PoolCluster, PoolView
from oracles.reference_tiered_pools import TieredPoolCluster
from oracles.tiering import check_tier_hits, with_tiers

from agentctl.cluster import Cluster
from agentctl.cluster import Network as Link
from agentctl.sim import roles as answers
from agentctl.sim.driver import simulate
from agentctl.sim.outcome import Outcome

ROLES = st.sampled_from(
    [("prefill", "decode"), ("prefill", "decode", "decode"), ("prefill", "prefill", "decode"),
     ("decode", "prefill"), ("prefill", "both"), ("both", "decode"), ("decode", "both", "prefill"),
     ("prefill", "both", "decode"), ("both", "both", "decode")]
)  # fmt: skip
ODD = 1 + math.e / 100  # transfers end with nothing else, not with those of tiers either, or take no time
NETWORKS = st.builds(
    Network,
    st.one_of(st.floats(0.5, 50.0), st.floats(4.0, 1000.0), st.just(math.inf)).map(lambda x: x * ODD),
    st.sampled_from([0.0, 0.0, 0.125 * ODD, 3.0 * ODD]),
)


class Dice:
    """All that may be answered, at random; waiting only for what can end without the one that waits."""

    def __init__(self, roles, seed):
        self.roles, self.random = roles, random.Random(seed)
        self.going, self.safe = set(), set()
        self.asked = []  # (request, where its prompt was computed, the view)

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
        if self.going and self.random.random() < 0.3:
            return None
        placement = self.random.choice(self.pairs())
        if self.random.random() < 0.05:  # what no roles permit
            placement = Placement(*(self.random.choice(range(len(self.roles))) for _ in range(2)))
        self.going.add(r)
        if placement.prefill == placement.decode:
            self.safe.add(r)
        elif self.random.random() < 0.3:
            return Placement(placement.prefill, LATER)
        return placement

    def place_decode(self, view, r):
        self.going.discard(r)
        if self.safe and "both" not in self.roles and self.random.random() < 0.5:
            return None
        self.going.add(r)
        self.safe.add(r)
        if self.random.random() < 0.05:
            return self.random.choice(range(len(self.roles)))
        return self.random.choice([e for e, role in enumerate(self.roles) if role == "decode"] or [1])

    def ended(self, r):
        self.going.discard(r)
        self.safe.discard(r)


class Told:
    """A placer and what it was shown."""

    def __init__(self, placer):
        self.placer, self.seen, self.over = placer, [], []

    def place(self, view, r):
        self.seen.append((r, -1, vars(view)))
        return self.placer.place(view, r)

    def place_decode(self, view, r):
        self.seen.append((r, 0, vars(view)))
        return self.placer.place_decode(view, r)

    def ended(self, r):
        self.over.append(r)
        self.placer.ended(r)


class Sided:
    """A policy of one engine that is asked for the decoder first, then for who computes the prompt."""

    def __init__(self, roles, choose, splits):
        self.sides = {
            role: [e for e, one in enumerate(roles) if one == role] for role in ("prefill", "decode")
        }
        self.choose, self.splits = choose, splits

    def place(self, view, r):
        decode = self._choose(view, r, "decode", view.last_decode)
        prompt = self.requests[r].prompt
        if not self.splits(prompt, view.hit_tokens[decode]):
            return Placement(decode, decode)
        return Placement(self._choose(view, r, "prefill", view.last_chosen), decode)

    def _choose(self, view, r, role, last):
        engines = self.sides[role]
        own = {
            name: [value[e] for e in engines] if isinstance(value, list) else value
            for name, value in vars(view).items()
        }
        own |= {"last_chosen": engines.index(last) if last in engines else -1}
        return engines[self.choose(PoolView(**own), r)]

    def ended(self, r):
        pass


def answering(placer):
    """The judge's placer as a policy of the simulator."""
    n_over = 0

    def choose(view, r):
        nonlocal n_over
        for q in view.over[n_over : view.n_over]:
            placer.ended(int(q))
        n_over = view.n_over
        if view.prefill_engine >= 0:
            decode = placer.place_decode(view, r)
            return answers.NOT_YET if decode is None else decode
        placement = placer.place(view, r)
        if placement is None:
            return answers.NOT_YET
        if placement.prefill == LATER:
            return answers.REFUSED
        return answers.hand_over(placement.prefill, placement.decode)

    return choose


def with_roles(case: Case, roles, network: Network) -> Cluster:
    """A pool for each engine; a token's KV is one byte."""
    pool = case.cluster.pools[0]
    profile = replace(pool.profile, kv_bytes_per_token=1)
    pools = tuple(
        replace(pool, name=f"p{e}", role=role, engines=1, profile=profile) for e, role in enumerate(roles)
    )
    link = Link(network.bytes_per_s, network.latency_s) if set(roles) != {"both"} else None
    return replace(case.cluster, pools=pools, network=link)


def pooled(case: Case, roles, placer, network: Network, tiers=(), layers=None) -> PoolCluster:
    kind, more = (TieredPoolCluster, {"tiers": tiers, "layers": layers}) if tiers else (PoolCluster, {})
    return kind(
        case.requests, [case.limits[0]] * len(roles), list(roles), placer, network,
        trace_block=case.trace_block, seed=case.seed, concurrency=case.concurrency, settings=case.settings,
        **more,
    )  # fmt: skip


def check_pooled(case: Case, roles, network: Network, seed: int, tiers=(), layers=None) -> Outcome:
    """Both simulators agree on every request, both its engines, what moved when, and what the policy saw."""
    return check_placer(case, roles, network, lambda: Dice(roles, seed), tiers, layers)


def check_placer(
    case: Case, roles, network: Network, make, tiers=(), layers=None, relative=1e-9, policy=None
) -> Outcome:
    """`policy`: of the simulator, if it is not the judge's placer."""
    told, shown = Told(make()), []
    told.placer.requests = case.requests
    judged = pooled(case, roles, told, network, tiers, layers).run()
    if tiers:
        case = with_tiers(case, tiers, layers)
    own = policy or policy_of(recorded(answering(make()), shown), places=True)
    cluster = with_roles(case, roles, network)
    outcome = simulate(case.workload, cluster, own, case.seed, case.concurrency)
    for (r, _, theirs), (also_r, ours) in zip(told.seen, shown, strict=False):
        assert (r, theirs["now"]) == (also_r, pytest.approx(ours["now"], rel=relative))
        for name, value in theirs.items():
            if name in ours:
                np.testing.assert_allclose(ours[name], value, rtol=relative, atol=relative, err_msg=name)
    assert policy or len(told.seen) == len(shown)
    check_equal(judged, outcome, relative)
    assert outcome.decode_engine.tolist() == [q.decode_engine for q in judged]
    assert outcome.moved_tokens.tolist() == [q.moved for q in judged]
    assert outcome.decode_hit_tokens.tolist() == [q.decode_hit for q in judged]
    assert outcome.decode_computed_tokens.tolist() == [q.decode_prefilled for q in judged]
    assert outcome.decode_preemptions.tolist() == [q.decode_preemptions for q in judged]
    np.testing.assert_allclose(outcome.sent_s, [q.sent for q in judged], rtol=relative)
    for name, field in (("transfer_began", outcome.move_began_s), ("transfer_ended", outcome.move_ended_s)):
        np.testing.assert_allclose(field, [getattr(q, name) for q in judged], rtol=relative, err_msg=name)
    if tiers:
        check_tier_hits(judged, outcome, tiers)
        took = [q.load_s + (q.transfer_ended - q.transfer_began if q.moves else 0.0) for q in judged]
        np.testing.assert_allclose(outcome.transfer_s, took, rtol=relative, atol=relative * 10)
    return outcome
