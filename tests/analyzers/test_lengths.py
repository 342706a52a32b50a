"""Lengths over all requests and by model."""

from oracles.datasets import write_dataset

from agentctl.analyzers.base import AnalyzeOptions
from agentctl.analyzers.lengths import analyze, describe

OPTIONS = AnalyzeOptions()


def lengths(tmp_path, *rows):
    named = [
        {"arrival_s": t, "model": model, "prompt_tokens": prompt, "output_tokens": output}
        for t, (model, prompt, output) in enumerate(rows)
    ]
    return analyze(write_dataset(tmp_path / "t.trace", named), OPTIONS)


def test_percentiles_are_values_of_the_sample_and_models_stand_apart(tmp_path):
    result = lengths(tmp_path, ("m", 100, 10), ("m", 200, 10), ("n", 1000, 1))
    assert (result.all.prompt_tokens.p50, result.all.prompt_tokens.max) == (200, 1000)
    assert [(each.model, each.requests) for each in result.models] == [("m", 2), ("n", 1)]
    assert result.models[1].prompt_output_ratio.p50 == 1000
    assert result.prompt_share_of_tokens == 1300 / 1321
    assert len(describe(result).tables[0].rows) == 3


def test_a_request_without_output_has_no_ratio(tmp_path):
    result = lengths(tmp_path, ("m", 100, 0), ("m", 100, 50))
    assert result.zero_outputs == 1
    assert (result.all.prompt_output_ratio.count, result.all.prompt_output_ratio.p50) == (1, 2)


def test_unknown_counts_are_unknown_and_not_zero(tmp_path):
    result = lengths(tmp_path, (None, 100, None), (None, None, 7))
    assert (result.unknown_prompts, result.unknown_outputs) == (1, 1)
    assert result.all.prompt_tokens.p10 == 100
    assert result.prompt_share_of_tokens is None
    assert [each.model for each in result.models] == [None]
    assert "--map prompt_tokens=FIELD" in describe(result).warnings[0]


def test_no_counts_at_all_give_a_reason(tmp_path):
    result = lengths(tmp_path, (None, None, None))
    assert result.reason == "no request has a token count"
    assert describe(result).sentence == "Lengths cannot be told: no request has a token count."
