"""production-stack gets values whose keys are checked, because its chart does not check them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from oracles.yaml_reader import read_yaml

from agentctl.cluster import cluster_of
from agentctl.emit import production_stack
from agentctl.emit.base import Deployment, loaded
from agentctl.errors import ConfigError
from agentctl.policies._settings import settled
from agentctl.profile import load_profile

CLUSTER = cluster_of(load_profile("h100-qwen3-8b"), 4)
OURS = ("roundrobin", "session", "kvaware", "prefixaware")


def emitted(name, params=None, cluster=CLUSTER):
    policy = loaded(cluster, name, params)
    return production_stack.emit(Deployment(settled(cluster, policy), policy, "0.1.12", 1000, 1100))


def spec_of(found):
    return read_yaml(found.files["values.yaml"])["routerSpec"]


@pytest.mark.parametrize("logic", OURS)
def test_every_logic_of_the_chart_is_exact(logic):
    found = emitted(f"production-stack:{logic}")
    assert (found.fit, found.differences) == ("exact", ())
    assert spec_of(found)["routingLogic"] == logic


def test_parameters_are_where_the_router_reads_them():
    spec = spec_of(emitted("production-stack:kvaware", {"threshold": 500, "window_s": 30}))
    assert spec["requestStatsWindow"] == 30
    assert spec["extraArgs"] == ["--kv-aware-threshold", "500"]
    spec = spec_of(emitted("production-stack:prefixaware", {"min_match_characters": 256}))
    assert spec["extraArgs"] == ["--prefix-min-match-length", "256"]


def test_sessions_need_the_header_that_the_values_name():
    found = emitted("production-stack:session")
    assert [header.name for header in found.headers] == [spec_of(found)["sessionKey"]]


def test_what_is_not_in_the_chart_is_not_emitted():
    found = emitted("production-stack:loadaware")
    assert found.fit == "nearest"
    assert "loadaware" not in found.files["values.yaml"]


def test_each_gateway_is_a_replica():
    router = replace(CLUSTER.router, gateways=3)
    assert (
        spec_of(emitted("production-stack:session", cluster=replace(CLUSTER, router=router)))["replicaCount"]
        == 3
    )


@pytest.mark.parametrize(
    "spec",
    [
        {"routingLogc": "session"},
        {"routingLogic": "loadaware"},
        {"routingLogic": "roundrobin", "sessionkey": "x"},
        {"routingLogic": "roundrobin", "requestStatsWindow": "60"},
        {"routingLogic": "roundrobin", "replicaCount": 0},
        {"routingLogic": "session"},
        {"routingLogic": "kvaware"},
        {"routingLogic": "kvaware", "lmcacheControllerPort": 9000},
    ],
)
def test_what_the_chart_would_lose_or_refuse_is_refused(spec):
    with pytest.raises(ConfigError, match=r"values\.yaml"):
        production_stack.check_values({"routerSpec": spec})


def test_a_window_that_is_no_whole_number_is_refused():
    with pytest.raises(ConfigError, match="requestStatsWindow"):
        emitted("production-stack:kvaware", {"window_s": 30.5})
