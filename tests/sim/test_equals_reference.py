"""The simulator agrees with the judge on every request, and shows a policy the same view."""

import math
from types import SimpleNamespace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles import reference_simulator as oracle
from oracles.random_clusters import Case, cases, give_chains, make_case
from oracles.reference_simulator import AFTER_START, BatchCoefficients, Limits, Request

from agentctl.sim.driver import simulate

SIGNALS = (
    "waiting_requests", "running_requests", "pending_prefill_tokens", "pending_prefill_pairs",
    "context_tokens", "kv_used_blocks", "hit_tokens", "inflight_requests", "inflight_prefill_tokens",
)  # fmt: skip

QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck))


def weighted(weights):
    """A policy that looks at everything: the least weighted sum of signals, ties after the last choice."""

    def choose(view, r):
        n = len(view.waiting_requests)
        order = [(view.last_chosen + 1 + i) % n for i in range(n)]
        return min(order, key=lambda e: sum(w * float(getattr(view, s)[e]) for s, w in weights.items()))

    return choose


def policy_of(choose):
    return SimpleNamespace(name="test", my=None, choose=lambda view, requests, r, my: choose(view, r))


def recorded(choose, seen):
    def record(view, r):
        plain = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in (view._asdict() if hasattr(view, "_asdict") else vars(view)).items()
            if name in (*SIGNALS, "now", "last_chosen", "expected_hit", "kv_total_blocks", "seed")
        }
        seen.append((r, plain))
        return choose(view, r)

    return record


def run_both(case: Case, choose):
    told, shown = [], []
    judged = oracle.Cluster(
        case.requests, case.limits, recorded(choose, told), case.trace_block, 0, case.concurrency
    ).run()
    outcome = simulate(
        case.workload, case.cluster, policy_of(recorded(choose, shown)), concurrency=case.concurrency
    )
    return judged, outcome, told, shown


def check_equal(judged, outcome, relative):
    def same(a, b):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=relative, abs_tol=0)

    for r, result in enumerate(judged):
        assert outcome.done[r] == (result.status == "done"), r
        assert outcome.engine[r] == result.engine, r
        assert outcome.hit_tokens[r] == result.hit, r
        assert outcome.preemptions[r] == result.preemptions, r
        assert outcome.computed_prefill_tokens[r] == result.prefilled, r
        assert same(outcome.arrival_s[r], result.arrival), r
        assert same(outcome.scheduled_s[r], result.scheduled), r
        assert same(outcome.first_token_s[r], result.first_token), r
        assert same(outcome.finish_s[r], result.finish), r


WEIGHTS = st.dictionaries(st.sampled_from(SIGNALS), st.integers(-3, 3), max_size=4)


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
