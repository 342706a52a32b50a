"""Rates, overlap, burstiness, skew and hot prefixes, on arrivals that can be counted by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.datasets import write_dataset

from agentctl.analyzers.base import AnalyzeOptions
from agentctl.analyzers.hot_prefixes import hot_prefixes
from agentctl.analyzers.load import analyze, describe, dispersion, in_flight

OPTIONS = AnalyzeOptions(engines=(1, 2, 4))


def test_rates_are_counts_over_the_span_between_first_and_last_arrival(tmp_path):
    rows = [
        {"arrival_s": t, "session_id": s, "prompt_tokens": 100, "output_tokens": 10}
        for t, s in ((0, "a"), (10, "b"), (20, "a"), (120, "b"))
    ]
    result = analyze(write_dataset(tmp_path / "t.trace", rows), OPTIONS)
    assert result.span_s == 120
    assert result.requests_per_min == 2
    assert result.peak_requests_per_min == 3
    assert result.sessions_per_min == 6  # the second session starts 10 s after the first
    assert result.prompt_tokens_per_s == pytest.approx(400 / 120)
    assert result.output_tokens_per_s == pytest.approx(40 / 120)
    assert [h.requests_per_min_per_engine for h in result.headroom] == [2, 1, 0.5]


def test_one_instant_has_no_rate_and_says_why(tmp_path):
    result = analyze(write_dataset(tmp_path / "t.trace", [{"arrival_s": 1}, {"arrival_s": 1}]), OPTIONS)
    assert result.requests_per_min is None
    assert result.rates_reason == "all requests arrive at one instant"
    assert result.rates_reason in describe(result).sentence


def test_unknown_lengths_leave_the_token_rates_unknown(tmp_path):
    rows = [{"arrival_s": 0, "prompt_tokens": 5}, {"arrival_s": 9, "prompt_tokens": None}]
    result = analyze(write_dataset(tmp_path / "t.trace", rows), OPTIONS)
    assert (result.prompt_tokens_per_s, result.output_tokens_per_s) == (None, None)


def test_overlap_is_weighted_by_time():
    # 0..10, 2..4 and 4..6: one running for 6 s, two for 4 s; an end and a start at one instant do not overlap
    result = in_flight(np.array([0.0, 2.0, 4.0]), np.array([10.0, 4.0, 6.0]))
    assert (result.mean, result.p50, result.p99, result.max) == (1.4, 1, 2, 2)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=30))
def test_mean_overlap_obeys_littles_law(intervals):
    start = np.array([float(s) for s, _ in intervals])
    end = np.array([float(s + d) for s, d in intervals])
    result = in_flight(start, end)
    if end.max() == start.min():
        assert result is None
    else:
        assert result.mean == pytest.approx((end - start).sum() / (end.max() - start.min()))


def test_concurrency_needs_the_ends_of_requests(tmp_path):
    rows = [{"arrival_s": t, "e2e_s": 2.0 if t else None} for t in range(5)]
    result = analyze(write_dataset(tmp_path / "t.trace", rows), OPTIONS)
    assert result.requests_in_flight is None
    assert result.concurrency_reason == "the end is known for 80% of the requests"
    assert "--map e2e_s" in describe(result).warnings[0]


def test_sessions_in_flight_span_their_gaps(tmp_path):
    rows = [
        {"arrival_s": 0, "session_id": "a", "e2e_s": 1.0},
        {"arrival_s": 9, "session_id": "a", "e2e_s": 1.0},
        {"arrival_s": 4, "session_id": "b", "e2e_s": 1.0},
    ]
    result = analyze(write_dataset(tmp_path / "t.trace", rows), OPTIONS)
    assert result.requests_in_flight.mean == pytest.approx(0.3)
    assert result.sessions_in_flight.mean == pytest.approx(1.1)


def test_even_arrivals_have_no_dispersion_poisson_has_one_and_batches_their_size():
    rng = np.random.default_rng(0)
    poisson = np.sort(rng.uniform(0, 10_000, 20_000))
    assert dispersion(np.arange(0, 1000, 0.5), 10) == 0
    assert dispersion(poisson, 10) == pytest.approx(1, abs=0.1)
    assert dispersion(np.repeat(poisson, 5), 10) == pytest.approx(5 * dispersion(poisson, 10))


def test_too_few_windows_have_no_dispersion():
    assert dispersion(np.arange(50.0), 10) is None


def test_windows_finer_than_the_clock_are_not_reported(tmp_path):
    rows = [{"arrival_s": 3.0 * (t // 2)} for t in range(200)]
    result = analyze(write_dataset(tmp_path / "t.trace", rows), OPTIONS)
    known = {b.window_s: b.requests_dispersion is not None for b in result.burstiness}
    assert known == {1.0: False, 10.0: True, 60.0: False, 600.0: False}


def test_top_sessions_are_those_with_most_tokens(tmp_path):
    rows = [
        {"arrival_s": t, "session_id": f"s{t}", "prompt_tokens": p, "output_tokens": 10}
        for t, p in enumerate((90, 790, 40, 40))
    ]
    result = analyze(write_dataset(tmp_path / "t.trace", rows), OPTIONS)
    assert result.top_sessions[-1].sessions == 1
    assert result.top_sessions[-1].token_ratio == 0.8


def prefix_trace(tmp_path, chains):
    rows = [{"arrival_s": t, "session_id": f"s{t % 2}", "blocks": chain} for t, chain in enumerate(chains)]
    return write_dataset(tmp_path / "t.trace", rows, block_tokens=16)


def test_prefix_with_half_the_requests_is_safe_on_two_engines_only(tmp_path):
    chains = [[1, 2, 3], [1, 2, 4], [1, 2], [5], [6], []]
    result = analyze(prefix_trace(tmp_path, chains), OPTIONS)
    (prefix,) = result.prefixes
    assert (prefix.requests, prefix.sessions, prefix.request_ratio, prefix.odds) == (3, 2, 0.5, 1.0)
    assert prefix.common_tokens == 32  # blocks 1 and 2
    assert prefix.safe_engines == 2
    assert [h.hot_prefixes for h in result.headroom] == [0, 0, 1]
    assert "on 4 engines, 1 prefix would bring an engine that alone held it more" in describe(result).sentence


def test_what_every_request_has_in_common_favours_no_engine(tmp_path):
    result = analyze(prefix_trace(tmp_path, [[1, 2], [1, 3, 5], [1, 3, 6], [1, 4]]), OPTIONS)
    assert result.common_prefix_tokens == 16
    (prefix,) = result.prefixes  # block 3
    assert (prefix.requests, prefix.odds, prefix.common_tokens, prefix.safe_engines) == (2, 1.0, 32, 2)


def test_one_prompt_for_all_has_no_prefix_below_it(tmp_path):
    result = analyze(prefix_trace(tmp_path, [[1, 2], [1, 2]]), OPTIONS)
    assert (result.common_prefix_tokens, result.prefixes) == (32, ())


def test_without_blocks_the_prefix_test_is_absent_with_a_reason(tmp_path):
    result = analyze(write_dataset(tmp_path / "t.trace", [{"arrival_s": 0}, {"arrival_s": 9}]), OPTIONS)
    assert result.prefixes_reason == "the trace has no block chains"
    assert {h.hot_prefixes for h in result.headroom} == {None}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 1), max_size=4), min_size=1, max_size=15), st.integers(1, 6))
def test_hot_prefixes_are_those_whose_odds_exceed_one_engine_against_the_rest(
    tmp_path_factory, chains, engines
):
    trace = prefix_trace(tmp_path_factory.mktemp("law"), chains)
    rows = trace.requests(["tip_node"])
    found = hot_prefixes(
        trace.tree, rows["tip_node"].to_numpy(), np.zeros(len(chains), np.int64), 16, (engines,)
    )
    common = 0
    while all(len(chain) > common and chain[: common + 1] == chains[0][: common + 1] for chain in chains):
        common += 1
    firsts = [chain[common] for chain in chains if len(chain) > common]
    assert found.common_tokens == 16 * common
    hot = 0
    for first in set(firsts):
        k, rest = firsts.count(first), len(chains) - firsts.count(first)
        hot += k >= 2 and k * (engines - 1) > rest * 1
    assert found.hot[engines] == hot


def test_windows_and_overlaps_hold_to_the_digit_of_the_log(tmp_path):
    rows = [{"arrival_s": round(0.1 + 0.2 * k, 1), "session_id": str(k), "e2e_s": 0.2} for k in range(301)]
    result = analyze(write_dataset(tmp_path / "t.trace", rows), OPTIONS)
    assert result.span_s == 60
    assert result.peak_requests_per_min == 300  # the last comes 60 s after the first
    assert (result.requests_in_flight.max, result.requests_in_flight.mean) == (1, 1)
    assert result.burstiness[0].requests_dispersion == 0  # five in every second


def test_a_log_of_seconds_has_no_busiest_minute(tmp_path):
    result = analyze(write_dataset(tmp_path / "t.trace", [{"arrival_s": t} for t in (0, 1, 2)]), OPTIONS)
    assert (result.requests_per_min, result.peak_requests_per_min) == (90, None)


def test_thousands_a_minute_are_written_out_and_no_chains_test_no_prefix(tmp_path):
    rows = [{"arrival_s": k / 100, "session_id": str(k)} for k in range(101)]
    section = describe(analyze(write_dataset(tmp_path / "t.trace", rows), OPTIONS))
    assert "6,060 requests/min" in section.sentence
    assert not any("Hot-prefix" in text for text in section.assumptions)


def test_requests_that_nothing_groups_are_not_called_sessions(tmp_path):
    rows = [{"arrival_s": 60 * k, "session_id": session} for k, session in enumerate("abcb")]
    known = analyze(write_dataset(tmp_path / "a.trace", rows), OPTIONS)
    assert known.multi_turn_sessions == 1 and "new sessions/min" in describe(known).sentence
    unknown = analyze(write_dataset(tmp_path / "b.trace", rows[:3]), OPTIONS)
    assert unknown.multi_turn_sessions == 0 and "sessions" not in describe(unknown).sentence
