"""NVIDIA Dynamo's frontend: its command and, for the KV router, the file of --router-policy-config.

Settings of the router stand in the file. Parameters of its cost are flags, which 1.6.1 calls deprecated and
takes, while its own replay refuses them in the file. Source: the wheels of 1.6.1; the frontend's arguments
and the file's reader were run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from agentctl.cluster import Cluster, IndexParams, own_index
from agentctl.emit._yaml import yaml_text
from agentctl.emit.base import (
    Deployment,
    Emitted,
    Near,
    check_limits,
    check_roles,
    command,
    counterpart_of,
    fit_of,
    formula_of,
    instead_of,
    lateness,
    none_for,
    number,
    read_as,
)
from agentctl.errors import ConfigError
from agentctl.policies.base import Policy

NAME = "dynamo"
VERSIONS = ("1.6.1",)
FILE = "router-policy.yaml"
HOST_CREDIT = 0.75  # of a block in an engine's KV tiers: what Dynamo gives host memory, as simulated
TTL_S = 120.0  # of the approximate index, its default
MODES = {  # formula -> --router-mode
    "round-robin": "round-robin",
    "random": "random",
    "power-of-two-inflight": "power-of-two",
    "least-inflight": "least-loaded",
    "dynamo-worker-selector": "kv",
}
FLAGS = {  # of the KV router's cost
    "overlap_credit": "--router-kv-overlap-score-credit",
    "overlap_credit_decay": "--router-kv-overlap-score-credit-decay",
    "prefill_load_scale": "--router-prefill-load-scale",
    "request_weight": "--router-decode-active-request-weight",
    "temperature": "--router-temperature",
}

_KV = "blocks to prefill plus active blocks, hits deducted"
_DRAWN_BACK = f"sessions are not bound, their blocks draw them back: {_KV}"
_NO_GATE = f"nothing bounds the load of an engine that holds the prompt: {_KV}"
_COUNTS = "only this frontend's own requests in flight are counted"
NEAREST = {
    **{name: Near("dynamo:kv", _NO_GATE) for name in (
        "smetric", "smetric-v1", "bounded-most-hit", "cache-aware", "cache-aware-spill", "dualmap", "preble",
        "preble@aibrix", "aibrix-prefix-cache", "aibrix-gateway-prefix-cache")},
    **{name: Near("dynamo:kv", _DRAWN_BACK) for name in (
        "session-sticky", "sticky-least-loaded", "manual", "consistent-hash", "conserve", "autellix",
        "hybrid-sticky")},
    **{name: Near("dynamo:kv", f"a sum, not a product: {_KV}") for name in (
        "lmetric", "lmetric@vllm-router", "lmetric@llm-d", "lmetric@sglang", "lmetric@dynamo")},
    **{name: Near("dynamo:kv", f"in blocks: {_KV}") for name in (
        "dynamo-kv", "bailian-linear", "llm-d-precise", "llm-d", "loadaware", "lpwl", "least-ttft",
        "mooncake-conductor", "polyserve")},
    "bailian-sampled": Near("dynamo:kv:temperature=1", f"drawn by a softmax of {_KV}"),
    **{name: Near("dynamo:kv", f"load counts too: {_KV}") for name in (
        "most-hit", "prefix-affine", "kvaware", "prefixaware", "prefix-hash")},
    **{name: Near("dynamo:kv:overlap_credit=0", "the router's own blocks stand for the engines' tokens")
       for name in ("token-load", "least-tokens", "least-load", "least-kv")},
    **{name: Near("dynamo:least-loaded", _COUNTS) for name in (
        "least-loaded", "least-waiting", "vllm-dp-balancer", "vllm-dp-balancer@lmetric-artifact")},
    "power-of-two": Near("dynamo:power-of-two", _COUNTS),
    "power-of-two-tokens": Near("dynamo:power-of-two", _COUNTS),
}  # fmt: skip

Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(gt=0)]


class Settings(Struct, forbid_unknown_fields=True):
    """`router:` of the file."""

    host_cache_hit_weight: Share | UnsetType = UNSET
    disk_cache_hit_weight: Share | UnsetType = UNSET
    use_kv_events: bool | UnsetType = UNSET
    router_replica_sync: bool | UnsetType = UNSET
    router_track_active_blocks: bool | UnsetType = UNSET
    router_track_output_blocks: bool | UnsetType = UNSET
    router_assume_kv_reuse: bool | UnsetType = UNSET
    router_track_prefill_tokens: bool | UnsetType = UNSET
    router_prefill_load_model: Literal["none", "ais"] | UnsetType = UNSET
    router_ttl_secs: Seconds | UnsetType = UNSET
    router_approximate_cache_policy: Literal["ttl", "lru"] | UnsetType = UNSET
    router_event_threads: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    use_remote_indexer: bool | UnsetType = UNSET
    serve_indexer: bool | UnsetType = UNSET
    enable_session_prefix_index: bool | UnsetType = UNSET
    shared_cache_type: Literal["none", "hicache"] | UnsetType = UNSET
    router_predicted_ttl_secs: Seconds | UnsetType = UNSET


class Instance(Struct, forbid_unknown_fields=True):
    name: str
    type: str
    parameters: dict[str, Any] | UnsetType = UNSET


class Selection(Struct, forbid_unknown_fields=True):
    aggregated: str | UnsetType = UNSET
    prefill: str | UnsetType = UNSET
    decode: str | UnsetType = UNSET
    encode: str | UnsetType = UNSET
    instances: list[Instance] | UnsetType = UNSET


class PolicyClass(Struct):
    """Of the router's queue; what else it takes is not written here."""

    name: str
    quantum: Annotated[int, Meta(ge=1)]


class PolicyFile(Struct, forbid_unknown_fields=True):
    router: Settings | UnsetType = UNSET
    worker_selection: Selection | UnsetType = UNSET
    policy_classes: list[PolicyClass] | UnsetType = UNSET
    default_policy_family: str | UnsetType = UNSET
    uncached_isl_buckets: list[dict[str, Any]] | UnsetType = UNSET
    models: dict[str, Any] | UnsetType = UNSET
    request_classifier: Any | UnsetType = UNSET


def check_policy_file(document: Mapping[str, Any], place: str = FILE) -> None:
    """Raise ConfigError for what Dynamo 1.6.1 refuses: keys, types, a selection that names no instance."""
    found = read_as(PolicyFile, document, place)
    selection = found.worker_selection or Selection()
    instances = {one.name for one in selection.instances or []} | {"default"}
    for stage in ("aggregated", "prefill", "decode", "encode"):
        chosen = getattr(selection, stage)
        if chosen is not UNSET and chosen not in instances:
            raise ConfigError(f"{chosen!r} is no instance", place=f"{place}: worker_selection.{stage}")


def counterpart(policy: Policy, cluster: Cluster, version: str) -> Policy | None:
    return counterpart_of(policy, cluster, NAME, NEAREST)


def emit(deployment: Deployment) -> Emitted:
    check_limits(deployment)
    check_roles(deployment)
    theirs = counterpart(deployment.policy, deployment.cluster, deployment.version)
    if theirs is None:
        return none_for(deployment.policy, "Dynamo")
    mode = MODES[formula_of(theirs)]
    words = ["python", "-m", "dynamo.frontend", "--router-mode", mode]
    files: dict[str, str] = {}
    if mode == "kv":
        words += ["--kv-cache-block-size", str(deployment.cluster.pools[0].block_tokens)]
        for key, flag in FLAGS.items():
            if theirs.params[key] < 0:
                raise ConfigError(
                    f"is {theirs.params[key]:g}", place=f"{theirs.name}: {key}", expected=">= 0"
                )
            words += [flag, str(number(theirs.params[key]))]
        words += ["--router-policy-config", FILE]
        document = policy_file(deployment)
        check_policy_file(document)
        files[FILE] = yaml_text(document)
    differences = tuple(_differences(deployment, theirs, mode))
    events = mode == "kv" and deployment.cluster.router.index != "approximate"
    return Emitted(
        files={"frontend.sh": command(words), **files},
        headers=(),
        fit=fit_of(deployment.policy, theirs, differences),
        differences=differences,
        needs=tuple(_needs(deployment, theirs)),
        engine_args={"--kv-events-config": '{"enable_kv_cache_events":true,"publisher":"zmq"}'}
        if events
        else {},
        apply=("start the frontend with the command in frontend.sh, in the folder of its files",),
    )


def policy_file(deployment: Deployment) -> dict[str, Any]:
    """For the KV router, with what was simulated said in full."""
    precise = deployment.cluster.router.index != "approximate"
    settings: dict[str, Any] = {
        "use_kv_events": precise,
        "router_track_active_blocks": True,
        "router_track_prefill_tokens": True,
        "router_track_output_blocks": False,
        "router_assume_kv_reuse": True,
        "host_cache_hit_weight": HOST_CREDIT,
    }
    if not precise:
        settings["router_ttl_secs"] = _own_index(deployment).ttl_s or TTL_S
    return {"router": settings, "worker_selection": {"aggregated": "default"}}


def _own_index(deployment: Deployment) -> IndexParams:
    return own_index(deployment.cluster.router) or IndexParams()


def _differences(deployment: Deployment, theirs: Policy, mode: str) -> list[str]:
    found = instead_of(deployment.policy, theirs, NEAREST)
    if mode == "kv" and deployment.cluster.router.index == "approximate":
        index, block = _own_index(deployment), deployment.cluster.pools[0].block_tokens
        if index.ttl_s is None:
            found.append(f"the index forgets after {TTL_S:g} s, simulated was one that does not")
        if index.capacity_tokens is not None:
            found.append("the index has no limit of its own, simulated was one")
        if index.block_tokens not in (None, block):
            found.append(f"the index counts blocks of {block} tokens, simulated were {index.block_tokens}")
        if index.match != "contiguous":
            found.append("the index matches each engine by itself, simulated was any_engine")
    return found


def _needs(deployment: Deployment, theirs: Policy) -> list[str]:
    found = list(lateness(deployment.cluster.router, theirs))
    if deployment.cluster.router.gateways > 1:
        n = deployment.cluster.router.gateways
        found.append(f"{n} frontends that do not synchronise (router_replica_sync off)")
    return found
