"""Who is compared: policies on cluster sizes, the current policy among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agentctl.cluster import Cluster, cluster_of, load_cluster
from agentctl.errors import UsageError
from agentctl.policies.base import Policy
from agentctl.profile import Profile
from agentctl.recommend.search import Candidate
from agentctl.simulate import policy_of

DEFAULT_ENGINES = 4  # of a profile without a cluster and without --engines
REFERENCE = "round-robin"  # when the current policy is not given
# When none are named: one of each kind of idea. All of the folder would cost several times the run, and the
# more there are, the likelier one of them wins by luck.
DEFAULT_POLICIES = ("least-loaded", "lmetric", "prefix-affine", "round-robin", "smetric")


def base_cluster(profile: Profile | None, cluster: Cluster | None) -> Cluster:
    if cluster is None:
        if profile is None:
            raise UsageError(
                "neither is given", place="--profile, --cluster", expected="at least one of them"
            )
        return cluster_of(profile, DEFAULT_ENGINES)
    if profile is None:
        return cluster
    return replace(cluster, pools=tuple(replace(pool, profile=profile) for pool in cluster.pools))


def candidates_of(
    clusters: Mapping[int, Cluster], policies: Sequence[str], current: str | None
) -> tuple[list[Candidate], str]:
    """Every policy on every size, the current one among them, and the current one's name."""
    any_cluster = next(iter(clusters.values()))
    chosen = {name: policy_of(any_cluster, name) for name in (policies or DEFAULT_POLICIES)}
    reference, policy = _current(current or REFERENCE, any_cluster)
    if reference in chosen and chosen[reference].my != policy.my:
        reference = f"{reference} (current)"
    chosen[reference] = policy
    candidates = []
    for name, policy in chosen.items():
        for n, cluster in clusters.items():
            candidates.append(Candidate(name, policy, n, cluster.n_gpus, cluster.price_per_hour))
    return candidates, reference


def _current(text: str, cluster: Cluster) -> tuple[str, Policy]:
    """`POLICY`, `POLICY:key=value,...`, or a cluster file whose router is in use."""
    if text.endswith(".toml"):
        router = load_cluster(Path(text)).router
        return router.policy, policy_of(replace(cluster, router=router))
    name, _, pairs = text.partition(":")
    params = {}
    for pair in filter(None, pairs.split(",")):
        key, _, value = pair.partition("=")
        try:
            params[key.strip()] = float(value)
        except ValueError as error:
            raise UsageError(
                f"cannot read {pair!r}", place="--current", expected="POLICY:key=value,..."
            ) from error
    return name, policy_of(cluster, name, params)
