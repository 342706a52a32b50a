"""Time to the first token against continuous batching played step by step."""

import numpy as np
import pytest
from oracles.continuous_batching import Steps, continuous_batching

from agentctl.estimators.batch_time import BatchTime
from agentctl.estimators.lps import estimate
from agentctl.estimators.lps_batch import MeanRequest, from_batch_time, request_seconds
from agentctl.estimators.lps_ttft import mean_ttft


def engine(prefill_s: float) -> BatchTime:
    """7 ms a step, 0.15 ms a decode, `prefill_s` for a prompt of 1,000 tokens."""
    return BatchTime("hinge", b0=7e-3, b_prefill=prefill_s / 1000, b_decode=1.5e-4)


def test_an_idle_engine_takes_one_step_with_the_prompt():
    c, request = engine(0.03), MeanRequest(1000, 50)
    assert mean_ttft(c, request, 1e-9) == pytest.approx(7e-3 + 0.03, rel=1e-6)
    assert mean_ttft(c, request, 1e-9, step_tokens=300) == pytest.approx(4 * 7e-3 + 0.03, rel=1e-6)


def test_without_prefill_a_busy_engine_takes_a_step_and_a_half():
    """About 87 residents at 80 % load: the rest of the step in progress and the next one."""
    c, request = engine(0.0), MeanRequest(1000, 100)
    rate = 0.8 / request_seconds(c, request)
    residents = estimate(from_batch_time(c, request), rate).in_system
    assert mean_ttft(c, request, rate) == pytest.approx(1.5 * (7e-3 + 1.5e-4 * residents), rel=1e-6)


@pytest.mark.parametrize("prefill_scv", [0, 0.5])
@pytest.mark.parametrize(
    ("prefill_s", "output", "load"),
    [(0.03, 100, 0.5), (0.03, 100, 0.7), (0.03, 20, 0.5), (0.03, 20, 0.8), (0.002, 100, 0.7)],
)
def test_played_step_by_step_it_is_the_same(prefill_s, output, load, prefill_scv):
    """The second parts are 1 to 10 times the decodes of a request."""
    c, request = engine(prefill_s), MeanRequest(1000, output)
    rate = load / request_seconds(c, request)
    random = np.random.default_rng(11)
    arrivals = np.cumsum(random.exponential(1 / rate, 15_000))
    outputs = random.geometric(1 / output, arrivals.size)
    share = (
        random.gamma(1 / prefill_scv, prefill_scv, arrivals.size) if prefill_scv else np.ones(arrivals.size)
    )
    steps = Steps(c.b0, c.b_decode, (prefill_s * share).tolist())
    _, first, _ = continuous_batching(arrivals.tolist(), outputs.tolist(), steps)
    played = (first - arrivals)[1500:].mean()
    assert mean_ttft(c, request, rate, prefill_scv=prefill_scv) == pytest.approx(played, rel=0.05)


def test_waiting_for_a_place_counts():
    """Eight places at 90 % load: most of the time to the first token is the wait for one."""
    c, request = engine(0.01), MeanRequest(1000, 100)
    model = from_batch_time(c, request, limit=8)
    rate = 0.9 * model.saturation_rate
    random = np.random.default_rng(3)
    arrivals = np.cumsum(random.exponential(1 / rate, 40_000))
    outputs = random.geometric(1 / 100, arrivals.size)
    steps = Steps(c.b0, c.b_decode, [0.01] * arrivals.size)
    _, first, _ = continuous_batching(arrivals.tolist(), outputs.tolist(), steps, limit=8)
    found = mean_ttft(c, request, rate, limit=8)
    assert found == pytest.approx((first - arrivals)[4000:].mean(), rel=0.15)
    assert estimate(model, rate).wait > 0.7 * found


def test_an_overloaded_engine_has_no_first_token_time():
    c, request = engine(0.03), MeanRequest(1000, 100)
    assert mean_ttft(c, request, 1.01 / request_seconds(c, request)) is None
