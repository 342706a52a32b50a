"""llm-d gets documents that its strict decoder takes, that make sense, and that do what was simulated."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from oracles.json_schema import is_valid
from oracles.yaml_reader import read_yaml

import agentctl.emit
from agentctl.cluster import cluster_of
from agentctl.emit import llm_d
from agentctl.emit._llm_d_config import EXPERIMENTAL_ARGUMENT, check_config
from agentctl.emit._llm_d_schema import json_schema
from agentctl.emit.base import Deployment, loaded
from agentctl.emit.engine_costs import peak_prefill_tokens_per_s
from agentctl.errors import ConfigError
from agentctl.policies._settings import settled
from agentctl.policies.base import policy_names
from agentctl.profile import load_profile

CLUSTER = cluster_of(load_profile("h100-qwen3-8b"), 4)
OURS = [name for name in policy_names() if name.startswith("llm-d:")]
SCHEMA = json.loads((Path(agentctl.emit.__path__[0]) / "llmd_epp_v1alpha1.schema.json").read_text())

# The session-first example with a load gate of the project's documentation, and its prefill/decode variant.
GATED = """apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: approx-prefix-cache-producer
    parameters:
      maxPrefixTokensToMatch: 131072
  - type: inflight-load-producer
  - type: prefix-cache-affinity-filter
    parameters:
      affinityThreshold: 0.8
      maxTTFTPenaltyMs: 4000
      peakPrefillThroughput: 21000
  - type: no-hit-lru-scorer
  - type: token-load-scorer
  - type: active-request-scorer
  - type: max-score-picker
  - type: single-profile-handler
schedulingProfiles:
  - name: default
    plugins:
      - pluginRef: prefix-cache-affinity-filter
      - pluginRef: token-load-scorer
        weight: 2
      - pluginRef: active-request-scorer
        weight: 1
      - pluginRef: no-hit-lru-scorer
        weight: 1
      - pluginRef: max-score-picker
"""
SPLIT = """apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: approx-prefix-cache-producer
  - type: prefix-based-pd-decider
    parameters:
      nonCachedTokens: 2048
      promptTokens: 0
  - type: disagg-profile-handler
    parameters:
      deciders:
        prefill: prefix-based-pd-decider
  - type: prefill-filter
  - type: decode-filter
  - type: prefix-cache-scorer
  - type: max-score-picker
schedulingProfiles:
  - name: prefill
    plugins:
      - pluginRef: prefill-filter
      - pluginRef: prefix-cache-scorer
      - pluginRef: max-score-picker
  - name: decode
    plugins:
      - pluginRef: decode-filter
      - pluginRef: max-score-picker
"""


def deployment(name, params=None, cluster=CLUSTER, longest=1000):
    policy = loaded(cluster, name, params)
    return Deployment(settled(cluster, policy), policy, "0.10.0", longest, longest + 100)


def emitted(name, params=None, **more):
    return llm_d.emit(deployment(name, params, **more))


def config_of(found):
    return read_yaml(found.files["epp-config.yaml"])


def plugin(document, kind):
    return next(one for one in document["plugins"] if one["type"] == kind)


def test_the_schema_beside_the_code_is_the_code_s():
    assert json_schema() == SCHEMA


@pytest.mark.parametrize("text", [GATED, SPLIT])
def test_documents_that_the_project_shows_are_taken(text):
    document = read_yaml(text)
    assert is_valid(document, SCHEMA)
    assert check_config(document) == ()


MUTATIONS = {
    "an unknown key": lambda d: d.update(extra=1),
    "another kind": lambda d: d.update(kind="Config"),
    "another version": lambda d: d.update(apiVersion="llm-d.ai/v1"),
    "no profiles": lambda d: d.pop("schedulingProfiles"),
    "an empty list of plugins": lambda d: d.update(plugins=[]),
    "a plugin that is not there": lambda d: d["plugins"][0].update(type="prefix-producer"),
    "a misspelt parameter": lambda d: d["plugins"][2]["parameters"].update(affinityTreshold=0.8),
    "a share above 1": lambda d: d["plugins"][2]["parameters"].update(affinityThreshold=1.7),
    "a speed of 0": lambda d: d["plugins"][2]["parameters"].update(peakPrefillThroughput=0),
    "a negative time": lambda d: d["plugins"][2]["parameters"].update(maxTTFTPenaltyMs=-1),
    "text for a number": lambda d: d["plugins"][2]["parameters"].update(maxTTFTPenaltyMs="4000"),
    "a truth value for a number": lambda d: d["plugins"][0]["parameters"].update(maxPrefixTokensToMatch=True),
    "part of a token": lambda d: d["plugins"][0]["parameters"].update(maxPrefixTokensToMatch=0.5),
    "parameters of another plugin": lambda d: d["plugins"][3].update(parameters={"affinityThreshold": 0.8}),
    "a negative weight": lambda d: d["schedulingProfiles"][0]["plugins"][1].update(weight=-1),
    "a profile without a name": lambda d: d["schedulingProfiles"][0].pop("name"),
    "a key in a profile": lambda d: d["schedulingProfiles"][0].update(filters=[]),
    "a duration without a unit": lambda d: d.update(flowControl={"defaultRequestTTL": "60"}),
    "a key in flow control": lambda d: d.update(flowControl={"ttl": "60s"}),
}


def profile_of(document):
    return document["schedulingProfiles"][0]


def without_sources(document):
    parameters = {"sessionIdConfig": {"sources": [{}]}}
    document["plugins"].append({"type": "session-affinity-filter", "parameters": parameters})


def with_a_strange_producer(document):
    parameters = document["plugins"][2]["parameters"]
    parameters["prefixMatchInfoProducerName"] = "inflight-load-producer"


NONSENSE = {
    "a reference to nothing": (lambda d: profile_of(d)["plugins"][0].update(pluginRef="x"), "is called"),
    "two pickers": (
        lambda d: profile_of(d)["plugins"].append({"pluginRef": "max-score-picker"}),
        "2 pickers",
    ),
    "no picker": (lambda d: profile_of(d)["plugins"].pop(), "0 pickers"),
    "no handler": (lambda d: d["plugins"].pop(), "0 profile handlers"),
    "two handlers": (lambda d: d["plugins"].append({"type": "disagg-profile-handler"}), "2 profile handlers"),
    "no load": (lambda d: d["plugins"].pop(1), "no plugin produces"),
    "no index": (lambda d: d["plugins"].pop(0), "no plugin produces"),
    "twice the same plugin": (lambda d: d["plugins"].append({"type": "no-hit-lru-scorer"}), "two plugins"),
    "a weight of a picker": (lambda d: profile_of(d)["plugins"][-1].update(weight=1), "no scorer"),
    "a producer in a profile": (
        lambda d: profile_of(d)["plugins"].insert(0, {"pluginRef": "inflight-load-producer"}),
        "no filter",
    ),
    "a producer of another kind": (with_a_strange_producer, "which is not"),
    "two profiles under one": (
        lambda d: d["schedulingProfiles"].append({**profile_of(d), "name": "other"}),
        "has one profile",
    ),
    "a detector that is not there": (lambda d: d.update(saturationDetector={"pluginRef": "x"}), "is called"),
    "a source of nothing": (without_sources, "one of header and attribute"),
}


@pytest.mark.parametrize("what", MUTATIONS)
def test_what_the_decoder_refuses_is_refused_by_schema_and_check(what):
    document = read_yaml(GATED)
    MUTATIONS[what](document)
    assert not is_valid(document, SCHEMA)
    with pytest.raises(ConfigError, match="EndpointPickerConfig"):
        check_config(document)


@pytest.mark.parametrize("what", NONSENSE)
def test_what_could_not_work_is_refused(what):
    document = read_yaml(GATED)
    change, words = NONSENSE[what]
    change(document)
    with pytest.raises(ConfigError, match=words):
        check_config(document)


def test_profiles_are_named_as_the_handler_expects():
    document = read_yaml(SPLIT)
    document["schedulingProfiles"][0]["name"] = "first"
    with pytest.raises(ConfigError, match="no profile is called 'prefill'"):
        check_config(document)
    plugin(document, "disagg-profile-handler")["parameters"]["profiles"] = {"prefill": "first"}
    check_config(document)
    plugin(document, "disagg-profile-handler")["parameters"]["deciders"]["prefill"] = "decode-filter"
    with pytest.raises(ConfigError, match="no decider"):
        check_config(document)


def test_the_precise_index_has_to_be_named():
    document = config_of(emitted("llm-d:precise"))
    check_config(document)
    del plugin(document, "prefix-cache-scorer")["parameters"]["prefixMatchInfoProducerName"]
    with pytest.raises(ConfigError, match="approximate index"):
        check_config(document)


@pytest.mark.parametrize("name", OURS)
def test_what_is_emitted_says_the_parameters_that_were_simulated(name):
    given = deployment(name)
    found = llm_d.emit(given)
    assert (found.fit, found.differences) == ("exact", ())
    document = config_of(found)
    assert is_valid(document, SCHEMA)
    assert simulated_by(document) == {key: given.policy.params[key] for key in simulated_by(document)}
    weighted = {plugin for key, plugin in llm_d.WEIGHTS.items() if given.policy.params[key]}
    scorers = {one["type"] for one in document["plugins"] if one["type"].endswith("-scorer")}
    assert scorers == weighted, "no scorer more, no scorer less"


def simulated_by(document):
    """Parameters of our formula as the document has them."""
    found = dict.fromkeys(llm_d.WEIGHTS, 0.0)
    names = {plugin: weight for weight, plugin in llm_d.WEIGHTS.items()}
    refs = document["schedulingProfiles"][0]["plugins"]
    found |= {names[one["pluginRef"]]: one["weight"] for one in refs if "weight" in one}
    listed = {one["pluginRef"] for one in refs}
    found["session_filter"] = "session-affinity-filter" in listed
    found["affinity_filter"] = "prefix-cache-affinity-filter" in listed
    found["weighted_random"] = "weighted-random-picker" in listed
    for one in document["plugins"]:
        for key, ours in llm_d.SETTINGS.get(one["type"], {}).items():
            found[ours] = one["parameters"][key]
        if one["type"].startswith("session-affinity"):
            found["session_ttl_s"] = one["parameters"]["sessionIdConfig"]["evictionTtlSeconds"]
    return found


def test_other_parameters_are_carried_over():
    params = {"max_ttft_penalty_ms": 4000, "peak_prefill_throughput": 21_000, "no_hit_lru_weight": 0.5}
    document = config_of(emitted("llm-d:affinity", params))
    assert simulated_by(document).items() >= params.items()
    params = {"session_filter": 0, "session_weight": 3, "weighted_random": 1, "session_ttl_s": 3600}
    document = config_of(emitted("llm-d:session_affinity", params))
    assert simulated_by(document).items() >= params.items()


def test_the_longest_prompt_is_matched_whole():
    cluster = replace(CLUSTER, pools=(replace(CLUSTER.pools[0], kv_blocks=100_000, max_model_len=None),))
    document = config_of(emitted("llm-d:affinity", cluster=cluster, longest=1000))
    assert plugin(document, "approx-prefix-cache-producer")["parameters"]["maxPrefixTokensToMatch"] == 131_072
    document = config_of(emitted("llm-d:affinity", cluster=cluster, longest=200_001))
    assert plugin(document, "approx-prefix-cache-producer")["parameters"]["maxPrefixTokensToMatch"] == 200_064


def test_the_index_is_as_large_as_simulated():
    params = {"block_tokens": 128, "capacity_tokens": 1_280_000}
    cluster = replace(CLUSTER, router=replace(CLUSTER.router, index="approximate", index_params=params))
    found = emitted("llm-d:affinity", cluster=cluster)
    assert found.fit == "exact"
    index = plugin(config_of(found), "approx-prefix-cache-producer")["parameters"]
    assert (index["blockSizeTokens"], index["lruCapacityPerServer"], index["autoTune"]) == (
        128,
        10_000,
        False,
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"index": "approximate", "index_params": {"block_tokens": 16}}, "blocks of 64"),
        ({"index": "approximate", "index_params": {"ttl_s": 60}}, "by age"),
        ({"index": "approximate", "index_params": {"eviction": "tail"}}, "first block first"),
        ({"index": "approximate", "index_params": {"match": "contiguous"}}, "across engines"),
    ],
)
def test_an_index_that_llm_d_does_not_have_is_a_difference(settings, words):
    cluster = replace(CLUSTER, router=replace(CLUSTER.router, **settings))
    found = emitted("llm-d:affinity", cluster=cluster)
    assert found.fit == "nearest"
    assert any(words in one for one in found.differences), found.differences


def test_fresh_metrics_matter_where_metrics_are_read():
    cluster = replace(CLUSTER, router=replace(CLUSTER.router, metrics_interval_s=0.0))
    assert emitted("llm-d:affinity", cluster=cluster).fit == "exact", "it reads none"
    found = emitted("llm-d:default", cluster=cluster)
    assert found.fit == "nearest"
    assert "metrics_interval_s was simulated as 0.0, deployed it is 0.05" in found.differences
    slower = replace(CLUSTER, router=replace(CLUSTER.router, metrics_interval_s=1.0))
    found = emitted("llm-d:default", cluster=slower)
    assert found.fit == "exact"
    assert "--refresh-metrics-interval=1000ms" in found.files["epp-arguments.txt"]


def test_sessions_need_a_header_and_an_argument():
    found = emitted("llm-d:session_affinity")
    assert [header.name for header in found.headers] == ["x-session-id"]
    assert EXPERIMENTAL_ARGUMENT in found.files["epp-arguments.txt"].splitlines()
    found = emitted("llm-d:affinity")
    assert found.headers == ()
    assert "epp-arguments.txt" not in found.files, "it reads no metric and needs no argument"


def test_events_are_asked_of_engines_only_where_they_are_read():
    assert "--kv-events-config" in emitted("llm-d:precise").engine_args
    assert not emitted("llm-d:affinity").engine_args
    assert not emitted("llm-d:active_request").engine_args


def test_smetric_becomes_the_gate_with_the_calibrated_speed():
    smetric = loaded(CLUSTER, "smetric")
    theirs = llm_d.counterpart(smetric, CLUSTER, "0.10.0")
    peak = round(peak_prefill_tokens_per_s(CLUSTER.pools[0].profile))
    assert theirs.name == "llm-d:affinity"
    assert theirs.params["peak_prefill_throughput"] == peak
    assert theirs.params["max_ttft_penalty_ms"] == 4000
    found = llm_d.emit(Deployment(settled(CLUSTER, theirs), theirs, "0.10.0", 1000, 1100))
    assert found.fit == "exact", "what was simulated as deployed is deployed"
    assert simulated_by(config_of(found))["peak_prefill_throughput"] == peak
    paper = llm_d.emit(Deployment(settled(CLUSTER, smetric), smetric, "0.10.0", 1000, 1100))
    assert paper.fit == "nearest"
    assert "llm-d:affinity instead of smetric" in paper.differences[0]


def test_chart_values_hold_the_same_document():
    found = emitted("llm-d:affinity")
    epp = read_yaml(found.files["values.yaml"])["router"]["epp"]
    assert epp["pluginsCustomConfig"][epp["pluginsConfigFile"]] == found.files["epp-config.yaml"]


def test_a_hostile_model_name_stays_text():
    name = 'x"\nplugins: []\n#\u2028'
    pool = CLUSTER.pools[0]
    cluster = replace(CLUSTER, pools=(replace(pool, profile=replace(pool.profile, model=name)),))
    document = config_of(emitted("llm-d:precise", cluster=cluster))
    assert plugin(document, "token-producer")["parameters"]["modelName"] == name
    ours = config_of(emitted("llm-d:precise"))
    expected = copy.deepcopy(ours)
    plugin(expected, "token-producer")["parameters"]["modelName"] = name
    assert document == expected


KEY = re.compile(r"(?:schedulingProfiles\[\]\.)?plugins\[([a-z-]+)\](?:\.(.+))?")


@pytest.mark.parametrize("name", OURS)
def test_parameters_stand_where_the_policy_file_says(name):
    """The keys of the policy file, followed through the document, lead to the values that were simulated."""
    given = deployment(name)
    document, found = config_of(llm_d.emit(given)), 0
    for key, param in given.policy.file.params.items():
        kind, rest = KEY.fullmatch(param.key).groups()
        listed = [one for one in document["plugins"] if one["type"] == kind]
        scheduled = [one for one in profile_of(document)["plugins"] if one["pluginRef"] == kind]
        if not listed:
            continue
        if rest == "weight":
            assert scheduled[0]["weight"] == given.policy.params[key]
        elif rest is None:
            assert bool(scheduled) == bool(given.policy.params[key])
        else:
            value = listed[0]
            for step in rest.split("."):
                value = value[step]
            assert value == given.policy.params[key]
        found += 1
    assert found, "something is configured"


def test_part_of_a_request_is_refused_with_its_place():
    with pytest.raises(ConfigError, match="idleThreshold"):
        emitted("llm-d:active_request", {"idle_threshold": 0.5})


def test_a_speed_that_the_profile_does_not_know_is_said_to_be_not_calibrated():
    pool = CLUSTER.pools[0]
    profile = replace(pool.profile, provenance={"predictive_only": True})
    cluster = replace(CLUSTER, pools=(replace(pool, profile=profile),))
    theirs = llm_d.counterpart(loaded(CLUSTER, "smetric"), cluster, "0.10.0")
    assert theirs.params["peak_prefill_throughput"] == 15_928
    assert any("not calibrated" in need for need in emitted("llm-d:affinity", cluster=cluster).needs)
