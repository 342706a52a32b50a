"""Dynamo gets a command and a file that its own readers take, with the parameters that were simulated.

What the readers of 1.6.1 take and refuse was seen by running them: arguments of the frontend, KvRouterConfig,
and its replay.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from oracles.yaml_reader import read_yaml

from agentctl.cluster import cluster_of
from agentctl.emit import dynamo
from agentctl.emit.base import Deployment, loaded
from agentctl.errors import ConfigError
from agentctl.policies._settings import settled
from agentctl.policies.base import policy_names
from agentctl.profile import load_profile

CLUSTER = cluster_of(load_profile("h100-qwen3-8b"), 4)
OURS = [name for name in policy_names() if name.startswith("dynamo:")]


def emitted(name, params=None, cluster=CLUSTER):
    policy = loaded(cluster, name, params)
    return dynamo.emit(Deployment(settled(cluster, policy), policy, "1.6.1", 1000, 1100))


def flags_of(found):
    words = shlex.split(found.files["frontend.sh"].replace("\\\n", ""))
    assert words[:3] == ["python", "-m", "dynamo.frontend"]
    return dict(zip(words[3::2], words[4::2], strict=True))


@pytest.mark.parametrize("name", OURS)
def test_what_is_emitted_says_what_was_simulated(name):
    found, policy = emitted(name), loaded(CLUSTER, name)
    assert (found.fit, found.differences) == ("exact", ())
    flags = flags_of(found)
    assert f"--router-mode {flags['--router-mode']}" in policy.file.select
    said = {key: float(flags[flag]) for key, flag in dynamo.FLAGS.items() if flag in flags}
    assert said == policy.params


def test_the_file_says_where_hits_come_from():
    precise = read_yaml(emitted("dynamo:kv").files[dynamo.FILE])
    assert precise["router"]["use_kv_events"] is True
    assert "router_ttl_secs" not in precise["router"]
    guessed = read_yaml(emitted("dynamo:kv_approximate").files[dynamo.FILE])
    assert guessed["router"]["use_kv_events"] is False
    assert guessed["router"]["router_ttl_secs"] == 120
    assert "--kv-events-config" in emitted("dynamo:kv").engine_args
    assert not emitted("dynamo:kv_approximate").engine_args
    assert dynamo.FILE not in emitted("dynamo:round-robin").files


def test_another_lifetime_is_carried_over_and_a_capacity_is_not():
    router = replace(CLUSTER.router, index="approximate", index_params={"ttl_s": 30})
    found = emitted("dynamo:kv_approximate", cluster=replace(CLUSTER, router=router))
    assert found.fit == "exact"
    assert read_yaml(found.files[dynamo.FILE])["router"]["router_ttl_secs"] == 30
    router = replace(router, index_params={"ttl_s": 30, "capacity_tokens": 1000})
    found = emitted("dynamo:kv_approximate", cluster=replace(CLUSTER, router=router))
    assert found.fit == "nearest"
    assert "no limit" in found.differences[0]


@pytest.mark.parametrize(
    "document",
    [
        {"router": {"nope": 1}},
        {"nope": {}},
        {"router": {"router_temperature": 0.5}},
        {"router": {"use_kv_events": "yes"}},
        {"router": {"router_ttl_secs": 0}},
        {"worker_selection": {"aggregated": "other"}},
        {"worker_selection": {"aggregated": "default", "nope": 2}},
        {"worker_selection": {"instances": [{"name": "a"}]}},
        {"worker_selection": {"instances": [{"name": "a", "type": "default", "nope": 1}]}},
        {"policy_classes": [{"name": "a"}]},
    ],
)
def test_what_dynamo_refuses_is_refused(document):
    with pytest.raises(ConfigError, match=r"router-policy\.yaml"):
        dynamo.check_policy_file(document)


def test_what_dynamo_takes_is_taken():
    dynamo.check_policy_file(
        {"router": {"use_kv_events": False}, "worker_selection": {"aggregated": "default"}}
    )
    one = {"name": "a", "type": "default", "parameters": {"overlap_score_credit": 2.0}}
    dynamo.check_policy_file({"worker_selection": {"aggregated": "a", "instances": [one]}})
    dynamo.check_policy_file({"policy_classes": [{"name": "a", "quantum": 1}]})


def test_a_negative_credit_is_refused_with_its_place():
    with pytest.raises(ConfigError, match="overlap_credit: is -1"):
        emitted("dynamo:kv", {"overlap_credit": -1})


@pytest.mark.parametrize("name", OURS)
def test_flags_are_those_of_the_policy_file(name):
    policy = loaded(CLUSTER, name)
    keys = {key: param.key for key, param in policy.file.params.items()}
    assert keys == {key: flag for key, flag in dynamo.FLAGS.items() if key in keys}
    assert set(policy.params) == set(keys)
