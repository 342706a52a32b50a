"""The simulator agrees with the judge on every request, and shows a policy the same view."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.comparison import QUIET, WEIGHTS, check_equal, policy_of, run_both, weighted
from oracles.random_clusters import cases, give_chains, make_case
from oracles.reference_simulator import AFTER_START, BatchCoefficients, Limits, Request

from agentctl.sim.driver import simulate


@settings(QUIET, max_examples=300)
@given(cases(), WEIGHTS)
def test_simulator_equals_the_judge_to_the_bit_where_arithmetic_is_exact(case, weights):
    judged, outcome, told, shown = run_both(case, weighted(weights))
    assert shown == told
    check_equal(judged, outcome, relative=0.0)


@settings(QUIET, max_examples=100)
@given(cases(exact_times=False), WEIGHTS)
def test_simulator_equals_the_judge_for_arbitrary_times(case, weights):
    judged, outcome, _, _ = run_both(case, weighted(weights))
    check_equal(judged, outcome, relative=1e-9)


@settings(QUIET, max_examples=100)
@given(cases())
def test_signals_that_a_policy_does_not_name_are_left_out_and_change_nothing(case):
    def choose(view, r):
        return int(np.argmin(view.inflight_prefill_tokens + view.pending_prefill_tokens))

    everything, few = policy_of(choose), policy_of(choose)
    few.sees = ("inflight_prefill_tokens", "pending_prefill_tokens")
    runs = [simulate(case.workload, case.cluster, p, case.seed, case.concurrency) for p in (everything, few)]
    for name in ("engine", "first_token_s", "finish_s", "hit_tokens"):
        np.testing.assert_array_equal(*(getattr(run, name) for run in runs))


@settings(QUIET, max_examples=200)
@given(st.one_of(cases(), cases(sglang=True)))
def test_hits_are_the_same_for_a_policy_that_sees_nothing_else(case):
    """Then runs are brought up to date only when the index would hear of something."""
    shown = []

    def choose(view, r):
        shown.append((r, view.hit_tokens.tolist()))
        best = np.flatnonzero(view.hit_tokens == view.hit_tokens.max())
        return int(best[r % best.size])

    everything, few = policy_of(choose), policy_of(choose)
    few.sees = ("hit_tokens",)
    runs = [simulate(case.workload, case.cluster, p, case.seed, case.concurrency) for p in (everything, few)]
    assert shown[: len(shown) // 2] == shown[len(shown) // 2 :]
    for name in ("engine", "first_token_s", "finish_s", "hit_tokens", "preemptions"):
        np.testing.assert_array_equal(*(getattr(run, name) for run in runs))


def run_alike(requests, trace_block, **limits):
    """Both simulators on one engine whose batches take 1 s; they must agree."""
    case = make_case(requests, [], trace_block, [Limits(batch_time=BatchCoefficients(b0=1.0), **limits)])
    judged, outcome, told, shown = run_both(case, weighted({}))
    assert shown == told
    check_equal(judged, outcome, relative=0.0)
    return outcome


def test_a_preempted_request_comes_back_to_an_empty_engine_whatever_the_watermark():
    """20 blocks, 5 of them watermark: B is preempted with 16 tokens, and 16 + 5 never fit."""
    requests = [Request(1, 12), Request(12, 8)]
    outcome = run_alike(requests, None, kv_blocks=21, block_tokens=1, watermark=0.25)
    assert outcome.preemptions.tolist() == [0, 1]
    assert outcome.scheduled_s.tolist() == [0.0, 0.0]
    assert outcome.done.all()


def test_a_blocked_request_is_tried_again_when_a_running_one_fills_a_block():
    """4 blocks of 4 tokens. The child needs all 4 and shares what its parent has filled: it fits at the step
    that fills the parent's second block (the one on a context of 7 tokens), long before the parent ends."""
    requests = [Request(4, 8), Request(13, 1, arrival=1.5, parent=0, session=1)]
    give_chains(requests, [tuple(range(4)), tuple(range(13))], 4, hashes_tails=True)
    outcome = run_alike(requests, 4, kv_blocks=5, block_tokens=4)
    assert outcome.scheduled_s.tolist() == [0.0, 4.0]
    assert outcome.hit_tokens.tolist() == [0, 8]


def test_a_request_that_counts_from_starts_waits_for_all_of_them():
    """The first has ended long before the second starts."""
    last = Request(4, 1, release=AFTER_START, gap=1.0, deps=(0, 1))
    outcome = run_alike(
        [Request(4, 1), Request(4, 3, arrival=5.0), last], None, kv_blocks=100, block_tokens=4
    )
    assert outcome.arrival_s.tolist() == [0.0, 5.0, 6.0]


def test_a_step_that_begins_after_a_look_at_its_beginning_is_seen_by_the_next_look():
    """Requests 1 and 2 go to engine 1. At 4 s a step of request 0 has ended and none begun; half a
    second later the next one has taken its block."""
    requests = [Request(1, 9), Request(1, 1, arrival=4.0, session=1), Request(1, 1, arrival=4.5, session=2)]
    limits = Limits(kv_blocks=50, block_tokens=1, batch_time=BatchCoefficients(b0=1.0))
    judged, outcome, told, shown = run_both(
        make_case(requests, [], None, [limits] * 2), lambda view, r: min(r, 1)
    )
    assert shown == told
    assert [view["kv_used_blocks"][0] for _, view in shown] == [0, 4, 5]
    check_equal(judged, outcome, relative=0.0)


def test_a_victim_that_was_in_the_batch_already_gives_its_tokens_back():
    """40 blocks of 1 token, 3 tokens a batch. In batch 15 A takes the last block, then B needs one and
    preempts A: C, which has 12 of its 22 tokens, computes 2 in this batch and in each of the next four."""
    requests = [
        Request(1, 20, priority=2),
        Request(1, 18, arrival=0.5, session=1, priority=0),
        Request(22, 1, arrival=1.5, session=2, priority=1),
    ]
    outcome = run_alike(
        requests, None, kv_blocks=41, block_tokens=1, max_num_batched_tokens=3, scheduling_policy="priority",
        reserve_full_prompt=False,
    )  # fmt: skip
    assert outcome.preemptions.tolist() == [1, 0, 0]
    assert outcome.first_token_s.tolist() == [1.0, 2.0, 19.0]


def test_a_run_is_cut_at_the_step_that_ends_when_a_request_arrives():
    requests = [Request(4, 8), Request(4, 1, arrival=3.0, session=1), Request(4, 1, arrival=4.5, session=2)]
    outcome = run_alike(requests, None, kv_blocks=100, block_tokens=4)
    assert outcome.scheduled_s.tolist() == [0.0, 3.0, 5.0]
