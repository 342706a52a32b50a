"""vllm-router: flags, a script that starts it, and costs of its program scheduling from the calibration.

Source of flags, choices and ranges: the program's own parser and what it refuses at its start, version
0.1.17. It ignores keys of the program-scheduling JSON that it does not know, so that only those found in its
binary are written. Program scheduling pauses and resumes whole sessions before they reach an engine. It is
not simulated, and the script leaves it off unless PROGRAM_SCHEDULING=1.
"""

from __future__ import annotations

import json
from typing import Any

from agentctl.cluster import Cluster
from agentctl.emit._rust_router import (
    COUNT,
    POSITIVE,
    SHARE,
    TEXT,
    TOKEN_TREE,
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
    lateness,
    none_for,
)
from agentctl.emit.engine_costs import program_scheduling
from agentctl.policies.base import Policy

NAME = "vllm-router"
VERSIONS = ("0.1.17",)
EVICTION_S = 120  # --eviction-interval-secs, its default
EVENTS = '{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557"}'
MODEL = "MODEL"  # for the user to replace, where the profile names none
PROGRAMS_FILE = "program-scheduling.json"
PROGRAMS = (
    'if [ "${PROGRAM_SCHEDULING:-0}" = 1 ]; then',
    f'  more+=(--enable-program-scheduling --program-scheduling-config-json "$(cat {PROGRAMS_FILE})")',
    "fi",
)

FLAGS = {
    "--policy": Flag(
        choices=("random", "round_robin", "cache_aware", "kv_aware", "power_of_two", "consistent_hash",
                 "sticky_least_loaded")
    ),
    "--cache-threshold": SHARE,
    "--balance-abs-threshold": COUNT,
    "--balance-rel-threshold": Flag(least=1),
    "--router-temperature": Flag(least=0),
    "--kv-event-block-size": POSITIVE,
    "--kv-event-model": TEXT,
    "--eviction-interval-secs": POSITIVE,
    "--max-tree-size": POSITIVE,
}  # fmt: skip
BINDING = {  # of a new program to an engine, as the policy places a new session
    "cache_aware": "cache_aware",
    "consistent_hash": "consistent_hash",
    "round_robin": "program_round_robin",
}
SESSION = Header(
    "x-session-id",
    "one value for all requests of a session",
    "the router keeps it on one engine; x-request-id alone makes routing random",
)
PROGRAM = Program(NAME, ("vllm-router",), {"0.1.17": FLAGS})
KEYED = ("consistent_hash", "sticky_least_loaded")

_STICKY = Near(
    "vllm-router:sticky_least_loaded",
    "a session stays where its first request went, whatever the load; a new one goes to the engine with the "
    "fewest sessions",
)
_PRODUCT = Near(
    "vllm-router:kv_aware",
    "prompt tokens to compute times requests, least wins; KV events say what hits, the router's own counts "
    "what is under way",
)
_TREE = Near(
    "vllm-router:cache_aware",
    "the engine that was sent the longest part of the prompt, until loads of the fleet are uneven; the "
    "router's own tree and own counts",
)
_TWO = Near(
    "vllm-router:power_of_two", "the one with fewer requests in flight of two engines drawn at random"
)
NEAREST = {
    **dict.fromkeys(
        ("smetric", "smetric-v1", "session-sticky", "hybrid-sticky", "manual", "autellix", "conserve"),
        _STICKY,
    ),
    **dict.fromkeys(
        ("bailian-linear", "bailian-sampled", "bounded-most-hit", "dynamo-kv", "dynamo-worker-selector",
         "kvaware", "least-ttft", "llm-d", "llm-d-precise", "lmetric", "lmetric@dynamo", "lmetric@llm-d",
         "lmetric@sglang", "loadaware", "lpwl", "mooncake-conductor", "most-hit", "preble", "prefix-affine"),
        _PRODUCT,
    ),
    **dict.fromkeys(
        ("aibrix-gateway-prefix-cache", "aibrix-prefix-cache", "cache-aware-spill", "dualmap",
         "preble@aibrix", "prefix-hash", "prefixaware"),
        _TREE,
    ),
    **dict.fromkeys(
        ("least-inflight", "least-kv", "least-load", "least-loaded", "least-tokens", "least-waiting",
         "polyserve", "power-of-two", "power-of-two-tokens", "random", "token-load", "vllm-dp-balancer",
         "vllm-dp-balancer@lmetric-artifact"),
        _TWO,
    ),
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
    kind, events = flags["--policy"], flags["--policy"] == "kv_aware"
    if events:
        flags["--kv-event-block-size"] = cluster.pools[0].block_tokens
        flags["--kv-event-model"] = cluster.pools[0].profile.model or MODEL
    size = tree_size(deployment, TOKEN_TREE) if kind == "cache_aware" else None
    if size is not None:
        flags |= {"--max-tree-size": size, "--eviction-interval-secs": EVICTION_S}
    programs = _programs(deployment, kind)
    optional = PROGRAMS if programs else ()
    differences = tuple(_differences(deployment, theirs, kind))
    run = Command(
        PROGRAM, deployment.version, own.name, cluster.n_engines, flags, environment, events, optional
    )
    return Emitted(
        files=router_files(run) | programs,
        headers=(SESSION,) if kind in KEYED else (),
        fit=fit_of(simulated, theirs, differences),
        differences=differences,
        needs=tuple(_needs(deployment, events, bool(programs))),
        engine_args={"--kv-events-config": EVENTS} if events else {},
        apply=apply_words(PROGRAM, deployment.version),
    )


def _programs(deployment: Deployment, kind: Value) -> dict[str, str]:
    """The file of program scheduling; none where the profile's coefficients are not known one by one."""
    profile = deployment.cluster.pools[0].profile
    if profile.predictive_only:
        return {}
    binding = BINDING.get(str(kind), "least_program_count")
    document: dict[str, Any] = {"program_scheduling_enable_key": "auto", "binding_strategy": binding}
    document |= program_scheduling(profile)
    pools = deployment.cluster.pools
    document["token_capacity_per_dp_rank"] = min(pool.usable_blocks * pool.block_tokens for pool in pools)
    return {PROGRAMS_FILE: json.dumps(document, indent=2, allow_nan=False) + "\n"}


def _differences(deployment: Deployment, theirs: Policy, kind: Value) -> list[str]:
    can = {
        "index": "approximate" if kind == "cache_aware" else "precise",
        "metrics_interval_s": 0.0,
        "metrics_delay_s": 0.0,
    }
    return [
        *instead_of(deployment.policy, theirs, NEAREST),
        *signal_differences(deployment, theirs, can),
    ]


def _needs(deployment: Deployment, events: bool, programs: bool) -> list[str]:
    found = [*gateway_needs(deployment), *lateness(deployment.cluster.router, deployment.policy)]
    blocks = {pool.block_tokens for pool in deployment.cluster.pools}
    if events:
        found.append("clients that stream: else a prompt's tokens count as under way until its answer ends")
        found.append("--kv-event-model is the name that clients ask for: change it if engines serve another")
        found.append(f"--block-size {min(blocks)} in all engines, and their event ports open to the router")
    if programs:
        found.append(
            f"PROGRAM_SCHEDULING=1 bash start.sh also pauses and resumes whole sessions by {PROGRAMS_FILE}, "
            "with costs of this calibration: not simulated"
        )
    return found
