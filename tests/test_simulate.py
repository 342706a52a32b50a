"""`run_simulation` on a dataset small enough to follow by hand."""

import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from oracles.datasets import write_dataset

from agentctl.cluster import parse_cluster
from agentctl.errors import ConfigError, OutputError, UsageError
from agentctl.files import canonical_json
from agentctl.policies.base import formula_names, load_policy
from agentctl.result import read_result
from agentctl.simulate import run_simulation

# 1 ms a batch and 1 ms a prefill token: a prompt of 32 tokens takes 33 ms, every further token 1 ms.
CLUSTER = {
    "schema": "agentctl/cluster/1",
    "pool": [
        {
            "name": "main",
            "engines": 2,
            "block_tokens": 16,
            "kv_blocks": 100,
            "batch_time": {"model": "hinge", "b0": 1e-3, "b_prefill": 1e-3, "b_decode": 0.0},
        }
    ],
    "router": {"policy": "prefix-affine"},
}
ROWS = [
    {"arrival_s": 0.0, "session_id": "a", "blocks": [1, 2], "output_tokens": 5, "e2e_s": 2.0},
    {"arrival_s": 1.0, "session_id": "b", "blocks": [7, 8], "output_tokens": 1, "e2e_s": 2.0},
    {"arrival_s": 9.0, "session_id": "a", "blocks": [1, 2, 3], "output_tokens": 5, "e2e_s": 1.0},
    {
        "arrival_s": 20.0,
        "session_id": "c",
        "blocks": [9],
        "prompt_tokens": 9000,
        "output_tokens": 1,
        "e2e_s": 1.0,
    },
]


@pytest.fixture
def trace(tmp_path):
    return write_dataset(tmp_path / "small.trace", ROWS, block_tokens=16)


@pytest.fixture
def cluster():
    return parse_cluster(CLUSTER, "c.toml")


def test_the_document_says_what_happened(trace, cluster):
    document = run_simulation(trace, cluster).document
    assert document["schema"] == "agentctl/simulate/1"
    assert (document["policy"], document["replay"]) == ("prefix-affine", "thinktime")
    assert (document["requests"], document["rejected"]) == (4, 1)  # 9,000 tokens never fit 99 blocks
    metrics = document["metrics"]
    assert metrics["ttft_s"]["n"] == 3
    assert metrics["ttft_s"]["p50"] == pytest.approx(0.033)
    assert metrics["ttft_s"]["p99"] == pytest.approx(0.033)
    assert metrics["tpot_s"]["mean"] == pytest.approx(0.001)
    # the second turn of a finds its 32 tokens where the first one ran
    assert metrics["hit_ratio"]["value"] == pytest.approx(32 / (32 + 32 + 48))
    assert [engine["requests"] for engine in document["engines"]] == [2, 1]
    assert [slo["holds"] for slo in document["slo"]] == [False, True]  # 3 of 4 is below 95 %
    assert metrics["within_slo"]["value"] == 0.75


def test_another_policy_and_its_parameters_override_the_clusters_router(trace, cluster):
    document = run_simulation(trace, cluster, policy="smetric", params={"slack": 0.5}).document
    assert document["policy"] == "smetric"
    assert document["params"]["slack"] == 0.5
    assert document["params"]["c_linear"] == 1e-3  # the profile's


def test_with_one_engine_all_policies_agree(trace, cluster):
    # others may hold requests back, or choose between models
    loaded = [load_policy(name) for name in formula_names()]
    names = [one.name for one in loaded if not (one.places or one.needs_fleet)]
    results = [run_simulation(trace, cluster.with_engines(1), policy=name) for name in names]
    assert len(results) >= 5
    for result in results[1:]:
        assert result.document["metrics"] == results[0].document["metrics"]
        assert result.outcome.equals(results[0].outcome)


def test_the_same_input_and_seed_give_the_same_bytes(trace, cluster):
    first, second = (run_simulation(trace, cluster, seed=3) for _ in range(2))
    assert canonical_json(first.document) == canonical_json(second.document)
    assert first.sections == second.sections


def test_a_run_folder_can_be_read_and_rendered_again(trace, cluster, tmp_path):
    result = run_simulation(trace, cluster)
    result.write(tmp_path / "run", extra={"report.html": b"<html>"})
    again = read_result(tmp_path / "run")
    assert again.sections == result.sections
    assert canonical_json(again.document) == canonical_json(result.document)
    assert json.loads((tmp_path / "run" / "result.json").read_bytes())["schema"] == "agentctl/simulate/1"
    table = pq.read_table(tmp_path / "run" / "outcome.parquet")
    assert table["status"].to_pylist() == ["done", "done", "done", "rejected"]
    assert (tmp_path / "run" / "report.html").read_bytes() == b"<html>"


def test_a_run_folder_is_not_overwritten_unasked(trace, cluster, tmp_path):
    result = run_simulation(trace, cluster)
    result.write(tmp_path / "run")
    with pytest.raises(OutputError):
        result.write(tmp_path / "run")
    result.write(tmp_path / "run", force=True)


def test_mistakes_are_told_before_anything_runs(trace, cluster):
    with pytest.raises(ConfigError, match="unknown policy"):
        run_simulation(trace, cluster, policy="smetrics")
    with pytest.raises(UsageError, match="has no unit"):
        run_simulation(trace, cluster, slos=["ttft < 2"])


def test_objectives_are_those_given(trace, cluster):
    document = run_simulation(trace, cluster, slos=["ttft p50 < 30ms"]).document
    assert [(slo["objective"], slo["holds"]) for slo in document["slo"]] == [("ttft p50 < 30ms", False)]


def test_the_document_says_what_the_router_knew_and_who_said_so(trace, cluster):
    def router(policy, **said):
        run = run_simulation(trace, replace(cluster, router=replace(cluster.router, **said)), policy=policy)
        assert any("prefix index is precise" in line for line in run.sections[-1].assumptions)
        return run.document["router"]

    plain = router("lmetric")
    assert plain["gateways"] == 1
    assert plain["index"] == {"value": "precise", "origin": "default"}
    own = router("vllm-router:kv_aware", metrics_interval_s=0.5)
    assert own["index"] == {"value": "precise", "origin": "policy"}
    assert own["metrics_interval_s"] == {"value": 0.5, "origin": "cluster"}


def test_sessions_are_compared_with_themselves_alone(trace, cluster):
    # a: 33 ms for 32 tokens and 4 ms more; seconds later 17 ms for 16 new tokens and 4 ms more. b arrives
    # while nobody is there. c never fits.
    result = run_simulation(trace, cluster.with_engines(1), alone=True)
    metrics = result.document["metrics"]
    assert metrics["ttfet_x_isolated"]["n"] == 2
    assert metrics["ttfet_x_isolated"]["p99"] == pytest.approx(1.0)
    assert metrics["ttfet_x_isolated_above_5"]["value"] == 0.0
    assert metrics["ttft_last_turn_s"]["p50"] == pytest.approx(0.017)
    assert any(section.name == "isolated" for section in result.sections)
    # All at once: a's first turn waits for none, b shares a's batch.
    crowd = run_simulation(trace, cluster.with_engines(1), replay="closed-loop", concurrency=3, alone=True)
    assert crowd.document["metrics"]["ttfet_x_isolated"]["p99"] > 1.5
    without = run_simulation(trace, cluster.with_engines(1))
    assert without.document["metrics"]["ttfet_x_isolated"]["reason"]
    assert not any(section.name == "isolated" for section in without.sections)
