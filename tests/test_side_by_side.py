"""`simulate` under several policies: the runs are those of one policy each, over the same arrivals."""

import pytest

from agentctl.cluster import cluster_of
from agentctl.errors import UsageError
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.profile import load_profile
from agentctl.report.terminal import render
from agentctl.side_by_side import run_side_by_side
from agentctl.simulate import run_simulation


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    log = "sample_traces/weka_small.jsonl.gz"
    return ingest([log], tmp_path_factory.mktemp("trace") / "small.trace", IngestOptions()).trace


CLUSTER = cluster_of(load_profile("h100-qwen3-8b"), 2)
ALONE = [({}, CLUSTER)]


def test_every_run_has_the_numbers_of_a_run_alone(trace):
    asked = [("round-robin", {}), ("smetric", {"slack": 0.5})]
    seen = []
    result = run_side_by_side(trace, ALONE, asked, progress=lambda share, what: seen.append(share))
    assert [run["policy"] for run in result.document["runs"]] == ["round-robin", "smetric"]
    for (name, params), run in zip(asked, result.document["runs"], strict=True):
        alone = run_simulation(trace, CLUSTER, policy=name, params=params).document
        assert run.pop("settings") == {}
        assert {**run, "schema": "agentctl/simulate/1"}.items() <= alone.items()
        shared = {key: value for key, value in result.document.items() if key not in ("schema", "runs")}
        assert shared.items() <= alone.items()
    assert [row[0] for row in result.sections[0].tables[0].rows] == ["round-robin", "smetric"]
    assert seen == sorted(seen) and seen[-1] == 1.0


def test_the_same_policy_with_other_parameters_is_another_run(trace):
    run_side_by_side(trace, ALONE, [("smetric", {"slack": 0.5}), ("smetric", {"slack": 2.0})])
    with pytest.raises(UsageError, match="smetric is asked for twice"):
        run_side_by_side(trace, ALONE, [("smetric", {}), ("lmetric", {}), ("smetric", {})])


def test_figures_hold_the_runs_side_by_side_and_tell_variants_of_a_policy_apart(trace):
    asked = [("smetric", {"slack": 0.5}), ("smetric", {"slack": 2.0}), ("round-robin", {})]
    result = run_side_by_side(trace, ALONE, asked)
    details = [section for section in result.sections if section.is_detail]
    assert [section.name for section in details] == ["latency", "hits", "engines", "hot-spots"]
    for section in details:
        names = [row[0] for row in section.tables[0].rows]
        assert len(set(names)) == 3 and names[2] == "round-robin"
        assert "slack 0.5" in names[0] and "slack 2" in names[1]


def test_on_a_terminal_the_table_is_the_answer(trace):
    result = run_side_by_side(trace, ALONE, [("smetric", {}), ("round-robin", {})])
    assert "Where prompt tokens" not in render(result.sections, terminal=True)
    assert "Where prompt tokens" in render(result.sections, terminal=True, verbose=True)
