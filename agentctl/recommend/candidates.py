"""Who is compared: policies on cluster sizes, the current policy among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentctl.cluster import Cluster, cluster_of, with_profile
from agentctl.errors import UsageError
from agentctl.policies._names import parse_policy
from agentctl.policies._settings import router_words, settled
from agentctl.policies.base import Policy, load_policy
from agentctl.profile import Profile
from agentctl.recommend.search import Candidate
from agentctl.simulate import current_policy, policy_of

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
    return with_profile(cluster, profile) if profile else cluster


def candidates_of(
    clusters: Mapping[int, Cluster], policies: Sequence[str], current: str | None
) -> tuple[list[Candidate], str, bool]:
    """Every policy on every size, the current one among them; the current one's name, and whether it is there
    as a reference only: `policies` were asked for, and it is none of them."""
    any_cluster = next(iter(clusters.values()))
    left_out = left_out_of(any_cluster, policies)
    texts = policies or [name for name in DEFAULT_POLICIES if name not in left_out]
    chosen = dict(_named(text, any_cluster, "--policies") for text in texts)
    reference, policy = current_policy(current or REFERENCE, any_cluster)
    if reference in chosen and chosen[reference].my != policy.my:
        reference = f"{reference} (current)"
    reference_only = bool(policies) and reference not in chosen
    chosen[reference] = policy
    candidates = []
    for name, policy in chosen.items():
        for n, cluster in clusters.items():
            candidates.append(Candidate(name, policy, n, cluster.n_gpus, cluster.price_per_hour))
    return candidates, reference, reference_only


def left_out_of(cluster: Cluster, policies: Sequence[str]) -> list[str]:
    """Default policies that would take single coefficients of a profile that does not know them singly."""
    if policies or not any(pool.profile.predictive_only for pool in cluster.pools):
        return []
    return [name for name in DEFAULT_POLICIES if load_policy(name).takes_single_coefficients]


def _named(text: str, cluster: Cluster, place: str) -> tuple[str, Policy]:
    """`POLICY:key=value,...` as written, but of a file the name alone, and its policy."""
    name, params = parse_policy(text, place)
    policy = policy_of(cluster, name, params)
    return policy.name + text.strip().removeprefix(name), policy


def routers_in_words(cluster: Cluster, candidates: Sequence[Candidate]) -> str:
    """What the router knows under each policy: said once where it is the same."""
    told: dict[str, list[str]] = {}
    for name, policy in {candidate.name: candidate.policy for candidate in candidates}.items():
        told.setdefault(router_words(settled(cluster, policy).router), []).append(name)
    if len(told) == 1:
        return next(iter(told))
    return "; ".join(f"under {', '.join(names)} {words}" for words, names in told.items())
