"""smg, the Shepherd Model Gateway: flags and a script that starts it.

Source of flags, choices and ranges: the program's own parser and what it refuses at its start, version
1.13.0. Some of what it does unless told otherwise is not simulated and switched off: it leaves out engines
with 8 requests waiting or 0.8 of their KV in use, sends misses and some hits to engines whose cache is thin,
and refuses requests beyond a number in flight.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentctl.cluster import Cluster
from agentctl.emit._rust_router import (
    CHARACTER_TREE,
    COUNT,
    POSITIVE,
    SHARE,
    SWITCH,
    Command,
    Flag,
    Program,
    Value,
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

NAME = "smg"
VERSIONS = ("1.13.0",)
EVICTION_S = 60  # --eviction-interval-secs, its default
POLICIES = (
    "random", "round_robin", "passthrough", "cache_aware", "power_of_two", "least_load", "manual",
    "consistent_hashing", "prefix_hash",
)  # fmt: skip

FLAGS = {
    "--policy": Flag(choices=POLICIES),
    "--cache-threshold": SHARE,
    "--balance-abs-threshold": COUNT,
    "--balance-rel-threshold": Flag(least=1),
    "--overlap-decay": Flag(least=0),
    "--selection-temperature": Flag(least=0),
    "--least-load-default-throughput": Flag(least=1e-9),
    "--least-load-mean-prefill-tokens": POSITIVE,
    "--least-load-kv-pressure-weight": Flag(least=0),
    "--prefix-token-count": POSITIVE,
    "--prefix-hash-load-factor": Flag(least=1),
    "--prefix-hash-balance-abs-threshold": COUNT,
    "--max-idle-secs": POSITIVE,
    "--assignment-mode": Flag(choices=("random", "min_load", "min_group", "delegate")),
    "--load-monitor-interval": POSITIVE,
    "--eviction-interval-secs": POSITIVE,
    "--max-tree-size": POSITIVE,
    "--max-concurrent-requests": Flag(True, -1),
    "--disable-worker-overload-protection": SWITCH,
    "--worker-warmup-secs": COUNT,
    "--worker-warmup-divert-every": COUNT,
}
NOT_SIMULATED: dict[str, Value] = {
    "--max-concurrent-requests": 0,
    "--disable-worker-overload-protection": None,
    "--worker-warmup-secs": 0,
    "--worker-warmup-divert-every": 0,
}
WEDGED = (
    "smg takes an engine for stuck that sends no token for 3 s while requests pile up there "
    "(--worker-wedge-secs): not simulated, and left on"
)
SESSION = Header(
    "X-SMG-Routing-Key", "one value for all requests of a session", "the gateway keeps it on one engine"
)
PROGRAM = Program(NAME, ("smg", "launch"), {"1.13.0": FLAGS})
ASKS_ENGINES = ("cache_aware", "least_load", "power_of_two")
KEYED = ("manual", "consistent_hashing")

_STICKY = Near(
    "smg:manual:assignment_mode=1",
    "a session stays where its first request went, whatever the load; a new one goes to the engine with the "
    "fewest requests in flight",
)
_TREE = Near(
    "smg:cache_aware",
    "of the engines that were sent the longest part of the prompt and are not too busy, the one with the "
    "shortest expected wait; the gateway's own tree",
)
_WAIT = Near(
    "smg:least_load", "the shortest expected wait by what engines last reported, and what was sent since"
)
NEAREST = {
    **dict.fromkeys(
        ("smetric", "smetric-v1", "session-sticky", "hybrid-sticky", "sticky-least-loaded", "autellix",
         "conserve"),
        _STICKY,
    ),
    **dict.fromkeys(
        ("aibrix-gateway-prefix-cache", "aibrix-prefix-cache", "bailian-linear", "bailian-sampled",
         "bounded-most-hit", "cache-aware", "dualmap", "dynamo-kv", "dynamo-worker-selector", "kvaware",
         "least-ttft", "llm-d", "llm-d-precise", "lmetric", "lmetric@dynamo", "lmetric@llm-d",
         "lmetric@sglang", "lmetric@vllm-router", "loadaware", "mooncake-conductor", "most-hit",
         "preble", "preble@aibrix",
         "prefix-affine", "prefixaware"),
        _TREE,
    ),
    **dict.fromkeys(
        ("least-inflight", "least-kv", "least-loaded", "least-tokens", "least-waiting", "lpwl", "polyserve",
         "power-of-two", "power-of-two-inflight", "power-of-two-tokens", "random", "token-load",
         "vllm-dp-balancer", "vllm-dp-balancer@lmetric-artifact"),
        _WAIT,
    ),
}  # fmt: skip


def counterpart(policy: Policy, cluster: Cluster, version: str) -> Policy | None:
    """The nearest policy, with queues as the engines report them: SGLang in tokens, vLLM in requests."""
    found, tokens = counterpart_of(policy, cluster, NAME, NEAREST), float(_all_sglang(cluster))
    if found is None or found.params.get("queue_tokens", tokens) == tokens:
        return found
    return replace(found, my=found.my._replace(queue_tokens=tokens))


def emit(deployment: Deployment) -> Emitted:
    check_limits(deployment)
    check_roles(deployment)
    simulated, cluster = deployment.policy, deployment.cluster
    theirs = counterpart(simulated, cluster, deployment.version)
    if theirs is None:
        return none_for(simulated, NAME)
    own = own_policy(theirs, cluster, NAME)
    flags, environment = own_flags(PROGRAM, deployment.version, own)
    kind = flags["--policy"]
    if kind in ASKS_ENGINES:
        flags["--load-monitor-interval"] = whole_seconds(cluster.router.metrics_interval_s)
    size = tree_size(deployment, CHARACTER_TREE, cluster.n_engines) if kind == "cache_aware" else None
    if size is not None:
        flags |= {"--max-tree-size": size, "--eviction-interval-secs": EVICTION_S}
    differences = tuple(_differences(deployment, theirs))
    flags |= NOT_SIMULATED
    run = Command(PROGRAM, deployment.version, own.name, cluster.n_engines, flags, environment)
    return Emitted(
        files=router_files(run),
        headers=(SESSION,) if kind in KEYED else (),
        fit=fit_of(simulated, theirs, differences),
        differences=differences,
        needs=(WEDGED, *gateway_needs(deployment)),
        apply=apply_words(PROGRAM, deployment.version),
    )


def _differences(deployment: Deployment, theirs: Policy) -> list[str]:
    simulated, cluster = deployment.policy, deployment.cluster
    found = instead_of(simulated, theirs, NEAREST)
    if "queue_tokens" in theirs.params and simulated.params.get("queue_tokens") not in (
        None,
        theirs.params["queue_tokens"],
    ):
        unit = "tokens" if theirs.params["queue_tokens"] else "requests"
        found.append(f"engines of this kind report their queue in {unit}")
    can: dict[str, Any] = {
        "metrics_interval_s": whole_seconds(cluster.router.metrics_interval_s),
        "metrics_delay_s": 0.0,
    }
    if "hit_tokens" in simulated.sees:  # what engines report of their queues does not come from the index
        can |= {"index": "approximate", "index_delay_s": 0.0}
    found += signal_differences(deployment, theirs, can)
    if "throughput" in theirs.params and _all_sglang(cluster):
        found.append(
            "waits are divided by the tokens/s that SGLang says to generate, by throughput where it says none"
        )
    return found


def _all_sglang(cluster: Cluster) -> bool:
    return all(pool.scheduler == "sglang" for pool in cluster.pools)
