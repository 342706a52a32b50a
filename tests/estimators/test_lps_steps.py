"""Means of continuous batching against continuous batching played step by step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.continuous_batching import Steps, continuous_batching

from agentctl.estimators.batch_time import BatchTime
from agentctl.estimators.lps import estimate
from agentctl.estimators.lps_batch import MeanRequest, from_batch_time, request_seconds
from agentctl.estimators.lps_steps import step_means


def engine(prefill_s: float) -> BatchTime:
    """7 ms a step, 0.15 ms a decode, `prefill_s` for a prompt of 1,000 tokens."""
    return BatchTime("hinge", b0=7e-3, b_prefill=prefill_s / 1000, b_decode=1.5e-4)


def play(
    c: BatchTime,
    request: MeanRequest,
    rate: float,
    n: int,
    limit: int | None = None,
    prefill_scv: float = 0.0,
) -> tuple[float, float]:
    """Mean TTFT and response of n Poisson arrivals with geometric outputs and gamma prefills."""
    random = np.random.default_rng(11)
    arrivals = np.cumsum(random.exponential(1 / rate, n))
    outputs = random.geometric(1 / request.output, n)
    share = random.gamma(1 / scv, scv, n) if (scv := request.prompt_scv) else np.ones(n)
    steps = Steps(c.b0, c.b_decode, (c.b_prefill * request.prompt * share).tolist())
    _, first, finish = continuous_batching(arrivals.tolist(), outputs.tolist(), steps, limit)
    return tuple(float((end - arrivals)[n // 10 :].mean()) for end in (first, finish))


def test_an_idle_engine_takes_its_steps():
    c, request = engine(0.03), MeanRequest(1000, 50)
    found = step_means(c, request, 1e-9)
    assert found.ttft == pytest.approx(7e-3 + 0.03, rel=1e-6)
    assert found.response == pytest.approx(0.03 + 50 * 7e-3 + 49 * 1.5e-4, rel=1e-6)
    assert step_means(c, request, 1e-9, step_tokens=300).ttft == pytest.approx(4 * 7e-3 + 0.03, rel=1e-6)


@given(st.floats(0.01, 0.95), st.floats(2, 500))
def test_without_prefill_the_time_in_service_is_that_of_processor_sharing(load, output):
    """A prompt of no cost takes its step all the same, without a decode of one's own."""
    c, request = engine(0.0), MeanRequest(1000, output)
    rate = load / request_seconds(c, request)
    found = step_means(c, request, rate)
    in_service = found.residents / rate
    assert in_service == pytest.approx(estimate(from_batch_time(c, request), rate).response, rel=1e-3)
    decodes = found.residents * (output - 1) / output
    if load > 0.5 and found.residents > 20:  # never idle: half of the step in progress, then one's own
        assert found.ttft == pytest.approx(1.5 * (7e-3 + 1.5e-4 * decodes), rel=1e-3)


@pytest.mark.parametrize("prompt_scv", [0, 0.5])
@pytest.mark.parametrize(
    ("prefill_s", "output", "load"), [(0.03, 100, 0.5), (0.03, 100, 0.7), (0.03, 20, 0.5), (0.03, 20, 0.8)]
)
def test_played_step_by_step_means_are_the_same(prefill_s, output, load, prompt_scv):
    """Prefill is twice to ten times a request's decodes; processor sharing alone is up to 15 % too low."""
    c, request = engine(prefill_s), MeanRequest(1000, output, prompt_scv=prompt_scv)
    rate = load / request_seconds(c, request)
    ttft, response = play(c, request, rate, 15_000)
    found = step_means(c, request, rate)
    assert found.ttft == pytest.approx(ttft, rel=0.05)
    assert found.response == pytest.approx(response, rel=0.06)
    assert found.caveats == ()


def test_waiting_for_a_place_counts_and_is_said_to_be_rough():
    """Eight places at 90 % load: most of the time to the first token is the wait for one."""
    c, request = engine(0.01), MeanRequest(1000, 100)
    model = from_batch_time(c, request, limit=8)
    rate = 0.9 * model.saturation_rate
    ttft, response = play(c, request, rate, 40_000, limit=8)
    found = step_means(c, request, rate, limit=8)
    assert found.ttft == pytest.approx(ttft, rel=0.15)
    assert found.response == pytest.approx(response, rel=0.1)
    assert estimate(model, rate).wait > 0.7 * found.ttft
    assert "wait for a place" in found.caveats[0]


def test_prompts_that_are_cut_are_said_to_compete():
    found = step_means(engine(0.03), MeanRequest(1000, 100), 1.0, step_tokens=300)
    assert "prompts are cut" in found.caveats[0]


def test_the_host_bounds_a_step():
    """50 ms of host work a step: twice as long as any batch here."""
    c = engine(0.0)._replace(h0=0.05)
    assert step_means(c, MeanRequest(1000, 50), 1e-9).response == pytest.approx(50 * 0.05, rel=1e-6)


@given(st.floats(0.05, 0.9), st.floats(1.01, 1.1))
def test_more_load_takes_longer(load, more):
    c, request = engine(0.02), MeanRequest(1000, 60)
    rate = load / request_seconds(c, request)
    low, high = step_means(c, request, rate), step_means(c, request, more * rate)
    assert high.ttft > low.ttft
    assert high.response > low.response
    assert high.residents > low.residents


@given(
    st.floats(0.5, 0.999),
    st.floats(0, 0.2),
    st.floats(1, 300),
    st.none() | st.integers(1, 300),
    st.integers(50, 2000),
)
@settings(max_examples=50)
def test_near_saturation_there_is_an_answer_or_a_reason(load, prefill_s, output, limit, step_tokens):
    c, request = engine(prefill_s), MeanRequest(1000, output)
    model = from_batch_time(c, request, limit, step_tokens)
    found = step_means(c, request, load * model.saturation_rate, limit, step_tokens)
    assert found.stable
    assert found.caveats if found.response is None else found.response >= found.ttft > 0


def test_an_overloaded_engine_has_no_means():
    c, request = engine(0.03), MeanRequest(1000, 100)
    found = step_means(c, request, 1.01 / request_seconds(c, request))
    assert (found.stable, found.ttft, found.response) == (False, None, None)
