"""Whole sessions are thinned, cloned and redrawn; nothing inside a session changes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles.random_clusters import Case, cases, give_chains, workload_of
from oracles.reference_simulator import AFTER_END, Request

from agentctl.errors import UsageError
from agentctl.workload import resample, scale_load, take_sessions
from agentctl.workload.load import VARIANTS

QUIET = settings(deadline=None, max_examples=50, suppress_health_check=list(HealthCheck))


def two_sessions():
    """Session 0: requests 0 and 2; session 1: request 1. Both begin with the block (1, 2)."""
    requests = [
        Request(4, 2, arrival=0.0, session=0),
        Request(4, 3, arrival=1.0, session=1),
        Request(6, 1, arrival=5.0, session=0, parent=0, release=AFTER_END, gap=4.0, deps=(0,)),
    ]
    give_chains(requests, [(1, 2, 3, 4), (1, 2, 8, 9), (1, 2, 3, 4, 5, 6)], 2, hashes_tails=True)
    return workload_of(requests, 2)


def chains(workload):
    paths = []
    for tip in workload.requests.tip.tolist():
        path = []
        while tip:
            path.append(tip)
            tip = int(workload.tree.parent[tip])
        paths.append(path[::-1])
    return paths


def test_a_session_moves_as_one_piece():
    w = take_sessions(two_sessions(), np.array([1, 0]), np.array([0.5, 100.0]))
    assert w.request_ids == ["r1", "r0", "r2"]
    assert w.session_ids == ["s1", "s0"]
    assert w.requests.arrival.tolist() == [0.5, 100.0, 105.0]
    assert w.requests.session.tolist() == [0, 1, 1]
    assert w.requests.parent.tolist() == [-1, -1, 1]
    assert w.requests.confirmed_child.tolist() == [-1, 2, -1]
    assert (w.requests.deps_start.tolist(), w.requests.deps.tolist()) == ([0, 0, 0, 1], [1])
    assert w.requests.gap[2] == 4.0


def test_a_clone_shares_what_sessions_share_and_owns_the_rest():
    w = take_sessions(two_sessions(), np.array([0, 1, 0]), np.array([0.0, 1.0, 10.0]))
    assert w.session_ids == ["s0", "s1", "s0~1"]
    first, other, later, clone, clone_later = chains(w)
    shared = first[0]
    assert other[0] == clone[0] == clone_later[0] == shared
    assert not set(clone[1:]) & set(first + other + later)
    assert later[:2] == first
    assert clone_later[:2] == clone


@QUIET
@given(cases(), st.sampled_from([0.3, 0.5, 1.0, 1.5, 2.0, 3.2]), st.integers(0, 5), st.sampled_from(VARIANTS))
def test_scaling_keeps_sessions_whole(case: Case, factor, seed, variant):
    check_made_of_whole_sessions(case.workload, scale_load(case.workload, factor, seed, variant))


@QUIET
@given(cases(), st.integers(0, 1000))
def test_resampling_keeps_sessions_whole(case: Case, seed):
    check_made_of_whole_sessions(case.workload, resample(case.workload, seed))


def check_made_of_whole_sessions(old, new):
    q = new.requests
    assert np.all(np.diff(q.arrival) >= 0)
    assert np.all(new.tree.parent[1:] < np.arange(1, new.tree.parent.size))
    assert np.all(new.tree.depth[1:] == new.tree.depth[new.tree.parent[1:]] + 1)
    for session, name in enumerate(new.session_ids):
        original = old.session_ids.index(name.split("~")[0])
        mine, theirs = np.flatnonzero(q.session == session), np.flatnonzero(old.requests.session == original)
        assert [new.request_ids[r].split("~")[0] for r in mine] == [old.request_ids[r] for r in theirs]
        number = {int(t): int(m) for t, m in zip(theirs, mine, strict=True)} | {-1: -1}
        for t, m in zip(theirs.tolist(), mine.tolist(), strict=True):
            assert q.prompt_tokens[m] == old.requests.prompt_tokens[t]
            since_first = q.arrival[m] - q.arrival[mine[0]]
            assert since_first == pytest.approx(old.requests.arrival[t] - old.requests.arrival[theirs[0]])
            assert (q.release[m], q.gap[m]) == (old.requests.release[t], old.requests.gap[t])
            assert q.parent[m] == number[int(old.requests.parent[t])]
            assert q.confirmed_child[m] == number[int(old.requests.confirmed_child[t])]
            new_deps = q.deps[q.deps_start[m] : q.deps_start[m + 1]].tolist()
            old_deps = old.requests.deps[old.requests.deps_start[t] : old.requests.deps_start[t + 1]].tolist()
            assert new_deps == [number[dep] for dep in old_deps]
            assert new.tree.depth[q.tip[m]] == old.tree.depth[old.requests.tip[t]]


def many_sessions(n=400):
    requests = [Request(4, 2, arrival=float(r), session=r) for r in range(n)]
    return workload_of(requests, None)


def test_a_larger_load_only_adds_sessions():
    w = many_sessions()
    smaller, larger = (set(scale_load(w, factor, 3).session_ids) for factor in (0.4, 0.7))
    assert smaller < larger < set(w.session_ids)
    cloned, more = (set(scale_load(w, factor, 3).session_ids) for factor in (1.4, 2.7))
    assert set(w.session_ids) < cloned < more


@pytest.mark.parametrize("factor", [0.25, 1.5, 3.0])
def test_the_number_of_sessions_follows_the_factor(factor):
    assert scale_load(many_sessions(), factor, 1).n_sessions == pytest.approx(400 * factor, rel=0.15)


def test_clones_of_recorded_starts_move_in_a_circle():
    w = scale_load(many_sessions(), 2.0, 1)
    starts = dict(zip(w.session_ids, w.session_starts().tolist(), strict=True))
    shifts = {round((starts[f"s{s}~1"] - starts[f"s{s}"]) % 399.0, 6) for s in range(400)}
    assert len(shifts) == 1
    assert 0.25 <= shifts.pop() / 399.0 <= 0.75


def test_clones_may_start_within_a_minute_of_their_original():
    w = scale_load(many_sessions(), 2.0, 1, variant="jitter")
    starts = dict(zip(w.session_ids, w.session_starts().tolist(), strict=True))
    moved = np.array([starts[f"s{s}~1"] - starts[f"s{s}"] for s in range(400)])
    assert np.abs(moved).max() <= 60.0
    assert moved.std() > 20.0


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_compressed_starts_keep_every_session_and_their_proportions(factor):
    w = scale_load(many_sessions(), factor, variant="compress")
    assert w.session_ids == many_sessions().session_ids
    assert w.session_starts() == pytest.approx(many_sessions().session_starts() / factor)


def test_compressing_starts_leaves_the_gaps_of_a_session_alone():
    w = scale_load(two_sessions(), 4.0, variant="compress")
    assert w.request_ids == ["r0", "r1", "r2"]
    assert w.requests.arrival.tolist() == [0.0, 0.25, 5.0]
    assert w.requests.gap.tolist() == [0.0, 0.0, 4.0]


def test_synthesised_starts_are_drawn_anew_over_the_same_span():
    w = scale_load(replace(many_sessions(), starts_synthesised=True), 2.0, 1)
    clones = np.array(
        [start for name, start in zip(w.session_ids, w.session_starts(), strict=True) if "~" in name]
    )
    assert clones.min() >= 0.0
    assert clones.max() <= 399.0
    assert np.histogram(clones, bins=4)[0].min() > 60


def test_the_same_seed_draws_the_same_and_another_seed_another_day():
    w = many_sessions()
    assert resample(w, 5).session_ids == resample(w, 5).session_ids
    assert resample(w, 5).session_ids != resample(w, 6).session_ids


def test_resampled_sessions_keep_their_offset_in_a_block():
    w = resample(many_sessions(1000), 2)  # blocks of 999/16 = 62.4375 s
    length = 999 / 16
    for name, start in zip(w.session_ids, w.session_starts().tolist(), strict=True):
        logged = float(name.split("~")[0][1:])
        assert (start - logged) / length == pytest.approx(round((start - logged) / length), abs=1e-6)


def test_an_unknown_variant_is_refused():
    with pytest.raises(UsageError, match="load variant is 'squeeze'"):
        scale_load(many_sessions(), 2.0, variant="squeeze")


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_load_that_is_no_load_is_refused(factor):
    with pytest.raises(UsageError, match="load factor"):
        scale_load(many_sessions(), factor)
