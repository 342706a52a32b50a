"""Samples of every engine's state over time: hand-checkable, and without influence on what is simulated."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.comparison import QUIET, WEIGHTS, policy_of, weighted
from oracles.random_clusters import cases, make_case
from oracles.reference_simulator import BatchCoefficients, Limits, Request

from agentctl.sim.driver import simulate
from agentctl.sim.samples import FIRST_SAMPLES
from agentctl.sim.state import MAX_SAMPLES

SECONDS = BatchCoefficients(b0=1.0)


def observe(case, weights=None, observed=True):
    policy = policy_of(weighted(weights or {}))
    return simulate(case.workload, case.cluster, policy, concurrency=case.concurrency, observed=observed)


def one_engine(requests):
    return make_case(requests, [], None, [Limits(kv_blocks=1000, block_tokens=4, batch_time=SECONDS)])


@settings(QUIET, max_examples=60)
@given(cases(), WEIGHTS)
def test_observing_changes_nothing(case, weights):
    with_samples, without = observe(case, weights), observe(case, weights, observed=False)
    assert with_samples.table().equals(without.table())
    np.testing.assert_array_equal(with_samples.itl_max_s, without.itl_max_s)
    assert without.samples is None


@settings(QUIET, max_examples=60)
@given(cases(), WEIGHTS)
def test_samples_lie_evenly_and_within_what_is_possible(case, weights):
    outcome = observe(case, weights)
    samples = outcome.samples
    assert samples.time_s.size <= MAX_SAMPLES
    if samples.time_s.size > 2:
        np.testing.assert_allclose(np.diff(samples.time_s), samples.width_s)
    assert (samples.kv_used_blocks <= samples.kv_total_blocks).all()
    assert (np.diff(samples.emitted_tokens, axis=0) >= 0).all()
    run = outcome.run()
    in_system = (run.arrival_s < samples.time_s[:, None]) & (samples.time_s[:, None] < run.finish_s)
    present = samples.waiting_requests + samples.running_requests
    np.testing.assert_array_equal(present.sum(axis=1), (in_system & run.done).sum(axis=1))
    assert samples.emitted_tokens.sum(axis=1).max(initial=0) <= run.output_tokens[run.done].sum()


def test_a_sample_shows_what_ended_at_its_instant_and_not_what_arrives():
    """Request 0 runs from 0 to 256 s, a token a second. Request 1 arrives at 256, the 256th sample of 1 s."""
    samples = observe(one_engine([Request(4, 256), Request(4, 1, arrival=256.0, session=1)])).samples
    assert samples.width_s == 1.0
    assert samples.time_s.size == FIRST_SAMPLES + 2  # 0 to 257
    assert samples.emitted_tokens[:, 0].tolist() == [*range(257), 257]
    assert samples.running_requests[:, 0].tolist() == [0] + [1] * 255 + [0, 0]
    # prompt and all tokens so far are context
    assert samples.context_tokens[1:256, 0].tolist() == [4 + n for n in range(1, 256)]
    assert samples.pending_prefill_tokens[:, 0].tolist() == [0] * 258


@settings(QUIET, max_examples=20)
@given(st.integers(1, 3000))
def test_a_longer_run_is_sampled_less_often(output):
    """One request: its arrivals span nothing, and samples start 1/1024 s apart."""
    samples = observe(one_engine([Request(4, output)])).samples
    assert MAX_SAMPLES // 2 <= samples.time_s.size <= MAX_SAMPLES
    assert samples.width_s == 2 ** round(np.log2(samples.width_s))
    assert output - samples.width_s <= samples.time_s[-1] <= output
    np.testing.assert_array_equal(samples.emitted_tokens[:, 0], np.floor(samples.time_s))
