"""Who is compared: policies on clusters of several sizes and settings, today's configuration among them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from agentctl.cluster import Cluster, check_simulated, cluster_of, with_profile
from agentctl.errors import UsageError
from agentctl.policies._names import parse_policy
from agentctl.policies._settings import router_words, settled
from agentctl.policies.base import Policy, load_policy
from agentctl.profile import Profile
from agentctl.recommend.grid import Axis, policy_grid
from agentctl.recommend.roles import ROLES, check_fits, others_than_today
from agentctl.recommend.search import Candidate
from agentctl.recommend.variants import setting_of, variant_of
from agentctl.simulate import current_policy, policy_of

DEFAULT_ENGINES = 4  # of a profile without a cluster and without --engines
REFERENCE = "round-robin"  # when the current policy is not given
# When none are named: one of each kind of idea. All of the folder would cost several times the run, and the
# more there are, the likelier one of them wins by luck.
DEFAULT_POLICIES = ("least-loaded", "lmetric", "prefix-affine", "round-robin", "smetric")
PLACING_POLICIES = ("ampd", "conserve-pd", "deflection", "full-disaggregation", "ppd")  # beside, with roles
MOST_CANDIDATES = 500  # a guess at what anybody waits for

Settings = tuple[tuple[str, Any], ...]


def base_cluster(profile: Profile | None, cluster: Cluster | None) -> Cluster:
    if cluster is None:
        if profile is None:
            raise UsageError(
                "neither is given", place="--profile, --cluster", expected="at least one of them"
            )
        return cluster_of(profile, DEFAULT_ENGINES)
    return with_profile(cluster, profile) if profile else cluster


def candidates_of(
    clusters: Mapping[int, Cluster],
    policies: Sequence[str],
    current: str | None,
    axes: Sequence[Axis] = (),
    roles: str | None = None,
) -> tuple[list[Candidate], str, bool]:
    """Every policy on every size with every setting and every assignment of roles, the current configuration
    among them; the current policy's name, and whether it is there as a reference only: it is none of what was
    asked for.

    clusters  by number of engines, as they are today. `policies` may be grids (grid.policy_grid)
    roles     assignments to try beside today's (roles.others_than_today). A policy that names one engine is
              left out where pools are both and more
    """
    any_cluster = next(iter(clusters.values()))
    left_out = left_out_of(any_cluster, policies, roles)
    texts = [one for text in policies for one in policy_grid(text)] or [
        name for name in default_policies(roles) if name not in left_out
    ]
    grid = [_differing(any_cluster, axes, values) for values in itertools.product(*(a.values for a in axes))]
    grid = list(dict.fromkeys(grid))
    if roles:
        check_fits(roles, clusters.values())
    assigned = {
        (settings, n): others_than_today(variant_of(cluster, settings), roles) if roles else []
        for settings in grid
        for n, cluster in clusters.items()
    }
    if roles and not any(assigned.values()):
        raise UsageError("nothing is tried beside today's cluster", place=f"--roles {roles}")
    n_clusters = sum(1 + len(found) for found in assigned.values())
    if len(texts) * n_clusters > MOST_CANDIDATES:
        raise UsageError(
            f"{len(texts)} policies x {n_clusters} settings, sizes and roles",
            place="--policies, --vary, --engines, --roles",
            expected=f"at most {MOST_CANDIDATES} candidates",
            hint="try fewer values first, then more around the best",
        )
    reference, policy = current_policy(current or REFERENCE, any_cluster)
    named = dict(_named(text, any_cluster, "--policies") for text in texts)
    if reference in named and named[reference].my != policy.my:
        reference = f"{reference} (current)"
    wanted: list[tuple[str | None, Settings]] = list(itertools.product(texts, grid))
    reference_only = bool(policies or axes) and (reference not in named or () not in grid)
    if reference not in named or () not in grid:
        wanted.append((None, ()))
    candidates = []
    for text, settings in wanted:
        for n, cluster in clusters.items():
            others = assigned[settings, n] if text else []
            for own in [settings, *((*settings, (ROLES, one)) for one in others)]:
                variant = variant_of(cluster, own)
                check_simulated(variant)
                name, chosen = (
                    _named(text, variant, "--policies") if text else (reference, _current(current, variant))
                )
                if can_run(chosen, variant):
                    candidates.append(Candidate(name, chosen, settled(variant, chosen), own))
    return candidates, reference, reference_only


def can_run(policy: Policy, cluster: Cluster) -> bool:
    """One that names one engine is asked for both sides: prefill and decode pools have to be there, and no
    other."""
    roles = {pool.role for pool in cluster.pools}
    return policy.places or roles in ({"both"}, {"prefill", "decode"})


def _differing(cluster: Cluster, axes: Sequence[Axis], values: Sequence[Any]) -> Settings:
    """What of the settings is not so today."""
    pairs = zip((axis.key for axis in axes), values, strict=True)
    return tuple((key, value) for key, value in pairs if setting_of(cluster, key) != value)


def _current(current: str | None, cluster: Cluster) -> Policy:
    return current_policy(current or REFERENCE, cluster)[1]


def default_policies(roles: str | None) -> tuple[str, ...]:
    return (*DEFAULT_POLICIES, *PLACING_POLICIES) if roles else DEFAULT_POLICIES


def left_out_of(cluster: Cluster, policies: Sequence[str], roles: str | None = None) -> dict[str, str]:
    """Default policies that the cluster cannot be asked about, and why."""
    if policies:
        return {}
    found = {}
    for name in default_policies(roles):
        policy = load_policy(name)
        if policy.takes_single_coefficients and any(pool.profile.predictive_only for pool in cluster.pools):
            found[name] = "takes coefficients of the profile, which are not known singly"
        elif policy.needs_one_gateway and cluster.router.gateways > 1:
            found[name] = f"keeps books of all sessions, and there are {cluster.router.gateways} gateways"
    return found


def _named(text: str, cluster: Cluster, place: str) -> tuple[str, Policy]:
    """`POLICY:key=value,...` as written, but of a file the name alone, and its policy."""
    name, params = parse_policy(text, place)
    policy = policy_of(cluster, name, params)
    return policy.name + text.strip().removeprefix(name), policy


def routers_in_words(candidates: Sequence[Candidate]) -> str:
    """What the router knows under each policy: said once where it is the same."""
    told: dict[str, list[str]] = {}
    for candidate in candidates:
        names = told.setdefault(router_words(candidate.cluster.router), [])
        if candidate.title not in names:
            names.append(candidate.title)
    if len(told) == 1:
        return next(iter(told))
    return "; ".join(f"under {', '.join(names)} {words}" for words, names in told.items())
