"""Gaps and reuse intervals on requests whose last uses can be read off the page."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.datasets import write_dataset

from agentctl.analyzers.base import AnalyzeOptions
from agentctl.analyzers.locality import analyze, describe

OPTIONS = AnalyzeOptions(reuse_within_s=(10, 100), idle_timeouts_s=(5, 20, 100))


def test_gaps_run_from_end_to_start_and_overlaps_stand_apart(tmp_path):
    rows = [
        {"arrival_s": 0, "session_id": "a", "e2e_s": 2.0},
        {"arrival_s": 5, "session_id": "a", "e2e_s": 1.0, "gap_kind": "tool"},
        {"arrival_s": 66, "session_id": "a", "e2e_s": 9.0, "gap_kind": "user"},
        {"arrival_s": 67, "session_id": "a", "e2e_s": 1.0, "gap_s": 1.0, "gap_kind": "overlap"},
    ]
    result = analyze(write_dataset(tmp_path / "t.trace", rows), OPTIONS)
    gaps = {g.kind: (g.turns, g.gap_s.max) for g in result.gaps}
    assert gaps == {"all": (2, 60), "tool": (1, 3), "user": (1, 60), "overlap": (1, 1)}
    assert result.start_to_start_s.max == 61


def test_no_known_end_means_no_gaps_and_a_warning_that_names_the_flag(tmp_path):
    rows = [{"arrival_s": t, "session_id": "a"} for t in (0, 9)]
    result = analyze(write_dataset(tmp_path / "t.trace", rows), OPTIONS)
    assert (result.gaps, result.gaps_reason) == ((), "no turn follows one whose end is known")
    assert result.start_to_start_s.p50 == 9
    assert any("--map e2e_s" in text for text in describe(result).warnings)


def test_reuse_is_counted_in_tokens_since_the_latest_use(tmp_path):
    rows = [
        {"arrival_s": 0, "blocks": [1, 2, 3]},
        {"arrival_s": 30, "blocks": [1, 2]},  # 32 tokens after 30 s
        {"arrival_s": 38, "blocks": [1, 4]},  # 16 after 8 s
        {"arrival_s": 138, "blocks": [1, 2, 3]},  # 16 after 100 s, 16 after 108 s, 16 after 138 s
    ]
    result = analyze(write_dataset(tmp_path / "t.trace", rows, block_tokens=16), OPTIONS)
    assert [r.token_ratio for r in result.reuse_within] == pytest.approx([16 / 96, 64 / 96])
    assert result.hit_token_ratio_forever == 96 / (16 * 10)
    assert [t.hit_token_ratio for t in result.idle_timeouts] == pytest.approx([0, 16 / 160, 64 / 160])


def test_idle_time_starts_when_the_last_user_ended(tmp_path):
    rows = [
        {"arrival_s": 0, "blocks": [1], "e2e_s": 26.0},
        {"arrival_s": 30, "blocks": [1], "e2e_s": 1.0},  # 4 s idle
        {"arrival_s": 30.5, "blocks": [1], "e2e_s": 0.5},  # still in use
    ]
    result = analyze(write_dataset(tmp_path / "t.trace", rows, block_tokens=16), OPTIONS)
    assert result.idle_timeouts[0].hit_token_ratio == pytest.approx(2 / 3)
    assert result.idle_timeouts[0].idle_tokens_mean == pytest.approx(16 * 4 / 31)
    assert result.known_end_ratio == 1


def test_an_identical_partial_last_block_gives_its_tokens_and_no_more(tmp_path):
    rows = [{"arrival_s": t, "blocks": [1, 2], "prompt_tokens": 20} for t in (0, 5)]
    result = analyze(write_dataset(tmp_path / "t.trace", rows, block_tokens=16), OPTIONS)
    assert result.hit_token_ratio_forever == 0.5


def test_unknown_chains_are_left_out(tmp_path):
    rows = [
        {"arrival_s": 0, "blocks": [1]},
        {"arrival_s": 1, "prompt_tokens": 999},
        {"arrival_s": 5, "blocks": [1]},
    ]
    result = analyze(write_dataset(tmp_path / "t.trace", rows, block_tokens=16), OPTIONS)
    assert result.hit_token_ratio_forever == 0.5


def test_without_blocks_there_is_a_reason_and_no_ratio(tmp_path):
    result = analyze(write_dataset(tmp_path / "t.trace", [{"arrival_s": 0}]), OPTIONS)
    assert (result.reuse_within, result.idle_timeouts, result.hit_token_ratio_forever) == ((), (), None)
    assert describe(result).sentence == (
        "Locality cannot be told: the trace has no block chains, and no turn follows one whose end is known."
    )


chains = st.lists(st.tuples(st.integers(0, 40), st.lists(st.integers(0, 1), max_size=4)), max_size=20)


@settings(max_examples=40, deadline=None)
@given(chains, st.integers(1, 60))
def test_hits_under_a_timeout_equal_those_of_a_dictionary_that_forgets(tmp_path_factory, requests, timeout):
    requests = sorted(requests, key=lambda request: request[0])
    last_use: dict[tuple[int, ...], int] = {}
    hits = 0
    for arrival, chain in requests:
        for depth in range(1, len(chain) + 1):
            block = tuple(chain[:depth])
            hits += block in last_use and arrival - last_use[block] <= timeout
            last_use[block] = arrival
    total = sum(len(chain) for _, chain in requests)
    rows = [{"arrival_s": arrival, "blocks": chain} for arrival, chain in requests]
    trace = write_dataset(tmp_path_factory.mktemp("law") / "t.trace", rows, block_tokens=16)
    result = analyze(trace, replace(OPTIONS, idle_timeouts_s=(timeout,)))
    if total:
        assert result.idle_timeouts[0].hit_token_ratio == pytest.approx(hits / total)
    else:
        assert result.idle_timeouts == ()


def test_requests_that_no_engine_took_in_neither_count_nor_keep_kv(tmp_path):
    rows = [
        {"arrival_s": 0, "blocks": [1]},
        {"arrival_s": 50, "blocks": [1], "status": "error"},
        {"arrival_s": 60, "blocks": [1]},
    ]
    result = analyze(write_dataset(tmp_path / "t.trace", rows, block_tokens=16), OPTIONS)
    assert [t.hit_token_ratio for t in result.idle_timeouts] == [0, 0, 0.5]


def test_limits_hold_to_the_digit_of_the_log(tmp_path):
    # 1000.1 - 0.1 is 1000 s and not a hair more; seven sessions, so that floats err both ways
    rows = [
        {"arrival_s": start + at, "session_id": str(start), "blocks": [start, 1], "e2e_s": 0.0}
        for start in (0.1, 0.2, 0.3, 0.7, 1.1, 3.3, 7.9)
        for at in (0, 10, 110, 1110)
    ]
    for row in rows:
        row["arrival_s"] = round(row["arrival_s"], 1)
    trace = write_dataset(tmp_path / "t.trace", rows, block_tokens=16)
    options = AnalyzeOptions(reuse_within_s=(10, 100, 1000), idle_timeouts_s=(10, 100, 1000))
    result = analyze(trace, options)
    assert [r.token_ratio for r in result.reuse_within] == pytest.approx([1 / 3, 2 / 3, 1])
    assert [t.hit_token_ratio for t in result.idle_timeouts] == pytest.approx([1 / 4, 2 / 4, 3 / 4])
    assert (result.start_to_start_s.p10, result.start_to_start_s.p50, result.start_to_start_s.max) == (
        10, 100, 1000,
    )  # fmt: skip
