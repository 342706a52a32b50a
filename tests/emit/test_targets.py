"""What every target must do, and how targets are found."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from agentctl.cluster import cluster_of
from agentctl.emit.base import (
    Deployment,
    Near,
    check_limits,
    command,
    counterpart_of,
    find_target,
    loaded,
    targets,
)
from agentctl.errors import ConfigError
from agentctl.policies._settings import settled
from agentctl.policies.base import load_policy, policy_names
from agentctl.profile import load_profile

CLUSTER = cluster_of(load_profile("h100-qwen3-8b"), 4)


def deployment(policy="round-robin", cluster=CLUSTER, longest_prompt=1000, longest_total=1200):
    return Deployment(cluster, load_policy(policy), "1", longest_prompt, longest_total)


@pytest.mark.parametrize("policy", [name for name in policy_names() if name.startswith("vllm-router:")])
def test_a_policy_of_the_router_is_its_own_counterpart(policy):
    ours = load_policy(policy)
    assert counterpart_of(ours, CLUSTER, "vllm-router", {}) is ours


def test_a_formula_that_the_router_has_needs_no_table():
    ours = load_policy("round-robin")
    assert counterpart_of(ours, CLUSTER, "dynamo", {}) is ours, "it reads no signal: both do the same"


def test_another_threshold_is_carried_over_and_another_fixed_value_is_not():
    ours = load_policy("vllm-router:kv_aware", {"temperature": 0.5})
    assert counterpart_of(ours, CLUSTER, "vllm-router", {}) is ours
    ours = load_policy("vllm-router:consistent_hash", {"virtual_nodes": 7})
    theirs = counterpart_of(ours, CLUSTER, "vllm-router", {})
    assert (theirs.name, theirs.params) == ("vllm-router:consistent_hash", {"virtual_nodes": 160})


def test_another_tie_rule_is_not_what_the_router_does():
    ours = load_policy("vllm-router:kv_aware", tie="random")
    assert counterpart_of(ours, CLUSTER, "vllm-router", {}).tie == "first"


def test_a_formula_without_a_counterpart_takes_the_table_or_none():
    ours, near = load_policy("lmetric"), {"lmetric": Near("vllm-router:kv_aware:temperature=0.5", "words")}
    assert counterpart_of(ours, CLUSTER, "vllm-router", near).params == {"temperature": 0.5}
    assert counterpart_of(ours, CLUSTER, "vllm-router", {}) is None


@pytest.mark.parametrize("name", policy_names())
@pytest.mark.parametrize("target", sorted(targets()))
def test_every_policy_has_a_fit_in_every_target_and_never_another_one(target, name):
    """Exact, nearest or none, as `counterpart` says; what is near is itself exact: it can be simulated."""
    program = targets()[target]
    version, ours = program.VERSIONS[0], loaded(CLUSTER, name)
    theirs = program.counterpart(ours, CLUSTER, version)
    found = program.emit(Deployment(settled(CLUSTER, ours), ours, version, 1000, 1200))
    if theirs is None:
        assert (found.fit, found.files) == ("none", {})
        return
    assert found.fit == ("exact" if theirs is ours else "nearest")
    assert bool(found.differences) == (found.fit == "nearest")
    deployed = Deployment(settled(CLUSTER, theirs), theirs, version, 1000, 1200)
    assert program.counterpart(theirs, CLUSTER, version) is theirs
    again = program.emit(deployed)
    assert again.fit == "exact", again.differences
    assert again == program.emit(deployed), "the same bytes"
    assert all(text.endswith("\n") for text in again.files.values())


@pytest.mark.parametrize("target", sorted(targets()))
def test_what_reads_the_future_has_no_counterpart(target):
    program = targets()[target]
    assert program.counterpart(load_policy("oracle-conserve"), CLUSTER, program.VERSIONS[0]) is None


@pytest.mark.parametrize("target", sorted(targets()))
def test_no_target_emits_for_a_trace_that_does_not_fit(target):
    program = targets()[target]
    too_long = 10 * CLUSTER.pools[0].kv_blocks * CLUSTER.pools[0].block_tokens
    name = next(name for name in policy_names() if name.startswith(f"{target}:"))
    ours = loaded(CLUSTER, name)
    with pytest.raises(ConfigError, match="of the trace"):
        program.emit(Deployment(settled(CLUSTER, ours), ours, program.VERSIONS[0], too_long, too_long))


def test_an_unknown_target_or_version_says_which_there_are():
    with pytest.raises(ConfigError, match="'nginx' is no target"):
        find_target("nginx")
    for name, target in targets().items():
        assert find_target(name) == (target, target.VERSIONS[0])
        assert find_target(f"{name}@{target.VERSIONS[-1]}")[1] == target.VERSIONS[-1]
        with pytest.raises(ConfigError, match="is not known"):
            find_target(f"{name}@0.0.0-nothing")


def test_no_limit_may_be_below_the_longest_request():
    pool = replace(CLUSTER.pools[0], kv_blocks=101, block_tokens=16, max_model_len=1601)
    cluster = replace(CLUSTER, pools=(pool,))  # 100 usable blocks: 1600 tokens, and the last needs no place
    check_limits(deployment(cluster=cluster, longest_total=1601))
    with pytest.raises(ConfigError, match="max_model_len is 1,601") as error:
        check_limits(deployment(cluster=cluster, longest_total=1602))
    assert error.value.expected == "at least 1602"
    unlimited = replace(CLUSTER, pools=(replace(pool, max_model_len=None),))
    with pytest.raises(ConfigError, match="needs 1,601") as error:
        check_limits(deployment(cluster=unlimited, longest_total=1602))
    assert error.value.expected == "at least 102 blocks of 16 tokens"


def test_a_command_survives_the_shell():
    words = ["router", "--name", "a'b; rm -rf /", "--switch", "--path", "$(date)"]
    assert shlex.split(command(words).replace("\\\n", "")) == words
    assert command(words).count("\n") == 4


@pytest.mark.parametrize("target", sorted(targets()))
def test_every_target_and_its_version_is_documented(target):
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| `") and f"`{target}`" in line)
    assert targets()[target].VERSIONS[0] in row
