"""Whether a fleet of models can be simulated, and what its replays are played on."""

from __future__ import annotations

from typing import Any

import numpy as np

from agentctl.cluster import Cluster
from agentctl.errors import ConfigError
from agentctl.estimators.sfs_replay import make_scratch
from agentctl.sim.fleet_state import NO_ESTIMATOR
from agentctl.sim.handle import lodge
from agentctl.sim.pair_state import has_roles
from agentctl.sim.state import State
from agentctl.workload import Workload


def check_fleet(workload: Workload, cluster: Cluster, policy: Any, audits: bool) -> None:
    """Raise ConfigError for what cannot be simulated with pools of different models."""
    fleet, place = workload.fleet, "the fleet"
    estimates = audits or getattr(policy, "estimator", None) is not None
    if fleet is None:
        if getattr(policy, "needs_fleet", False):
            raise ConfigError(
                f"{policy.name} chooses between models, and nothing is known of any",
                place="policy",
                hint="--labels says how well each model answers",
            )
        return
    if len(fleet.models) != len(cluster.pools):
        raise ConfigError(
            f"is of {len(fleet.models)} pools, and the cluster has {len(cluster.pools)}", place=place
        )
    for pool in cluster.pools:
        if pool.scheduler == "sglang" and estimates:
            raise ConfigError(
                "estimates of SGLang's scheduler are not simulated yet", place=f"[pool] {pool.name}"
            )
    if has_roles(cluster) or cluster.kv_tiers:
        raise ConfigError("roles and KV tiers are not simulated with several models yet", place=place)
    caching = np.array([pool.prefix_caching for pool in cluster.pools])
    differs = (fleet.prompt_tokens != workload.requests.prompt_tokens[:, None]).any(axis=0)
    for pool, bad in zip(cluster.pools, differs & caching, strict=True):
        if bad:
            raise ConfigError(
                "prompts have other lengths on this model than in the log, whose blocks then mean nothing "
                "here",
                place=f"[pool] {pool.name}",
                expected="prefix_caching = false, or labels without prompt_tokens",
            )


def lend_scratch(s: State) -> tuple[Any, ...]:
    """Give every pool a state of one engine to play estimates on; returns what has to live as long."""
    fleet = s.fleet[0]
    if not fleet["is_on"] or (fleet["estimator"] == NO_ESTIMATOR and not fleet["audits"]):
        return ()
    lent: list[Any] = []
    for pool in np.unique(s.limits["pool"]):
        mine = np.flatnonzero(s.limits["pool"] == pool)
        scratch = make_scratch(s.limits[mine[:1]], s.seen.size + s.late_seen.size)
        address, memory = lodge(scratch)
        s.means["scratch"][mine] = address
        lent += [scratch, memory]
    return tuple(lent)
