"""Made starts move whole sessions, or requests taken apart, and nothing else of a workload."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.random_clusters import give_chains, workload_of
from oracles.reference_simulator import AFTER_END, Request

from agentctl.cluster import cluster_of
from agentctl.errors import UsageError
from agentctl.policies.base import load_policy
from agentctl.profile import load_profile
from agentctl.recommend.scenario import Scenario, workload_in
from agentctl.sim.driver import simulate
from agentctl.synth.labelled import synthesise_labelled
from agentctl.workload import AT_ARRIVAL, Process, arrange, at_rate, compile_arriving
from agentctl.workload.arriving import rate_of

POISSON = Process("poisson", 2.0)


def sessions(n=30):
    """n sessions of two turns, started every 10 s, each with blocks of its own behind a shared one."""
    requests = []
    for session in range(n):
        first = len(requests)
        requests += [
            Request(4, 2, arrival=10.0 * session, session=session),
            Request(
                6, 1, arrival=10.0 * session + 5.0, session=session, parent=first, release=AFTER_END, gap=4.0,
                deps=(first,),
            ),
        ]  # fmt: skip
    ends = [(1, 2, 100 + 2 * s, 101 + 2 * s) for s in range(n)]
    give_chains(requests, [chain for end in ends for chain in (end, (*end, 7, 8))], 2, hashes_tails=True)
    return workload_of(requests, 2)


def test_sessions_start_as_the_process_says_in_the_trace_s_order_and_stay_whole():
    old = sessions()
    new = arrange(old, POISSON, seed=3)
    assert np.array_equal(new.session_starts(), POISSON.starts(30, 3)), "to the last bit"
    assert new.session_ids == old.session_ids
    q = new.requests
    for session in range(30):
        first, later = np.flatnonzero(q.session == session)
        assert q.arrival[later] - q.arrival[first] == pytest.approx(5.0)
        assert (q.release[later], q.gap[later], q.parent[later]) == (AFTER_END, 4.0, first)
        assert q.deps[q.deps_start[later] : q.deps_start[later + 1]].tolist() == [first]
    assert (new.replay, new.starts_synthesised, new.arriving) == (old.replay, True, POISSON)


def test_shuffled_sessions_come_in_another_order_that_the_seed_fixes():
    shuffled = Process("poisson", 2.0, order="shuffled")
    one, again, other = (arrange(sessions(), shuffled, seed) for seed in (1, 1, 2))
    assert one.session_ids == again.session_ids
    assert sorted(one.session_ids) == sorted(other.session_ids) == sorted(sessions().session_ids)
    assert one.session_ids != other.session_ids != sessions().session_ids
    assert np.array_equal(one.session_starts(), POISSON.starts(30, 1)), "the starts are those of the process"


def test_requests_apart_wait_for_nobody_and_keep_their_blocks():
    old = sessions()
    new = arrange(old, Process("deterministic", 5.0, of="requests"), seed=0)
    assert new.n_sessions == new.n_requests == 60
    q = new.requests
    assert np.array_equal(q.arrival, np.arange(60) / 5.0)
    assert (
        (q.release == AT_ARRIVAL).all() and not q.deps.size and (q.turn == 0).all() and (q.parent == -1).all()
    )
    assert new.request_ids == old.request_ids, "in order of arrival"
    assert np.array_equal(q.tip, old.requests.tip) and new.replay == "timestamps"


def test_without_a_rate_the_trace_s_own_is_taken():
    assert arrange(sessions(), Process("poisson"), 0).arriving.per_s == pytest.approx(0.1)
    apart = arrange(sessions(), Process("poisson", of="requests"), 0)
    assert apart.arriving.per_s == pytest.approx(59 / 295.0)
    assert rate_of(apart) == pytest.approx(59 / np.ptp(apart.requests.arrival))


def test_a_trace_that_starts_at_once_has_no_rate():
    with pytest.raises(UsageError, match="everything starts at once"):
        arrange(workload_of([Request(4, 1, arrival=0.0, session=s) for s in range(3)], None), Process(), 0)


@pytest.mark.parametrize("order", ["trace", "shuffled"])
def test_a_higher_rate_only_adds_sessions_behind_and_a_lower_one_spreads_them(order):
    base = arrange(sessions(), Process("poisson", 2.0, order=order), seed=5)
    for load, n in ((0.5, 30), (1.0, 30), (2.5, 75)):
        new = at_rate(base, load, seed=5)
        assert new.n_sessions == n and new.arriving.per_s == 2.0 * load
        assert new.session_ids[:30] == base.session_ids
        assert new.session_starts()[:30] == pytest.approx(base.session_starts() / load, rel=1e-12)
    assert [name.split("~")[0] for name in new.session_ids[30:60]] == base.session_ids
    assert len(set(new.session_ids)) == 75


def test_sessions_that_come_again_have_blocks_of_their_own():
    new = at_rate(arrange(sessions(3), POISSON, 0), 2.0, 0)
    own = [set(), set()]
    for request, tip in enumerate(new.requests.tip.tolist()):
        path = set()
        while tip:
            path.add(tip)
            tip = int(new.tree.parent[tip])
        again = "~" in new.session_ids[new.requests.session[request]]
        own[again] |= path
    assert len(own[0] & own[1]) == 1, "the block that all share"


def test_replicates_have_arrivals_of_their_own_and_every_load_of_one_the_same():
    base = arrange(sessions(), POISSON, seed=7)
    assert workload_in(Scenario(), base, 1.0, 7) is base
    one, two = (workload_in(Scenario(replicate), base, 1.0, 7) for replicate in (1, 2))
    assert one.session_starts()[:9] == pytest.approx(POISSON.starts(9, 8))
    assert two.session_starts()[:9] == pytest.approx(POISSON.starts(9, 9))
    twice = workload_in(Scenario(1), base, 2.0, 7)
    assert twice.session_ids[: one.n_sessions] == one.session_ids
    assert twice.session_starts()[:9] == pytest.approx(one.session_starts()[:9] / 2)


def test_every_policy_meets_the_same_arrivals():
    cluster = cluster_of(load_profile("h100-qwen3-8b-sfs"), 2)
    new = arrange(sessions(), Process("mmpp", 2.0, of="requests"), seed=4)
    arrived = [
        np.asarray(simulate(new, cluster, load_policy(name), seed=4).arrival_s)
        for name in ("round-robin", "least-loaded")
    ]
    assert np.array_equal(*arrived)
    assert arrived[0] == pytest.approx(Process("mmpp", 2.0).starts(60, 4))


def test_modes_that_have_no_arrivals_are_refused(tmp_path):
    trace = synthesise_labelled(tmp_path / "mix.trace", requests=12).trace
    with pytest.raises(UsageError, match="closed loop"):
        compile_arriving(trace, "closed-loop", POISSON)
    alone = Process("poisson", 2.0, of="requests")
    with pytest.raises(UsageError, match="wait for nobody"):
        compile_arriving(trace, "thinktime", alone)
    assert compile_arriving(trace, None, alone).replay == "timestamps"
    assert compile_arriving(trace, None, None).arriving is None
