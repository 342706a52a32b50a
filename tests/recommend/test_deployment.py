"""What is recommended on a router can be deployed there, and what is deployed is what was simulated."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pytest
from oracles.datasets import write_dataset
from oracles.yaml_reader import read_yaml

from agentctl.cluster import load_cluster, parse_cluster
from agentctl.emit.base import counterpart_of, loaded
from agentctl.emit.llm_d import NEAREST, WEIGHTS
from agentctl.errors import ConfigError
from agentctl.policies.base import load_policy
from agentctl.recommend import recommend
from agentctl.recommend.deployment import kv_residency_s, session_lifetimes_s
from agentctl.recommend.grid import axis
from agentctl.sim.driver import simulate
from agentctl.simulate import run_simulation
from agentctl.workload import compile_workload

ENGINE = {
    "name": "main",
    "engines": 2,
    "block_tokens": 16,
    "kv_blocks": 4000,
    "batch_time": {"model": "hinge", "b0": 5e-3, "b_prefill": 2e-4, "b_decode": 1e-4},
}
CLUSTER = parse_cluster({"schema": "agentctl/cluster/1", "pool": [ENGINE]}, "c.toml")


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """24 sessions of 4 turns, each turn 160 tokens longer, in 8 minutes."""
    rng = np.random.default_rng(5)
    rows = []
    for session, start in enumerate(np.sort(rng.uniform(0, 480, size=24))):
        for turn in range(4):
            blocks = [1000 * session + block for block in range(1, 101 + 10 * turn)]
            row = {"arrival_s": float(start + 8 * turn), "session_id": f"s{session:02}", "blocks": blocks}
            rows.append({**row, "output_tokens": 20, "e2e_s": 2.0})
    return write_dataset(tmp_path_factory.mktemp("traces") / "agents.trace", rows, block_tokens=16)


def asked(trace, **more):
    given = {"cluster": CLUSTER, "slos": ["ttft p90 < 1s"], "replicates": 4, "sensitivity": False, **more}
    return recommend(trace, **given)


@pytest.fixture(scope="module")
def on_llm_d(trace):
    return asked(trace, policies=["smetric", "round-robin"], router="llm-d")


def test_only_what_the_router_does_is_recommended(on_llm_d):
    document = on_llm_d.document
    names = [candidate["policy"] for candidate in document["candidates"]]
    assert names == ["smetric", "round-robin", "llm-d:affinity for smetric", "llm-d:default for round-robin"]
    assert document["verdict"]["policy"] in names[2:]
    deploy = document["deploy"]
    assert (deploy["target"], deploy["version"]) == ("llm-d", "0.10.0")
    assert [one["deployed_as"] for one in deploy["deployed_as"]] == names[2:]
    assert "deploy" in [section.name for section in on_llm_d.sections]


def test_the_nearest_is_simulated_as_the_router_would_do_it(on_llm_d):
    """The row of the nearest has the parameters of the counterpart, among them the calibrated speed."""
    row = next(one for one in on_llm_d.document["candidates"] if one["policy"].endswith("for smetric"))
    smetric = loaded(CLUSTER, "smetric")
    theirs = counterpart_of(smetric, CLUSTER, "llm-d", NEAREST)
    assert row["params"] | {"peak_prefill_throughput": 0} == theirs.params | {"peak_prefill_throughput": 0}
    assert row["params"]["peak_prefill_throughput"] != theirs.params["peak_prefill_throughput"]


def test_one_row_stands_for_all_that_come_to_the_same(trace):
    result = asked(trace, policies=["lmetric", "prefix-affine", "dynamo:kv"], router="dynamo")
    names = [candidate["policy"] for candidate in result.document["candidates"]]
    assert names == ["lmetric", "prefix-affine", "dynamo:kv", "round-robin"]
    assert {one["deployed_as"] for one in result.document["deploy"]["deployed_as"]} == {"dynamo:kv"}


def test_what_was_simulated_is_what_is_emitted(trace, on_llm_d, tmp_path):
    files = {name: content.decode() for name, content in on_llm_d.files.items() if name.startswith("deploy/")}
    assert on_llm_d.document["deploy"]["not_yet"] is None
    policy = tomllib.loads(files["deploy/policy.toml"])
    chosen = on_llm_d.document["verdict"]
    assert {key: param.get("value") for key, param in policy["params"].items()} == chosen["params"]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    again = run_simulation(trace, load_cluster(tmp_path / "deploy/simulated/cluster.toml"))
    row = next(one for one in on_llm_d.document["candidates"] if one["policy"] == chosen["policy"])
    assert again.document["params"] == row["params"]


def test_a_verdict_that_carries_no_rollout_has_no_files_to_apply(trace):
    """Declined: deploy/ says so, and holds nothing that could be applied."""
    result = asked(trace, policies=["llm-d:affinity"], router="llm-d", strict=True)
    assert result.document["verdict"]["status"] == "declined"
    assert result.document["deploy"]["not_yet"] == "the verdict is: declined"
    readme = result.files["deploy/README.md"].decode()
    assert "Nothing here can be applied" in readme
    assert not any(name.startswith(("deploy/router/", "deploy/engines/")) for name in result.files)
    assert "deploy/policy.toml" in result.files


def test_without_a_router_nothing_stands_for_anything(trace):
    result = asked(trace, policies=["smetric", "round-robin"])
    assert [one["policy"] for one in result.document["candidates"]] == ["smetric", "round-robin"]
    assert result.document["deploy"]["target"] is None
    assert result.document["deploy"]["deployed_as"] == []
    assert "deploy" not in [section.name for section in result.sections]


def test_a_reference_that_was_not_asked_for_needs_no_counterpart(trace):
    result = asked(trace, policies=["llm-d:affinity"], router="llm-d@0.10.0")
    assert [one["policy"] for one in result.document["candidates"]] == ["llm-d:affinity", "round-robin"]


def test_nothing_to_deploy_is_said_and_not_guessed(trace):
    result = asked(trace, policies=["oracle-least-ttft"], router="llm-d")
    assert result.document["verdict"]["policy"] is None
    assert "can be deployed" in result.document["verdict"]["statement"]
    assert result.document["deploy"] is None
    assert result.exit_code == 3


@pytest.mark.parametrize("router", ["nginx", "llm-d@9.9", "dynamo@"])
def test_a_router_that_is_not_known_is_refused_before_anything_runs(trace, router):
    if router == "dynamo@":
        with pytest.raises(ConfigError, match="version ''"):
            asked(trace, router=router)
    else:
        with pytest.raises(ConfigError, match="--router"):
            asked(trace, router=router)


def test_a_trace_that_does_not_fit_the_engines_is_refused_before_anything_runs(trace):
    small = parse_cluster(
        {"schema": "agentctl/cluster/1", "pool": [{**ENGINE, "max_model_len": 500}]}, "c.toml"
    )
    with pytest.raises(ConfigError, match="max_model_len is 500"):
        asked(trace, cluster=small, router="llm-d")


def test_a_setting_that_was_tried_and_cannot_be_deployed_is_said_so(trace):
    """Engines that are too short for the trace win nothing, but may be compared."""
    result = asked(
        trace, policies=["llm-d:active_request"], router="llm-d", vary_settings=[axis("max_model_len=1700")]
    )
    chosen = result.document["verdict"]
    assert chosen["policy"] == "llm-d:active_request"
    readme = result.files["deploy/README.md"].decode()
    assert "Nothing here can be applied" in readme
    v11 = next(check for check in result.document["validity"] if check["id"] == "V11")
    assert v11["status"] in ("WARN", "FAIL")


def test_the_same_question_gives_the_same_bytes(trace, on_llm_d):
    again = asked(trace, policies=["smetric", "round-robin"], router="llm-d")
    assert again.files == on_llm_d.files
    assert again.document == on_llm_d.document


def test_thresholds_come_from_the_runs_own_resamples(on_llm_d):
    canary = json.loads(on_llm_d.files["deploy/canary.json"])
    by_key = {one["key"]: one for one in canary["watch"]}
    chosen = on_llm_d.document["verdict"]["policy"]
    row = next(one for one in on_llm_d.document["candidates"] if one["policy"] == chosen)
    at_trace = next(one for one in row["at_load"] if one["load"] == 1)
    assert by_key["ttft_p95_s"]["value"] == at_trace["ttft_p95_s"]
    assert by_key["ttft_p95_s"]["low"] <= by_key["ttft_p95_s"]["value"] <= by_key["ttft_p95_s"]["high"]
    assert by_key["ttft_p95_s"]["threshold"] == by_key["ttft_p95_s"]["high"]
    assert by_key["hit_ratio"]["threshold"] == by_key["hit_ratio"]["low"]


def test_sessions_and_kv_live_as_long_as_simulated(trace):
    workload = compile_workload(trace)
    outcome = simulate(workload, CLUSTER, load_policy("round-robin"))
    lifetimes = session_lifetimes_s(outcome)
    assert lifetimes.size == 24
    mine = workload.requests.session == 3
    assert lifetimes[3] == pytest.approx(outcome.finish_s[mine].max() - outcome.arrival_s[mine].min())
    written = outcome.computed_prefill_tokens.sum() + workload.requests.output_tokens.sum()
    room = 2 * 3999 * 16
    assert kv_residency_s(outcome, CLUSTER, 100.0) == pytest.approx(room * 100 / written)


def test_the_endpoint_picker_gets_the_parameters_of_the_verdict(on_llm_d):
    document = read_yaml(on_llm_d.files["deploy/router/epp-config.yaml"].decode())
    params = on_llm_d.document["verdict"]["params"]
    weighted = {one["pluginRef"]: one["weight"] for one in document["schedulingProfiles"][0]["plugins"][:-1]
                if "weight" in one}  # fmt: skip
    assert weighted == {plugin: params[key] for key, plugin in WEIGHTS.items() if params[key]}
