"""SLO expressions: what they mean on a run checked by hand, and what they answer to a mistake."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl.errors import UsageError
from agentctl.metrics import Run, summary
from agentctl.slo import DEFAULT_SLOS, parse_slo, parse_slos, requests_within_all, score_all


def run_of(ttft, done=None, output=None, prompt=None, cached=None, tpot=0.01):
    """One session per request, all arriving at 0 on one engine."""
    ttft = np.array(ttft, dtype=float)
    n = ttft.size
    done = np.ones(n, dtype=bool) if done is None else np.array(done)
    output = np.full(n, 11) if output is None else np.array(output)
    zeros = np.zeros(n, dtype=np.int64)
    return Run(
        n_engines=1,
        n_sessions=n,
        done=done,
        session=np.arange(n, dtype=np.int32),
        engine=zeros,
        arrival_s=np.zeros(n),
        first_token_s=np.where(done, ttft, np.nan),
        finish_s=np.where(done, ttft + tpot * (output - 1), np.nan),
        prompt_tokens=np.full(n, 1000) if prompt is None else np.array(prompt),
        output_tokens=output,
        cached_tokens=zeros if cached is None else np.array(cached),
        computed_prefill_tokens=zeros,
        scheduled_s=np.zeros(n),
        itl_max_s=np.full(n, tpot),
        preemptions=zeros,
    )


@given(st.lists(st.integers(1, 20), min_size=1, max_size=60), st.integers(1, 21))
def test_a_percentile_and_the_share_within_are_the_same_objective(times, limit):
    run = run_of(times)
    p95 = summary(np.array(times, dtype=float)).p95
    assert parse_slo(f"ttft p95 < {limit}s").holds(run) == (p95 < limit)
    assert parse_slo(f"ttft < {limit}s @ 95%").holds(run) == (p95 < limit)
    assert parse_slo(f"ttft p95 <= {limit}s").holds(run) == (p95 <= limit)


def test_a_limit_may_grow_with_the_tokens_of_the_request():
    slo = parse_slo("ttft < 1s + 10ms*prompt_tokens + 1ms * uncached_tokens + 100us*output_tokens")
    limit = slo.limit_s(np.array([100, 0]), np.array([50, 0]), np.array([1000, 0]))
    np.testing.assert_allclose(limit, [1 + 1 + 0.05 + 0.1, 1.0])
    run = run_of([2.1, 1.05], prompt=[100, 0], cached=[50, 0], output=[1000, 10])
    np.testing.assert_array_equal(slo.within(run), [True, False])


def test_without_a_share_every_request_must_hold():
    assert parse_slo("ttft < 2s").holds(run_of([1.0] * 1000)) is True
    assert parse_slo("ttft < 2s").holds(run_of([1.0] * 999 + [2.0])) is False


def test_a_rejected_request_misses():
    run = run_of([0.1, 0.1], done=[True, False])
    assert parse_slo("ttft < 1s @ 50%").holds(run) is True
    assert parse_slo("ttft < 1s @ 51%").holds(run) is False
    assert parse_slo("e2e mean < 9s").holds(run) is False
    np.testing.assert_array_equal(requests_within_all(parse_slos(["ttft < 1s"]), run), [True, False])


def test_a_one_token_output_leaves_tpot_objectives():
    slo = parse_slo("tpot < 5ms @ 50%")
    run = run_of([0.1] * 3, output=[1, 1, 11])
    assert slo.attained(run) == 0.0
    assert slo.holds(run_of([0.1], output=[1])) is None
    np.testing.assert_array_equal(slo.requests_within(run), [True, True, False])


def test_a_mean_is_compared_with_the_mean_limit():
    run = run_of([1.0, 3.0])
    assert parse_slo("ttft mean <= 2s").holds(run) is True
    assert parse_slo("ttft mean < 2s").holds(run) is False
    assert parse_slo("ttft mean < 2.5s").score(run) == pytest.approx(0.2)


def test_a_session_objective_counts_sessions():
    assert parse_slo("session < 1.5s @ 50%").attained(run_of([1.0, 2.0], tpot=0.0)) == 0.5


def test_all_objectives_must_hold_and_the_worst_decides():
    run = run_of([1.0] * 9 + [3.0], tpot=0.05)
    scores = [slo.score(run) for slo in parse_slos(["ttft < 2s @ 90%", "tpot < 20ms @ 95%"])]
    assert scores == [0.0, -1.0]
    assert score_all(parse_slos(["ttft < 2s @ 90%", "tpot < 20ms @ 95%"]), run) == -1.0


def test_the_default_is_a_line_over_the_prompt_and_a_tpot():
    ttft, tpot = parse_slos([])
    assert ttft.limit_s(*[np.array([20_000])] * 3)[0] == pytest.approx(2.25)
    assert (ttft.percent, tpot.percent) == (95.0, 95.0)
    assert (ttft.text, tpot.text) == DEFAULT_SLOS


@pytest.mark.parametrize(
    "text", ["TTFT P99.9 <= 500 ms", "e2e<1e-1s@99.5%", "ttft < .5s", "ttft<62.5µs*prompt_tokens"]
)
def test_spaces_case_and_number_forms_are_free(text):
    parse_slo(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "METRIC [pNN|mean] < EXPR"),
        ("ttft > 2s", "METRIC [pNN|mean] < EXPR"),
        ("tft < 2s", "did you mean `ttft`?"),
        ("ttft < 2", "2 has no unit"),
        ("ttft < 2m", "unknown unit m"),
        ("ttft < 0s", "the limit is 0"),
        ("ttft < 1e999s", "not finite"),
        ("ttft < 2s + ", "cannot read ''"),
        ("ttft < 2s - 1s", "cannot read '2s - 1s'"),
        ("ttft < 1ms*prompt", "did you mean `prompt_tokens`?"),
        ("ttft median < 2s", "pNN or mean"),
        ("ttft p0 < 2s", "above 0, at most 100"),
        ("ttft p95 < 2s @ 95%", "twice"),
        ("ttft < 2s @ 0.95", "no percent sign"),
        ("ttft < 2s @ 101%", "at most 100"),
        ("ttft < 2s @ 9.9.9%", "no share"),
        ("session < 1s*prompt_tokens", "seconds only"),
    ],
)
def test_a_mistake_is_quoted_with_what_would_be_right(text, words):
    with pytest.raises(UsageError) as caught:
        parse_slo(text)
    assert words in f"{caught.value.message} {caught.value.hint}"
    assert repr(text) in caught.value.message


def test_a_limit_may_be_written_with_an_exponent_and_either_micro_sign():
    assert [t.seconds for t in parse_slo("ttft < 1e+1s + 2e-1s+3 s").terms] == [10, 0.2, 3]
    assert parse_slo("ttft < 5µs").terms == parse_slo("ttft < 5μs").terms == parse_slo("ttft < 5us").terms
