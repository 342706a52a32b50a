"""sglang-router: flags and a script that starts it.

Source of flags, choices and ranges: the program's own parser and what it refuses at its start, version 0.3.2.
"""

from __future__ import annotations

from typing import Any

from agentctl.cluster import Cluster
from agentctl.emit._rust_router import (
    CHARACTER_TREE,
    COUNT,
    POSITIVE,
    SHARE,
    Command,
    Flag,
    Program,
    apply_words,
    gateway_needs,
    own_flags,
    own_policy,
    router_files,
    signal_differences,
    tree_size,
    whole_seconds,
)
from agentctl.emit.base import (
    Deployment,
    Emitted,
    Header,
    Near,
    check_limits,
    check_roles,
    counterpart_of,
    fit_of,
    instead_of,
    none_for,
)
from agentctl.policies.base import Policy

NAME = "sglang-router"
VERSIONS = ("0.3.2",)
POLL = "--worker-startup-check-interval"  # also how often engines say their tokens
EVICTION_S = 60  # --eviction-interval-secs, its default

FLAGS = {
    "--policy": Flag(choices=("random", "round_robin", "cache_aware", "power_of_two", "manual")),
    "--cache-threshold": SHARE,
    "--balance-abs-threshold": COUNT,
    "--balance-rel-threshold": Flag(least=1),
    "--eviction-interval-secs": POSITIVE,
    "--max-tree-size": POSITIVE,
    "--max-idle-secs": POSITIVE,
    POLL: POSITIVE,
    "--assignment-mode": Flag(choices=("random", "min_load", "min_group")),
}
SESSION = Header(
    "X-SMG-Routing-Key", "one value for all requests of a session", "the router keeps it on one engine"
)
PROGRAM = Program(NAME, ("sglang-router", "launch"), {"0.3.2": FLAGS})

_STICKY = Near(
    "sglang-router:manual_min_load",
    "a session stays where its first request went, whatever the load; a new one goes to the engine with the "
    "fewest requests in flight",
)
_TREE = Near(
    "sglang-router:cache_aware",
    "the engine that was sent the longest part of the prompt, until loads of the fleet are uneven; the "
    "router's own tree and own counts",
)
_TWO = Near("sglang-router:power_of_two", "the less loaded of two engines drawn at random")
_TURN = Near("sglang-router:round_robin", "engines in turn")
NEAREST = {
    **dict.fromkeys(
        ("smetric", "smetric-v1", "session-sticky", "hybrid-sticky", "sticky-least-loaded", "consistent-hash",
         "autellix", "conserve"),
        _STICKY,
    ),
    **dict.fromkeys(
        ("aibrix-gateway-prefix-cache", "aibrix-prefix-cache", "bailian-linear", "bailian-sampled",
         "bounded-most-hit", "cache-aware-spill", "dualmap", "dynamo-kv", "dynamo-worker-selector", "kvaware",
         "least-ttft", "llm-d", "llm-d-precise", "lmetric", "lmetric@dynamo", "lmetric@llm-d",
         "lmetric@sglang", "lmetric@vllm-router", "loadaware", "mooncake-conductor", "most-hit",
         "preble", "preble@aibrix",
         "prefix-affine", "prefix-hash", "prefixaware"),
        _TREE,
    ),
    **dict.fromkeys(
        ("least-inflight", "least-kv", "least-load", "least-loaded", "least-tokens", "least-waiting", "lpwl",
         "polyserve", "power-of-two", "power-of-two-inflight", "token-load", "vllm-dp-balancer",
         "vllm-dp-balancer@lmetric-artifact"),
        _TWO,
    ),
    "random": _TURN,
}  # fmt: skip


def counterpart(policy: Policy, cluster: Cluster, version: str) -> Policy | None:
    return counterpart_of(policy, cluster, NAME, NEAREST)


def emit(deployment: Deployment) -> Emitted:
    check_limits(deployment)
    check_roles(deployment)
    simulated, cluster = deployment.policy, deployment.cluster
    theirs = counterpart(simulated, cluster, deployment.version)
    if theirs is None:
        return none_for(simulated, NAME)
    own = own_policy(theirs, cluster, NAME)
    flags, environment = own_flags(PROGRAM, deployment.version, own)
    size = tree_size(deployment, CHARACTER_TREE) if flags["--policy"] == "cache_aware" else None
    if size is not None:
        flags |= {"--max-tree-size": size, "--eviction-interval-secs": EVICTION_S}
    can: dict[str, Any] = {"index": "approximate", "index_delay_s": 0.0, "metrics_delay_s": 0.0}
    if flags["--policy"] == "power_of_two":
        flags[POLL] = can["metrics_interval_s"] = whole_seconds(cluster.router.metrics_interval_s)
    differences = (
        *instead_of(simulated, theirs, NEAREST),
        *signal_differences(deployment, theirs, can),
    )
    run = Command(PROGRAM, deployment.version, own.name, cluster.n_engines, flags, environment)
    return Emitted(
        files=router_files(run),
        headers=(SESSION,) if flags["--policy"] == "manual" else (),
        fit=fit_of(simulated, theirs, differences),
        differences=differences,
        needs=tuple(gateway_needs(deployment)),
        apply=apply_words(PROGRAM, deployment.version),
    )
