"""Two-phase structure on sessions small enough to count by hand, and on ConServe's published token trace."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.datasets import write_dataset

from agentctl.analyzers.base import AnalyzeOptions, as_json
from agentctl.analyzers.phases import Turns, analyze, describe, two_phase
from agentctl.ingest.build import ingest

CONSERVE = Path(__file__).parents[1] / "data/conserve/trace_profile_summary.csv.gz"
SESSIONS = Path(__file__).parents[2] / "sample_traces/weka_small.jsonl.gz"
OPTIONS = AnalyzeOptions()


def turns(*requests, origin="new"):
    """(session, prompt, uncached, output) each."""
    session, prompt, uncached, output = (np.array(column) for column in zip(*requests, strict=True))
    n = len(requests)
    return Turns(
        session.astype(np.int64),
        prompt.astype(float),
        uncached.astype(float),
        output.astype(float),
        np.full(n, origin),
        np.zeros(n, dtype=bool),
    )


def test_conserve_spends_its_prefill_in_the_first_turn():
    table = pl.read_csv(gzip.decompress(CONSERVE.read_bytes()))
    trace = Turns(
        table["conv_id"].to_numpy(),
        table["total_input"].to_numpy().astype(float),
        table["appended_input"].to_numpy().astype(float),
        table["out_token_size"].to_numpy().astype(float),
        np.full(table.height, "new"),
        np.zeros(table.height, dtype=bool),
    )
    result = two_phase(trace, OPTIONS)
    assert result.verdict == "holds"
    assert result.sessions_judged == 2294
    assert result.prefill_share["first_turns"] == pytest.approx(0.962, abs=5e-4)
    assert 1 - trace.uncached_tokens.sum() / trace.prompt_tokens.sum() == pytest.approx(0.903, abs=5e-4)
    assert result.sessions[0].first_prompt_tokens.mean == pytest.approx(15_488, abs=1)
    assert result.sessions[0].first_prompt_tokens.p50 == pytest.approx(15_890, abs=1)
    assert result.later_turns[0].append_tokens.mean == pytest.approx(68, abs=0.5)


def test_verdict_needs_both_the_first_turn_share_and_the_later_hits():
    up_front = turns((0, 100, 100, 1), (0, 110, 10, 1))  # 100 of 110 in turn 0; 100 of 110 hit
    growing = turns((0, 100, 100, 1), (0, 1100, 1000, 1), (0, 1110, 10, 1), (0, 1120, 10, 1))
    missing = turns((0, 1000, 1000, 1), (0, 300, 200, 1))
    neither = turns((0, 100, 100, 1), (0, 300, 200, 1))
    verdicts = [two_phase(t, OPTIONS).verdict for t in (up_front, growing, missing, neither)]
    assert verdicts == ["holds", "per turn only", "per session only", "does not hold"]


def test_thresholds_are_adjustable_and_reported():
    trace = turns((0, 100, 100, 1), (0, 110, 10, 1))
    strict = two_phase(trace, replace(OPTIONS, first_turn_share=0.95, later_hit_share=0.95))
    assert strict.verdict == "does not hold"
    assert "threshold 95.0 %" in describe(strict).sentence


def test_a_value_at_the_threshold_passes():
    trace = turns((0, 20, 20, 1), (0, 100, 20, 1))  # exactly 0.5 and 0.8
    assert two_phase(trace, OPTIONS).verdict == "holds"


def test_resumed_sessions_are_shown_but_not_judged():
    new = turns((0, 100, 100, 1), (0, 110, 10, 1))
    resumed = turns((1, 9000, 9000, 1), (1, 9010, 9010, 1), origin="resumed")
    both = Turns(*(np.concatenate(pair) for pair in zip(new, resumed, strict=True)))
    result = two_phase(both, OPTIONS)
    assert result.sessions_judged == 1
    assert result.verdict == "holds"
    assert [(c.origin, c.sessions) for c in result.sessions] == [("all", 2), ("new", 1), ("resumed", 1)]
    assert "1 session of 2 began before the log" in describe(result).warnings[0]


def test_chain_shared_with_the_session_is_cached_and_another_session_is_not(tmp_path):
    trace = write_dataset(
        tmp_path / "t.trace",
        [
            {"arrival_s": 0, "session_id": "a", "blocks": [1, 2], "prompt_tokens": 32},
            {"arrival_s": 1, "session_id": "b", "blocks": [1, 2], "prompt_tokens": 32},  # the same prompt
            {"arrival_s": 2, "session_id": "a", "blocks": [1, 2, 3, 4], "prompt_tokens": 60},  # tail of 12
            {"arrival_s": 3, "session_id": "a", "blocks": [1, 5], "prompt_tokens": 35, "origin": "compacted"},
            {"arrival_s": 4, "session_id": "a", "agent_path": "x", "blocks": [1, 6], "prompt_tokens": 32},
        ],
        block_tokens=16,
    )
    result = analyze(trace, OPTIONS)
    assert result.rule == "blocks"
    every, appends, compacted = result.later_turns
    assert (every.turns, appends.turns, compacted.turns) == (2, 1, 1)
    assert appends.append_tokens.max == 28
    assert compacted.append_tokens.max == 19
    assert result.first_turn_share_p50 == 32 / (32 + 28 + 19)
    # first turns 32 + 32, later turns 28 + 19, the sub-agent 16
    assert result.prefill_share == pytest.approx(
        {"first_turns": 64 / 127, "later_turns": 47 / 127, "subagents": 16 / 127}
    )


def test_a_retry_repeats_its_turn_and_is_not_counted(tmp_path):
    rows = [
        {"arrival_s": 0, "session_id": "a", "blocks": [1, 2], "status": "error"},
        {"arrival_s": 1, "session_id": "a", "blocks": [1, 2], "turn_index": 0, "attempt": 1},
        {"arrival_s": 2, "session_id": "a", "blocks": [1, 2, 3], "turn_index": 1},
    ]
    result = analyze(write_dataset(tmp_path / "t.trace", rows, block_tokens=16), OPTIONS)
    assert result.later_turns[0].turns == 1
    assert result.later_turns[0].append_tokens.max == 16


def test_without_blocks_a_turn_appends_what_its_parent_did_not_have(tmp_path):
    rows = [
        {"arrival_s": 0, "session_id": "a", "prompt_tokens": 100},
        {"arrival_s": 1, "session_id": "a", "prompt_tokens": 130},
        {"arrival_s": 2, "session_id": "a", "prompt_tokens": 50},  # shorter: new whole
        {"arrival_s": 3, "session_id": "b", "prompt_tokens": None},
    ]
    result = analyze(write_dataset(tmp_path / "t.trace", rows), OPTIONS)
    assert result.rule == "parent"
    assert result.first_turn_share_p50 == 100 / 180
    assert result.unknown_requests == 1


def test_a_trace_without_blocks_or_links_gets_a_reason_instead_of_a_verdict(tmp_path):
    rows = [
        {"arrival_s": t, "session_id": "a", "prompt_tokens": 9, "parent_request_id": None} for t in (0, 1)
    ]
    result = analyze(write_dataset(tmp_path / "t.trace", rows), OPTIONS)
    assert result.verdict is None
    assert result.reason == "the trace has neither block chains nor links between turns"
    assert result.first_turn_share_p50 is None
    assert "cannot be said" in describe(result).sentence
    assert as_json(result)["prefill_share"] is None


def test_single_turn_sessions_leave_the_verdict_open(tmp_path):
    rows = [{"arrival_s": t, "blocks": [t]} for t in range(3)]
    result = analyze(write_dataset(tmp_path / "t.trace", rows, block_tokens=16), OPTIONS)
    assert (result.verdict, result.reason) == (None, "no session of two or more turns starts new")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.integers(0, 2), max_size=5), st.integers(0, 15)),
        min_size=1,
        max_size=25,
    )
)
def test_uncached_prefill_is_prompt_minus_longest_common_prefix_in_the_session(tmp_path_factory, requests):
    rows = [
        {"arrival_s": t, "session_id": f"s{s}", "blocks": chain, "prompt_tokens": 16 * len(chain) + tail}
        for t, (s, chain, tail) in enumerate(requests)
    ]
    trace = write_dataset(tmp_path_factory.mktemp("law") / "t.trace", rows, block_tokens=16)
    result = analyze(trace, OPTIONS)

    def common(a, b):
        return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))

    expected = 0
    for t, (s, chain, tail) in enumerate(requests):
        earlier = [other for q, other, _ in requests[:t] if q == s]
        expected += 16 * (len(chain) - max((common(chain, other) for other in earlier), default=0)) + tail
    shown = sum(c.append_tokens.mean * c.turns for c in result.later_turns[:1] if c.turns)
    first_of = {s: 16 * len(chain) + tail for s, chain, tail in reversed(requests)}
    assert shown + sum(first_of.values()) == pytest.approx(expected)


def plain_reading(path):
    """Share of prefill in turn 0 per session and the appends, from the log's own lists of block ids.

    Its ids name whole prefixes within a session, so what is shared is the run of known ids at the front.
    """
    shares, appends = [], []
    for line in gzip.decompress(path.read_bytes()).splitlines():
        session = json.loads(line)
        known, uncached = set(), []
        for request in sorted(session["requests"], key=lambda request: request["t"]):
            ids = request["hash_ids"]
            shared = next((i for i, block in enumerate(ids) if block not in known), len(ids))
            uncached.append(request["in"] - shared * session["block_size"])
            known.update(ids)
        shares.append(uncached[0] / sum(uncached))
        appends += uncached[1:]
    return shares, appends


def test_ingested_sessions_match_a_plain_reading_of_their_log(tmp_path):
    trace = ingest([SESSIONS], tmp_path / "weka.trace").trace
    result = analyze(trace, OPTIONS)
    shares, appends = plain_reading(SESSIONS)
    several = [share for share in shares if share < 1]
    assert result.sessions[0].first_turn_share.mean == pytest.approx(sum(several) / len(several))
    assert result.later_turns[0].turns == len(appends)
    assert result.later_turns[0].append_tokens.mean == pytest.approx(sum(appends) / len(appends))
    assert result.later_turns[0].append_tokens.max == max(appends)


def test_a_branch_is_no_retry_and_a_prompt_sent_again_is_one(tmp_path):
    rows = [
        {"arrival_s": 0, "session_id": "a", "blocks": [1, 2]},
        {"arrival_s": 1, "session_id": "a", "blocks": [1, 2, 3], "turn_index": 1},
        {"arrival_s": 2, "session_id": "a", "blocks": [1, 2, 4, 5], "turn_index": 1},  # another answer
        {"arrival_s": 3, "session_id": "a", "blocks": [1, 2, 4, 5], "turn_index": 1},  # sent again
    ]
    result = analyze(write_dataset(tmp_path / "t.trace", rows, block_tokens=16), OPTIONS)
    assert result.later_turns[0].turns == 2
    assert (result.later_turns[0].append_tokens.p10, result.later_turns[0].append_tokens.max) == (16, 32)


def test_no_later_turn_takes_the_place_of_an_unknown_first_one(tmp_path):
    rows = [
        {"arrival_s": 0, "session_id": "a"},  # no chain
        {"arrival_s": 1, "session_id": "a", "blocks": [1, 2, 3]},
        {"arrival_s": 2, "session_id": "a", "blocks": [1, 2, 3, 4]},
        {"arrival_s": 3, "session_id": "b", "blocks": [9]},
    ]
    result = analyze(write_dataset(tmp_path / "t.trace", rows, block_tokens=16), OPTIONS)
    assert (result.sessions_judged, result.sessions[0].sessions, result.unknown_requests) == (0, 1, 3)
    assert "3 requests left out" in describe(result).warnings[0]
