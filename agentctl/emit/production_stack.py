"""vLLM production-stack: values for its Helm chart, of the router and of what it needs.

The chart's own schema lets unknown keys pass, so a misspelt one is lost without a word: the keys that are
written are checked here. Source: chart 0.1.12 (main of 2026-08-05) and its values.schema.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from agentctl.cluster import Cluster
from agentctl.emit._yaml import yaml_text
from agentctl.emit.base import (
    Deployment,
    Emitted,
    Header,
    Near,
    check_limits,
    check_roles,
    counterpart_of,
    fit_of,
    formula_of,
    instead_of,
    lateness,
    none_for,
    number,
    read_as,
    undeployed_signals,
)
from agentctl.errors import ConfigError
from agentctl.policies.base import Policy

NAME = "production-stack"
VERSIONS = ("0.1.12",)
FILE = "values.yaml"
NOT_IN_CHART = ("production-stack:loadaware",)  # merged after 0.1.12, whose schema refuses the name
SESSION_KEY = "x-session-id"  # ours to choose; clients send it
CONTROLLER_PORT = "9000"  # of LMCache's controller; the port that the chart opens
SCRAPE_S = 15  # engineScrapeInterval, the chart's
LOGICS = {  # formula -> routingLogic
    "round-robin": "roundrobin",
    "consistent-hash": "session",
    "kvaware": "kvaware",
    "prefixaware": "prefixaware",
}

_RING = "a session goes where its hash says, whatever the load"
_HITS = "the longest hit wins whatever the load, and little known prompts go to the lowest request rate"
_NO_LOAD = "no load is looked at: engines take turns"
NEAREST = {
    **{name: Near("production-stack:session", _RING) for name in (
        "smetric", "smetric-v1", "hybrid-sticky", "session-sticky", "sticky-least-loaded", "manual",
        "conserve", "autellix", "dualmap", "prefix-hash")},
    **{name: Near("production-stack:kvaware", _HITS) for name in (
        "lmetric", "lmetric@vllm-router", "lmetric@llm-d", "lmetric@sglang", "lmetric@dynamo", "most-hit",
        "prefix-affine", "bounded-most-hit", "cache-aware", "cache-aware-spill", "preble", "preble@aibrix",
        "aibrix-prefix-cache", "aibrix-gateway-prefix-cache", "bailian-linear", "bailian-sampled",
        "dynamo-kv", "dynamo-worker-selector", "llm-d", "llm-d-precise", "loadaware", "mooncake-conductor")},
    **{name: Near("production-stack:roundrobin", _NO_LOAD) for name in (
        "least-loaded", "least-inflight", "least-waiting", "least-kv", "least-tokens", "least-load",
        "least-ttft", "lpwl", "token-load", "polyserve", "power-of-two", "power-of-two-inflight",
        "power-of-two-tokens", "random", "vllm-dp-balancer", "vllm-dp-balancer@lmetric-artifact")},
}  # fmt: skip


class RouterSpec(Struct, forbid_unknown_fields=True):
    routingLogic: Literal[
        "roundrobin", "session", "prefixaware", "kvaware", "disaggregated_prefill",
        "disaggregated_prefill_orchestrated",
    ]  # fmt: skip
    sessionKey: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET
    engineScrapeInterval: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    requestStatsWindow: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    lmcacheControllerPort: Annotated[str, Meta(pattern="^[0-9]+$")] | UnsetType = UNSET
    replicaCount: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    extraArgs: list[str] | UnsetType = UNSET


class Values(Struct, forbid_unknown_fields=True):
    routerSpec: RouterSpec


def check_values(document: Mapping[str, Any], place: str = FILE) -> None:
    """Raise ConfigError for keys, types and words that the chart does not know, and for a missing key."""
    found = read_as(Values, document, place).routerSpec
    needed = {"session": "sessionKey", "kvaware": "lmcacheControllerPort"}.get(found.routingLogic)
    if needed and getattr(found, needed) is UNSET:
        raise ConfigError(
            "missing", place=f"{place}: routerSpec.{needed}", hint=f"{found.routingLogic} reads it"
        )


def counterpart(policy: Policy, cluster: Cluster, version: str) -> Policy | None:
    return counterpart_of(policy, cluster, NAME, NEAREST, without=NOT_IN_CHART)


def emit(deployment: Deployment) -> Emitted:
    check_limits(deployment)
    check_roles(deployment)
    theirs = counterpart(deployment.policy, deployment.cluster, deployment.version)
    if theirs is None:
        return none_for(deployment.policy, NAME)
    document = values(theirs, deployment)
    check_values(document)
    logic = document["routerSpec"]["routingLogic"]
    differences = tuple(_differences(deployment, theirs))
    why = "the router hashes it to an engine; requests without it go to the lowest request rate"
    return Emitted(
        files={FILE: yaml_text(document)},
        headers=(Header(SESSION_KEY, "one value for all requests of a session", why),)
        if logic == "session"
        else (),
        fit=fit_of(deployment.policy, theirs, differences),
        differences=differences,
        needs=tuple(_needs(deployment, theirs, logic)),
        engine_args={},
        apply=(f"helm upgrade --reuse-values -f {FILE} on the vllm-stack chart",),
    )


def values(policy: Policy, deployment: Deployment) -> dict[str, Any]:
    router, logic = deployment.cluster.router, LOGICS[formula_of(policy)]
    spec: dict[str, Any] = {"routingLogic": logic, "replicaCount": router.gateways}
    if logic == "session":
        spec["sessionKey"] = SESSION_KEY
    if "window_s" in policy.params:
        spec["requestStatsWindow"] = number(policy.params["window_s"])
    if logic == "kvaware":
        spec["lmcacheControllerPort"] = CONTROLLER_PORT
        spec["extraArgs"] = ["--kv-aware-threshold", str(number(policy.params["threshold"]))]
    if logic == "prefixaware":
        least = str(number(policy.params["min_match_characters"]))
        spec["extraArgs"] = ["--prefix-min-match-length", least]
    return {"routerSpec": spec}


def _differences(deployment: Deployment, theirs: Policy) -> list[str]:
    router, found = deployment.cluster.router, instead_of(deployment.policy, theirs, NEAREST)
    if LOGICS[formula_of(theirs)] == "kvaware":
        found += undeployed_signals(router, {"index": "precise"}, theirs)
    if LOGICS[formula_of(theirs)] == "prefixaware":
        trie = {"index": "approximate", "index_params": {"block_tokens": 32}}
        found += undeployed_signals(router, trie, theirs)
    return found


def _needs(deployment: Deployment, theirs: Policy, logic: str) -> list[str]:
    found = list(lateness(deployment.cluster.router, theirs))
    found.append("the arguments of the engines are vllmConfig.extraArgs of servingEngineSpec.modelSpec")
    if logic == "session":
        found.append("which sessions meet on one engine depends on addresses that no simulation knows")
    if logic in ("kvaware", "prefixaware"):
        found.append("routerSpec.extraArgs replaces yours: add to it what is there today")
    if logic == "kvaware":
        found.append(
            "LMCache in all engines with enableController, and its controller at port "
            f"{CONTROLLER_PORT}: set lmcacheControllerPort to yours"
        )
    return found
