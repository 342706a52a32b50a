"""Laws that hold for every run of the simulator, whatever the workload, the cluster and the policy."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles import books, books_sglang
from oracles.kernels import from_python
from oracles.random_clusters import Case, cases, cluster_of, make_case, workload_of
from oracles.reference_simulator import BatchCoefficients, Limits, Request

from agentctl.errors import ConfigError, UsageError
from agentctl.sim import driver, loop
from agentctl.sim.compiled import eye
from agentctl.sim.driver import simulate

QUIET = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))

SPREAD = SimpleNamespace(
    name="spread", my=None, choose=lambda view, requests, r, my: r % view.waiting_requests.size
)
LEAST = SimpleNamespace(
    name="least", my=None, choose=lambda view, requests, r, my: int(np.argmin(view.inflight_requests))
)
STICKY = SimpleNamespace(
    name="sticky", my=None, choose=lambda view, requests, r, my: int(np.argmax(view.hit_tokens))
)
REAL = {
    name: from_python(getattr(loop, name))
    for name in (
        *("next_time", "pop", "publish", "_receive", "_start_idle", "_finish_batches", "_ask_again"),
        "place_or_send",
    )
}
POLICIES = st.sampled_from([SPREAD, LEAST, STICKY])


BOTH = st.one_of(cases(), cases(sglang=True))  # schedulers


EYES = []


def look_of_the_simulator(s, arrivals, requests):
    """The same for all runs, whose arrays are of the same types; finding that out each time takes long."""
    if not EYES:
        EYES.append(eye(s, arrivals, requests))
    return EYES[0]


def check_books(s):
    (books_sglang if s.limits[0].is_sglang else books).check(s)


def run(case: Case, policy, **keys):
    return simulate(case.workload, case.cluster, policy, concurrency=case.concurrency, **keys)


@QUIET
@given(BOTH, POLICIES)
def test_no_block_is_lost_no_engine_idles_and_the_clock_never_goes_back(case, policy):
    """The books are checked after every batch and every arrival, and idle engines before the clock moves."""
    clock = [-math.inf]

    def check_clock(now):
        assert now >= clock[0], "the clock never goes back"
        clock[0] = now

    def start_idle(s, now, start):
        check_clock(now)
        REAL["_start_idle"](s, now, start)
        for engine, ends_at in zip(s.engines, s.ends_at, strict=True):
            is_busy = ends_at < math.inf
            assert is_busy == bool(engine.n_running or engine.n_waiting), "an engine with work must run"
            assert ends_at >= now
        check_books(s)

    def finish_batches(s, arrivals, now, *rules):
        check_clock(now)
        assert now == arrivals.now[0] == min(s.ends_at.min(), REAL["next_time"](arrivals))
        REAL["_finish_batches"](s, arrivals, now, *rules)
        check_books(s)

    def look(s, arrivals, *who):
        check_clock(arrivals.now[0])
        view = look_of_the_simulator(s, arrivals, who[0])(s, arrivals, *who)
        check_books(s)
        return view

    def place_or_send(s, arrivals, *where):
        names_an_engine = REAL["place_or_send"](s, arrivals, *where)
        check_books(s)
        return names_an_engine

    with pytest.MonkeyPatch.context() as patch:
        for name in ("next_time", "pop", "_receive", "_ask_again", "publish"):
            patch.setattr(loop, name, REAL[name])
        patch.setattr(loop, "_start_idle", start_idle)
        patch.setattr(loop, "_finish_batches", finish_batches)
        advance = getattr(loop.advance, "py_func", loop.advance)
        patch.setattr(driver, "pieces", lambda *_: (advance, look, place_or_send))
        run(case, policy)
    assert clock[0] > -math.inf


@QUIET
@given(BOTH, POLICIES)
def test_every_request_ends_in_exactly_one_state_and_in_order(case, policy):
    out = run(case, policy)
    done = out.done
    assert np.all(out.arrival_s[done] <= out.scheduled_s[done])
    assert np.all(out.scheduled_s[done] <= out.first_token_s[done])
    assert np.all(out.first_token_s[done] <= out.finish_s[done])
    one = done & (case.workload.requests.output_tokens == 1)
    assert np.all(out.first_token_s[one] == out.finish_s[one])
    assert np.all(~np.isnan(out.arrival_s))
    rejected = ~done
    assert np.all(np.isnan(out.finish_s[rejected])) and np.all(out.engine[rejected] == -1)
    assert out.table()["status"].to_pylist() == ["done" if ok else "rejected" for ok in done]


@QUIET
@given(BOTH, POLICIES)
def test_prompt_tokens_are_found_or_computed(case, policy):
    """Without a preemption each prompt token is computed exactly once, unless it was found."""
    out, prompt = run(case, policy), case.workload.requests.prompt_tokens
    calm = out.done & (out.preemptions == 0)
    assert np.array_equal((out.hit_tokens + out.computed_prefill_tokens)[calm], prompt[calm])
    assert np.all(out.hit_tokens < prompt)


@QUIET
@given(BOTH, POLICIES)
def test_the_same_seed_gives_the_same_bytes(case, policy):
    assert run(case, policy).table().equals(run(case, policy).table())


@QUIET
@given(BOTH)
def test_with_one_engine_all_policies_agree(case):
    case = make_case(case.requests, case.tokens, case.trace_block, [case.limits[0]], case.concurrency)
    outcomes = [run(case, policy).table() for policy in (SPREAD, LEAST, STICKY)]
    assert all(outcome.equals(outcomes[0]) for outcome in outcomes)


@QUIET
@given(BOTH)
def test_relabelling_engines_changes_nothing_but_their_numbers(case):
    n = len(case.limits)
    mirrored = SimpleNamespace(name="mirrored", my=None, choose=lambda view, requests, r, my: n - 1 - r % n)
    there, back = run(case, SPREAD), run(case, mirrored)
    assert np.array_equal(there.engine[there.done], n - 1 - back.engine[back.done])
    columns = ["scheduled_s", "first_token_s", "finish_s", "hit_tokens", "preemptions"]
    assert there.table().select(columns).equals(back.table().select(columns))


def lone(n=1, **limits):
    """n requests of 100 + 10 tokens, 1 s apart, on one engine whose batches take 1 ms."""
    requests = [Request(100, 10, arrival=float(r), session=r) for r in range(n)]
    fixed = {"kv_blocks": 100, "batch_time": BatchCoefficients(b0=2.0**-10), **limits}
    return workload_of(requests, None, "timestamps"), cluster_of([Limits(**fixed)])


def test_a_request_alone_takes_its_batches_and_nothing_else():
    out = simulate(*lone(), SPREAD)
    assert (out.first_token_s[0], out.finish_s[0]) == (2.0**-10, 10 * 2.0**-10)


@pytest.mark.parametrize("answer", [-1, 1])
def test_a_policy_that_names_no_engine_is_an_error_with_the_request(answer):
    policy = SimpleNamespace(name="lost", my=None, choose=lambda view, requests, r, my: answer)
    with pytest.raises(
        ConfigError, match=r"policy lost: chose engine .* for request 0; expected .* from 0 to 0"
    ):
        simulate(*lone(), policy)


def test_closed_loop_needs_a_concurrency_and_others_refuse_one():
    workload, cluster = lone()
    with pytest.raises(UsageError, match="replay timestamps with concurrency 3"):
        simulate(workload, cluster, SPREAD, concurrency=3)
    closed = workload_of([Request(4, 2)], None, "closed-loop")
    with pytest.raises(UsageError, match="replay closed-loop with concurrency None"):
        simulate(closed, cluster, SPREAD)
    with pytest.raises(UsageError, match="concurrency is 0"):
        simulate(closed, cluster, SPREAD, concurrency=0)


def test_progress_reaches_the_end():
    seen = []
    simulate(*lone(7), SPREAD, progress=lambda share, what: seen.append(share))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_what_never_fits_is_rejected_and_its_session_goes_on():
    requests = [
        Request(2000, 10, arrival=1.0),
        Request(20, 10, arrival=9.0, release=1, gap=2.0, deps=(0,)),
    ]
    out = simulate(workload_of(requests, None), lone()[1], SPREAD)
    assert out.done.tolist() == [False, True]
    assert out.arrival_s.tolist() == [1.0, 3.0]
    row = out.table().slice(0, 1).to_pylist()[0]
    assert row["status"] == "rejected" and row["engine"] is None and row["finish_s"] is None


def test_a_request_sent_where_it_never_fits_is_rejected_and_that_was_a_choice():
    """Engine 0 has 99 blocks of 16 tokens, engine 1 twice as many; the first request needs 126."""
    requests = [Request(2000, 10), Request(2000, 10, session=1), Request(20, 10, session=2)]
    seen = []

    def choose(view, requests, r, my):
        seen.append(int(view.last_chosen))
        return r % 2

    pool = lone()[1].pools[0]
    pools = (pool, replace(pool, name="large", kv_blocks=200))
    policy = SimpleNamespace(name="blind", my=None, choose=choose)
    out = simulate(workload_of(requests, None), replace(lone()[1], pools=pools), policy)
    assert out.done.tolist() == [False, True, True]
    assert seen == [-1, 0, 1]


def test_what_is_not_simulated_yet_is_refused_not_ignored():
    workload, cluster = lone()
    pool = replace(cluster.pools[0], role="decode", scheduler="sglang")
    with pytest.raises(ConfigError, match="is not simulated yet"):
        simulate(workload, replace(cluster, pools=(pool,)), SPREAD)


def test_pools_of_different_block_sizes_are_refused():
    workload, cluster = lone()
    pools = (cluster.pools[0], replace(cluster.pools[0], name="other", block_tokens=32))
    with pytest.raises(ConfigError, match="different block_tokens are not simulated yet"):
        simulate(workload, replace(cluster, pools=pools), SPREAD)


def test_engines_are_numbered_over_all_pools():
    requests = [Request(100, 2, session=r) for r in range(4)]
    cluster = lone()[1]
    pools = (replace(cluster.pools[0], engines=1), replace(cluster.pools[0], name="large", engines=3))
    table = simulate(workload_of(requests, None), replace(cluster, pools=pools), SPREAD).table()
    assert table["engine"].to_pylist() == [0, 1, 2, 3]
    assert table["pool"].to_pylist() == ["main", "large", "large", "large"]
