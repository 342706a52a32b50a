"""What a router knows and when: as the cluster file says, else as the production policy's router does."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from agentctl.cluster import Cluster, Router
from agentctl.policies._files import Signals
from agentctl.policies.base import Policy

DEFAULTS: dict[str, Any] = {
    "index": "precise",
    "index_params": {},
    "index_delay_s": 0.0,
    "metrics_interval_s": 0.0,
    "metrics_delay_s": 0.0,
}


def router_settings(router: Router, policy: Policy) -> tuple[Router, dict[str, str]]:
    """The router with every setting known, and where each came from: cluster, policy or default.

    Parameters and delay of an index belong to its kind, and the delay of metrics to their interval: when the
    cluster file says another kind, or fresh metrics, the policy's stay out.
    """
    theirs = asdict(policy.file.signals if policy.file else Signals())
    if router.index not in (None, theirs["index"]):
        theirs["index_params"] = theirs["index_delay_s"] = None
    if router.metrics_interval_s == 0:
        theirs["metrics_delay_s"] = None
    found, origins = {}, {}
    for key, default in DEFAULTS.items():
        said = (("cluster", getattr(router, key)), ("policy", theirs[key]), ("default", default))
        origins[key], found[key] = next((where, value) for where, value in said if value is not None)
    if router.index_params and theirs["index_params"]:
        found["index_params"] = theirs["index_params"] | router.index_params
    return replace(router, **found), origins


def settled(cluster: Cluster, policy: Policy) -> Cluster:
    """The cluster as its router is under this policy."""
    return replace(cluster, router=router_settings(cluster.router, policy)[0])


def router_words(router: Router) -> str:
    """What a settled router knows, for people."""
    metrics = "engine metrics are always fresh"
    if router.metrics_interval_s:
        metrics = f"engine metrics are published every {router.metrics_interval_s:g} s"
        metrics += f" and seen {router.metrics_delay_s:g} s later" if router.metrics_delay_s else ""
    late = f", {router.index_delay_s:g} s late" if router.index_delay_s else ""
    limits = ", ".join(f"{key} {value}" for key, value in (router.index_params or {}).items())
    return f"{metrics}; the prefix index is {router.index}{late}{f' ({limits})' if limits else ''}"
