"""What every other engine would have given a request: copies of the simulated world, followed."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles.random_clusters import cases, make_case
from oracles.reference_simulator import BatchCoefficients, Limits, Request

from agentctl.policies.base import load_policy
from agentctl.sim.driver import begin, simulate
from agentctl.sim.explain import Fork, can_serve, chooser, decisions, eye

QUIET = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
BOTH = st.one_of(cases(), cases(sglang=True))  # schedulers
FIELDS = (
    "engine",
    "arrival",
    "scheduled",
    "first_token",
    "finish",
    "hit",
    "prefilled",
    "preemptions",
)

LMETRIC = load_policy("lmetric")
PLAIN = SimpleNamespace(
    name="plain", my=None, choose=lambda view, requests, r, my: int(np.argmin(view.inflight_requests))
)
STICKY = load_policy("session-sticky")  # keeps notes
POLICIES = st.sampled_from([LMETRIC, STICKY, PLAIN])


def placed(case):
    """Requests that the router has to place."""
    return np.flatnonzero(can_serve(case.cluster, case.workload.requests).any(axis=1)).tolist()


def end(replay):
    return {name: replay.s.jobs[name].tobytes() for name in FIELDS}


@QUIET
@given(BOTH, POLICIES, st.data())
def test_the_branch_of_the_chosen_engine_is_the_run_to_the_bit(case, policy, data):
    """The copy goes on as the run does, for every request and not only for the one that was sent."""
    whole = begin(case.workload, case.cluster, policy, 0, case.concurrency)
    n = case.workload.n_requests
    whole.go_on(n + 1)
    requests = placed(case)
    if not requests:
        return
    r = data.draw(st.sampled_from(requests))
    base = begin(case.workload, case.cluster, policy, 0, case.concurrency)
    fork = Fork(base)
    assert not base.go_on(n + 1, r)
    view = eye(base.s, base.arrivals, base.requests)(
        base.s, base.arrivals, base.requests, r, 0, base.rules.settle, base.rules.ask
    )
    chosen = chooser(base)(view, r)
    for e in range(base.s.engines.size):  # traces of other branches must not stay in the copy
        fork.follow(r, e)
    fork.follow(r, chosen)
    fork.replay.go_on(n + 1)
    assert end(fork.replay) == end(whole)
    assert chosen == whole.s.jobs["engine"][r] or np.isnan(whole.s.jobs["finish"][r])
    base.go_on(n + 1, held=r, engine=chosen)
    assert end(base) == end(whole), "the replay that was stopped and copied goes on as if it had not been"


@QUIET
@given(BOTH, POLICIES)
def test_every_request_can_be_explained_and_none_loses_less_than_nothing(case, policy):
    outcome = simulate(case.workload, case.cluster, policy, concurrency=case.concurrency)
    explained = list(
        decisions(case.workload, case.cluster, policy, outcome, range(case.workload.n_requests),
                  concurrency=case.concurrency)
    )  # fmt: skip
    assert sorted(one.request for one in explained) == placed(case)
    for one in explained:
        r, branches = one.request, one.branches
        assert one.seen.now == outcome.arrival_s[r]
        assert branches.first_token_s[one.chosen] == outcome.first_token_s[r] or not outcome.done[r]
        known = ~np.isnan(branches.finish_s)
        assert np.all(branches.hit_tokens[~known] == -1)
        assert np.all(outcome.arrival_s[r] <= branches.scheduled_s[known])
        assert np.all(branches.scheduled_s[known] <= branches.first_token_s[known])
        assert np.all(branches.first_token_s[known] <= branches.finish_s[known])
        assert np.all(branches.hit_tokens[known] < case.workload.requests.prompt_tokens[r])
        if outcome.done[r]:
            assert outcome.first_token_s[r] - np.nanmin(branches.first_token_s) >= 0


def test_a_known_better_choice_is_found():
    """Two engines; a prompt of 8 tokens keeps one of them busy for 8 s. Another request of 2 tokens comes at
    1 s and is sent behind it: it waits 7 s and computes for 2. On the idle engine it would take 2 s."""
    limits = Limits(101, block_tokens=2, batch_time=BatchCoefficients(b0=0.0, b_prefill=1.0))
    requests = [Request(prompt=8, output=1, arrival=0.0), Request(prompt=2, output=1, arrival=1.0, session=1)]
    case = make_case(requests, [tuple(range(9)), (50, 51, 52)], None, [limits] * 2)
    first = SimpleNamespace(name="first", my=None, choose=lambda view, requests, r, my: 0)
    outcome = simulate(case.workload, case.cluster, first)
    (one,) = decisions(case.workload, case.cluster, first, outcome, [1])
    assert one.chosen == 0 and one.seen.running_requests.tolist() == [1, 0]
    assert one.branches.first_token_s.tolist() == [10.0, 3.0]
    assert one.branches.scheduled_s.tolist() == [8.0, 1.0]
    assert one.costs is None


@pytest.mark.parametrize("stops", [[], [3], list(range(40))])
def test_following_until_the_first_token_gives_the_same_first_token(stops):
    from oracles import crowded

    limits, trace_block, _ = crowded.RUNS[0]
    case = make_case(*crowded.sessions(trace_block), trace_block, [limits] * 2)
    outcome = simulate(case.workload, case.cluster, LMETRIC)
    short, long = (
        list(decisions(case.workload, case.cluster, LMETRIC, outcome, stops, to_end=to_end))
        for to_end in (False, True)
    )
    assert len(short) == len(long) == len(stops)
    for a, b in zip(short, long, strict=True):
        assert np.array_equal(a.branches.first_token_s, b.branches.first_token_s)
        assert np.array_equal(a.branches.hit_tokens, b.branches.hit_tokens)
