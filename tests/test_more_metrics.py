"""Metrics of sessions, caches and balance: by hand, and by the laws that tie them together."""

import numpy as np
import pytest
from hypothesis import given, settings
from oracles.comparison import QUIET, WEIGHTS, policy_of, weighted
from oracles.random_clusters import cases, give_chains, make_case
from oracles.reference_simulator import AFTER_END, BatchCoefficients, Limits, Request

from agentctl.metrics import METRICS, Isolated, Run, Samples, isolated_of, measure, sessions_in_flight
from agentctl.sim.driver import simulate

NAN = np.nan


def value(name, run):
    return METRICS[name].compute(run)


@pytest.fixture
def run():
    """Session 0: turns at 0, 10 and 20 s, the last one rejected. Session 1: turns at 5 and 15 s."""
    return Run(
        n_engines=2,
        n_sessions=2,
        done=np.array([True, True, True, True, False]),
        session=np.array([0, 1, 0, 1, 0], dtype=np.int32),
        engine=np.array([0, 1, 1, 1, -1]),
        arrival_s=np.array([0.0, 5.0, 10.0, 15.0, 20.0]),
        first_token_s=np.array([2.0, 6.0, 13.0, 16.0, NAN]),
        finish_s=np.array([4.0, 7.0, 14.0, 25.0, NAN]),
        prompt_tokens=np.array([100, 50, 200, 50, 500]),
        output_tokens=np.array([3, 1, 2, 4, 7]),
        cached_tokens=np.array([0, 0, 160, 32, 0]),
        computed_prefill_tokens=np.array([100, 50, 60, 18, 0]),
        scheduled_s=np.array([1.0, 5.0, 10.5, 15.0, NAN]),
        itl_max_s=np.array([1.5, NAN, 1.0, 8.0, NAN]),
        preemptions=np.array([0, 0, 1, 0, 0]),
        session_tokens=np.array([0, 0, 96, 48, 96]),
        copies=1.25,
        samples=Samples(
            time_s=np.array([0.0, 10.0, 20.0]),
            waiting_requests=np.zeros((3, 2), dtype=np.int64),
            running_requests=np.array([[0, 0], [1, 0], [1, 1]]),
            pending_prefill_tokens=np.array([[0, 0], [30, 10], [0, 5]]),
            context_tokens=np.zeros((3, 2), dtype=np.int64),
            kv_used_blocks=np.array([[0, 0], [10, 10], [5, 15]]),
            emitted_tokens=np.array([[0, 0], [3, 1], [3, 3]]),
            kv_total_blocks=np.array([20, 20]),
        ),
    )


def test_a_request_waits_until_it_is_first_admitted(run):
    np.testing.assert_array_equal(value("queue_s", run), [1.0, 0.0, 0.5, 0.0, NAN])
    np.testing.assert_array_equal(value("itl_max_s", run), [1.5, NAN, 1.0, 8.0, NAN])


def test_the_effective_token_is_the_first_of_the_last_finished_turn(run):
    np.testing.assert_array_equal(value("ttfet_s", run), [13.0, 11.0])
    np.testing.assert_array_equal(value("ttfet_every_turn_s", run), [2.0, 1.0, 13.0, 11.0, NAN])


def test_a_sessions_first_and_last_turn_are_told_apart_from_its_requests(run):
    # Session 0: 0 -> 2 -> 4 (3 tokens), then 10 -> 13 -> 14 (2 tokens), a third is rejected. Session 1: 5 ->
    # 6 -> 7 (1 token), then 15 -> 16 -> 25 (4 tokens). Admitted at 1, 10.5; 5, 15.
    assert value("ttft_first_turn_s", run).tolist() == [2.0, 1.0]
    assert value("ttft_first_turn_unqueued_s", run).tolist() == [1.0, 1.0]
    assert value("ttft_last_turn_s", run).tolist() == [3.0, 1.0]
    assert value("ttft_last_turn_unqueued_s", run).tolist() == [2.5, 1.0]
    assert value("tbt_last_turn_s", run).tolist() == [1.0, 3.0]


def test_turns_of_a_session_without_a_finished_one_do_not_exist(run):
    nothing = run._replace(done=np.array([False, True, False, False, False]))
    np.testing.assert_array_equal(value("ttft_first_turn_s", nothing), [NAN, 1.0])
    np.testing.assert_array_equal(value("ttft_last_turn_s", nothing), [NAN, 1.0])
    np.testing.assert_array_equal(value("tbt_last_turn_s", nothing), [NAN, NAN])
    np.testing.assert_array_equal(value("ttfet_s", nothing), [NAN, 1.0])


def test_turns_are_in_order_of_arrival_and_of_those_at_one_instant_the_first_and_the_last_count(run):
    swapped = run._replace(arrival_s=np.array([10.0, 5.0, 10.0, 5.0, 10.0]))
    assert value("ttft_first_turn_s", swapped).tolist() == [-8.0, 1.0]
    assert value("ttft_last_turn_s", swapped).tolist() == [3.0, 11.0]


def test_times_are_compared_with_the_same_session_alone(run):
    # TTFET 13 and 11 s, sessions 20 and 20 s, 1 and 3 s between tokens of the last turn.
    assert measure(run)["ttfet_x_isolated"]["reason"] == "sessions were not run in isolation"
    alone = run._replace(isolated=Isolated(np.array([2.0, 11.0]), np.array([5.0, NAN]), np.array([1.0, 0.5])))
    assert value("ttfet_x_isolated", alone).tolist() == [6.5, 1.0]
    assert value("ttfet_x_isolated_gmean", alone) == pytest.approx(6.5**0.5)
    assert value("ttfet_x_isolated_above_5", alone) == 0.5
    np.testing.assert_array_equal(value("session_x_isolated", alone), [4.0, NAN])
    assert value("session_x_isolated_above_5", alone) == 0.0
    assert value("tbt_last_turn_x_isolated", alone).tolist() == [1.0, 6.0]
    own = isolated_of(run)
    assert value("ttfet_x_isolated", run._replace(isolated=own)).tolist() == [1.0, 1.0]


def test_a_turn_on_another_engine_than_the_one_before_has_migrated(run):
    assert value("migrations", run) == 1
    assert value("migration_ratio", run) == 1 / 2
    np.testing.assert_array_equal(value("engines_per_session", run), [2.0, 1.0])


def test_sessions_are_in_flight_from_first_arrival_to_last_end(run):
    times, n = sessions_in_flight(run)
    assert times.tolist() == [0.0, 5.0, 20.0, 25.0]
    assert n.tolist() == [1, 2, 1, 0]
    assert value("sessions_in_flight_mean", run) == (5 + 30 + 5) / 25
    assert value("sessions_in_flight_max", run) == 2


def test_a_hit_is_the_sessions_own_as_far_as_it_had_the_content(run):
    assert value("hit_ratio", run) == 192 / 400
    assert value("hit_intra_session_ratio", run) == (96 + 32) / 400
    assert value("hit_inter_session_ratio", run) == 64 / 400
    assert value("session_miss_ratio", run) == 16 / 400


def test_a_preemption_costs_what_is_computed_beyond_what_was_missing(run):
    np.testing.assert_array_equal(value("recomputed_tokens", run), [0, 0, 20, 0, NAN])
    np.testing.assert_array_equal(value("preemptions", run), [0, 0, 1, 0, NAN])


def test_load_is_compared_at_every_sample_that_has_any(run):
    assert value("imbalance_pending_prefill_over_time", run).tolist() == [1.5, 2.0]
    assert value("cv_pending_prefill_over_time", run).tolist() == [0.5, 1.0]
    assert value("imbalance_running_over_time", run).tolist() == [2.0, 1.0]
    assert value("imbalance_kv_over_time", run).tolist() == [1.0, 1.5]
    np.testing.assert_allclose(value("imbalance_tokens_per_s_over_time", run), [1.5, 2.0])


def test_what_a_run_cannot_tell_is_null_with_the_reason(run):
    document = measure(run._replace(samples=None, session_tokens=None, copies=None))
    for name in ("hit_host_ratio", "hit_global_ratio", "hit_intra_session_ratio", "replication"):
        assert document[name]["value"] is None
        assert document[name]["reason"]
    for name in ("ttfet_first_non_tool_turn_s", "cv_kv_over_time"):
        assert (document[name]["n"], document[name]["p95"]) == (0, None)
        assert document[name]["reason"]
    assert "reason" not in document["ttft_s"]


def observed(case, weights):
    policy = policy_of(weighted(weights))
    outcome = simulate(case.workload, case.cluster, policy, concurrency=case.concurrency, observed=True)
    return outcome.run()


@settings(QUIET, max_examples=60)
@given(cases(), WEIGHTS)
def test_laws_of_every_run(case, weights):
    run = observed(case, weights)
    document = measure(run)

    def known(name):
        return document[name]["value"]

    if run.done.any():
        own, others = known("hit_intra_session_ratio"), known("hit_inter_session_ratio")
        assert own + others == pytest.approx(known("hit_ratio"))
    engines = value("engines_per_session", run)[np.unique(run.session[run.done])]
    assert (engines >= 1).all()
    assert known("migrations") >= (engines - 1).sum()
    if run.n_engines == 1:
        assert known("migrations") == 0
        assert known("replication") in (None, 1.0)
    elif known("replication") is not None:
        assert 1 <= known("replication") <= run.n_engines
    calm = run.done & (run.preemptions == 0)
    assert not value("recomputed_tokens", run)[calm].any()
    times, n = sessions_in_flight(run)
    if times.size > 1:
        area = float((np.diff(times) * n[:-1]).sum())
        assert area == pytest.approx(np.nansum(value("session_s", run)))
        assert known("sessions_in_flight_mean") == pytest.approx(area / (times[-1] - times[0]))
        assert n[-1] == 0
    last = value("ttfet_s", run)
    assert (np.isnan(last) | (last <= value("session_s", run))).all()
    gaps = value("itl_max_s", run) - value("tpot_s", run)
    assert (np.isnan(gaps) | (gaps >= -1e-9)).all()


def two_turns(engine_of):
    """Blocks of 4. A session's second prompt repeats the first (4 blocks) and adds one; another session
    begins with the same two blocks."""
    requests = [
        Request(16, 1),
        Request(20, 1, session=0, parent=0, release=AFTER_END, gap=10.0, deps=(0,)),
        Request(12, 1, arrival=100.0, session=1),
    ]
    tokens = [range(16), [*range(16), 21, 22, 23, 24], [*range(8), 31, 32, 33, 34]]
    give_chains(requests, [tuple(prompt) for prompt in tokens], 4, hashes_tails=True)
    limits = Limits(kv_blocks=100, block_tokens=4, batch_time=BatchCoefficients(b0=1.0))
    policy = policy_of(lambda view, r: engine_of[r])
    case = make_case(requests, [], 4, [limits] * 2)
    return simulate(case.workload, case.cluster, policy, observed=True).run()


def test_content_that_two_engines_computed_is_counted_twice():
    """Six different blocks in all: 4, the second turn's one, and the other session's last."""
    together = two_turns([0, 0, 0])
    assert together.copies == 1.0
    assert together.session_tokens.tolist() == [0, 16, 0]
    assert value("hit_intra_session_ratio", together) == 16 / 48
    assert value("hit_inter_session_ratio", together) == 8 / 48
    assert value("session_miss_ratio", together) == 0.0
    apart = two_turns([0, 1, 0])  # the second turn finds nothing on engine 1: 4 blocks are there twice
    assert apart.copies == 10 / 6
    assert value("hit_intra_session_ratio", apart) == 0.0
    assert value("session_miss_ratio", apart) == 16 / 48
    assert value("migrations", apart) == 1
