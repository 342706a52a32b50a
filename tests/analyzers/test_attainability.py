"""Objectives that an idle engine misses, against batches added up one by one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.datasets import write_dataset

from agentctl.analyze import analyze_trace
from agentctl.analyzers import attainability
from agentctl.analyzers.attainability import alone, analyze, describe
from agentctl.analyzers.base import AnalyzeOptions
from agentctl.estimators.batch_time import BatchTime, batch_time, chunk_pairs
from agentctl.slo import parse_slos

SLOW = BatchTime(b0=0.5, b_prefill=0.01, b_decode=0.01)  # a batch: 0.5 s and 10 ms per token


def step_by_step(c, budget, prompt, output, hit):
    """TTFT and decode time of one request alone, batch by batch."""
    ttft, done = 0.0, hit
    while done < prompt:
        chunk = min(budget, prompt - done)
        ttft += batch_time(c, chunk, chunk_pairs(chunk, done), done, 1, 0, 0)
        done += chunk
    decode = sum(batch_time(c, 0, 0, 0, 0, 1, prompt + i) for i in range(output - 1))
    return ttft, decode


seconds = st.floats(0, 1e-2)


@given(
    c=st.builds(
        BatchTime,
        b0=seconds, b_prefill=seconds, b_decode=seconds, b_context=st.sampled_from([0.0, 1e-5, 1e-3]),
        b_attention=st.floats(0, 1e-5), b_past=st.floats(0, 1e-5), h0=seconds, h_seq=seconds,
    ),
    budget=st.integers(1, 40),
    prompt=st.integers(1, 100),
    output=st.integers(1, 30),
    hit_share=st.floats(0, 0.99),
)  # fmt: skip
def test_a_request_alone_takes_the_sum_of_its_batches(c, budget, prompt, output, hit_share):
    hit = int(prompt * hit_share)
    ttft, decode = step_by_step(c, budget, prompt, output, hit)
    run = alone(c, budget, np.array([prompt]), np.array([output]), np.array([hit]))
    assert run.ttft[0] == pytest.approx(ttft, rel=1e-9)
    assert run.e2e[0] == pytest.approx(ttft + decode, rel=1e-9)
    if output > 1:
        assert run.tpot[0] == pytest.approx(decode / (output - 1), rel=1e-9)
    else:
        assert np.isnan(run.tpot[0])


ROWS = [
    {"arrival_s": 0, "session_id": "a", "blocks": list(range(10)), "output_tokens": 3},  # 160 tokens: 2.1 s
    {
        "arrival_s": 1,
        "session_id": "a",
        "blocks": list(range(11)),
        "output_tokens": 1,
    },  # 176: 2.26 s, warm 0.66 s
]


def engine(*slos, budget=8192):
    objectives = parse_slos(slos)
    return AnalyzeOptions(batch_time=SLOW, max_num_batched_tokens=budget, objectives=objectives)


def test_a_cache_brings_a_later_turn_within_the_objective_but_not_the_first(tmp_path):
    trace = write_dataset(tmp_path / "t.trace", ROWS, block_tokens=16)
    result = analyze(trace, engine("ttft < 1s @ 60%"))
    (slo,) = result.objectives
    assert (slo.cold_ratio, slo.ideal_hit_ratio) == (1.0, 0.5)
    assert slo.allowed_ratio == pytest.approx(0.4)
    assert slo.is_out_of_reach
    assert "cannot be met by any policy" in describe(result).warnings[0]
    assert result.ttft_cold_s.max == pytest.approx(2.26)


def test_a_repeated_prompt_still_computes_its_last_block(tmp_path):
    rows = [{"arrival_s": t, "blocks": [1, 2], "output_tokens": 1} for t in (0, 1)]
    result = analyze(write_dataset(tmp_path / "t.trace", rows, block_tokens=16), engine("ttft < 0.7s"))
    assert result.ttft_ideal_hit_s.p10 == pytest.approx(0.66)  # 16 of 32 tokens


def test_small_batches_pay_their_fixed_cost_again(tmp_path):
    trace = write_dataset(tmp_path / "t.trace", ROWS[:1], block_tokens=16)
    assert analyze(trace, engine("ttft < 9s", budget=40)).ttft_cold_s.max == pytest.approx(4 * 0.5 + 1.6)


def test_a_one_token_output_has_no_tpot(tmp_path):
    trace = write_dataset(tmp_path / "t.trace", ROWS, block_tokens=16)
    (slo,) = analyze(trace, engine("tpot < 0.51s")).objectives
    assert (slo.requests, slo.cold_ratio) == (1, 1.0)  # exactly 0.51 s is not below
    (slo,) = analyze(trace, engine("tpot <= 0.52s")).objectives
    assert slo.cold_ratio == 0.0


def test_a_limit_per_uncached_token_is_tighter_with_a_warm_cache(tmp_path):
    trace = write_dataset(tmp_path / "t.trace", ROWS, block_tokens=16)
    (slo,) = analyze(trace, engine("ttft < 20ms*uncached_tokens")).objectives
    assert (slo.cold_ratio, slo.ideal_hit_ratio) == (0.0, 0.5)  # 16 uncached tokens give 0.32 s


def test_session_objectives_are_not_tested_and_said_so(tmp_path):
    trace = write_dataset(tmp_path / "t.trace", ROWS, block_tokens=16)
    result = analyze(trace, engine("session < 9s"))
    assert (result.objectives, result.not_evaluated) == ((), ("session < 9s",))
    assert describe(result).sentence == "No objective is about single requests: session < 9s."


def test_prompt_lengths_are_told_apart(tmp_path):
    rows = [{"arrival_s": 0, "prompt_tokens": n, "output_tokens": 1} for n in (10, 999, 1000)]
    result = analyze(write_dataset(tmp_path / "t.trace", rows), engine("ttft < 1s"))
    assert [(b.prompt_tokens_from, b.requests, b.cold_ratio) for b in result.buckets] == [
        (0, 2, 0.5),
        (1000, 1, 1.0),
    ]
    assert result.objectives[0].ideal_hit_ratio is None


def test_without_a_profile_there_is_a_reason(tmp_path):
    trace = write_dataset(tmp_path / "t.trace", ROWS, block_tokens=16)
    analysis = analyze_trace(trace, parts=(attainability,))
    assert analysis.document["attainability"]["reason"] == "no engine profile is given"
    assert "is not tested: no engine profile is given." in analysis.sections[0].sentence


def test_expressions_are_parsed_for_the_analyzer(tmp_path):
    trace = write_dataset(tmp_path / "t.trace", ROWS, block_tokens=16)
    options = AnalyzeOptions(batch_time=SLOW, slos=("ttft < 3s",))
    (slo,) = analyze_trace(trace, options, parts=(attainability,)).document["attainability"]["objectives"]
    assert (slo["slo"], slo["cold_ratio"]) == ("ttft < 3s", 0)
    default = analyze_trace(trace, replace(options, slos=()), parts=(attainability,)).document
    assert len(default["attainability"]["objectives"]) == 2


def test_an_answer_that_the_prompt_goes_on_from_is_cached_too(tmp_path):
    rows = [
        {"arrival_s": 0, "session_id": "a", "blocks": [1, 2], "output_tokens": 33},  # 32 + 33 - 1 = 64 tokens
        {
            "arrival_s": 1,
            "session_id": "a",
            "blocks": [1, 2, 3, 4, 5],
            "output_tokens": 1,
        },  # 16 of 80 are new
        {"arrival_s": 2, "session_id": "b", "blocks": [9], "output_tokens": 20},
        {"arrival_s": 3, "session_id": "b", "blocks": [9, 8], "output_tokens": 1},  # too short for the answer
    ]
    result = analyze(write_dataset(tmp_path / "t.trace", rows, block_tokens=16), engine("ttft < 0.67s @ 50%"))
    assert result.ttft_ideal_hit_s.count == 4
    assert result.objectives[0].ideal_hit_ratio == 0.25  # the first alone; b: 16 tokens each
    assert not result.objectives[0].is_out_of_reach
