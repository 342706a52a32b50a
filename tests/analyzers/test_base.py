"""Analyzers are found by listing their folder, and their results become plain JSON."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from oracles.datasets import write_dataset

from agentctl import analyze as library
from agentctl.analyze import analyze_trace
from agentctl.analyzers.base import AnalyzeOptions, analyzers, as_json
from agentctl.analyzers.distribution import cdf_curve, distribution, quantiles
from agentctl.files import canonical_json
from agentctl.present import Section


def test_every_module_with_a_name_is_an_analyzer_and_they_come_in_order():
    found = analyzers()
    folder = Path(library.__file__).parent / "analyzers"
    named = [file for file in folder.glob("*.py") if "\nNAME = " in file.read_text()]
    assert len(found) == len(named)
    assert [a.ORDER for a in found] == sorted({a.ORDER for a in found})
    for analyzer in found:
        assert callable(analyzer.analyze) and callable(analyzer.describe)


SMALL = [
    {"arrival_s": 0, "session_id": "a", "blocks": [1, 2], "output_tokens": 5, "e2e_s": 2.0},
    {"arrival_s": 9, "session_id": "a", "blocks": [1, 2, 3], "output_tokens": 5, "e2e_s": 1.0},
    {"arrival_s": 11, "session_id": "b", "blocks": [1], "output_tokens": 1, "e2e_s": 1.0},
]
BARE = [{"arrival_s": 0.0, "prompt_tokens": None}]


@pytest.mark.parametrize(("rows", "block_tokens"), [(SMALL, 16), (BARE, None), ([], None)])
def test_any_trace_gives_one_json_document_and_a_section_per_analyzer(rows, block_tokens, tmp_path):
    trace = write_dataset(tmp_path / "t.trace", rows, block_tokens=block_tokens)
    analysis = analyze_trace(trace)
    document = analysis.document
    assert document["schema"] == "agentctl/analyze/1"
    assert document["requests"] == len(rows)
    assert document["provenance"]["trace_digest"] == trace.digest
    assert {a.NAME for a in analyzers()} <= set(document)
    assert [section.name for section in analysis.sections] == [a.NAME for a in analyzers()]
    assert all(section.sentence.endswith(".") for section in analysis.sections)
    assert canonical_json(document) == canonical_json(analyze_trace(trace).document)


def test_options_reach_the_analyzers(tmp_path):
    class Echo:
        NAME, ORDER = "echo", 1

        def analyze(self, trace, options):
            return options.engines

        def describe(self, result):
            return Section("echo", "Echo", f"{result}.")

    trace = write_dataset(tmp_path / "t.trace", SMALL, block_tokens=16)
    analysis = analyze_trace(trace, AnalyzeOptions(engines=(3,)), parts=(Echo(),))
    assert analysis.document["echo"] == [3]


def test_results_become_plain_json_and_the_undefined_becomes_null():
    @dataclass(frozen=True)
    class Result:
        ratio: float
        counts: tuple

    assert as_json(Result(float("nan"), (np.int64(3), float("inf"), {"p": None}))) == {
        "ratio": None,
        "counts": [3, None, {"p": None}],
    }


def test_percentiles_are_nearest_rank():
    assert quantiles([4.0, 1.0, 3.0, 2.0], (0.25, 0.5, 0.51, 1.0)) == (1, 2, 3, 4)
    assert distribution([float("nan")]) is None
    assert distribution([1, float("nan")]).count == 1


def test_a_curve_ends_at_the_largest_value_with_share_one():
    curve = cdf_curve("x", np.arange(10_000.0))
    assert len(curve.x) <= 200
    assert (curve.x[0], curve.y[0]) == (0, 1e-4)
    assert (curve.x[-1], curve.y[-1]) == (9999, 1)


def test_analyzers_agree_on_the_ideal_reuse(tmp_path):
    rows = [{**row, "status": "error"} if row["arrival_s"] == 9 else row for row in SMALL]
    document = analyze_trace(write_dataset(tmp_path / "t.trace", rows, block_tokens=16)).document
    assert document["reuse"]["ideal_token_ratio"] == document["locality"]["hit_token_ratio_forever"] == 1 / 3
