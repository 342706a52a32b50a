"""Who is compared: policies on clusters of several sizes and settings, today's configuration among them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from agentctl.cluster import Cluster, check_capacities, check_simulated, cluster_of, with_profile
from agentctl.errors import UsageError
from agentctl.policies._names import parse_policy
from agentctl.policies._settings import router_words, settled
from agentctl.policies.base import Policy, load_policy
from agentctl.profile import Profile
from agentctl.recommend.grid import Axis, policy_grid
from agentctl.recommend.search import Candidate
from agentctl.recommend.variants import in_order, setting_of, with_setting
from agentctl.simulate import current_policy, policy_of

DEFAULT_ENGINES = 4  # of a profile without a cluster and without --engines
REFERENCE = "round-robin"  # when the current policy is not given
# When none are named: one of each kind of idea. All of the folder would cost several times the run, and the
# more there are, the likelier one of them wins by luck.
DEFAULT_POLICIES = ("least-loaded", "lmetric", "prefix-affine", "round-robin", "smetric")
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
) -> tuple[list[Candidate], str, bool]:
    """Every policy on every size with every setting, the current configuration among them; the current
    policy's name, and whether it is there as a reference only: it is none of what was asked for.

    clusters  by number of engines, as they are today. `policies` may be grids (grid.policy_grid)
    """
    any_cluster = next(iter(clusters.values()))
    left_out = left_out_of(any_cluster, policies)
    texts = [one for text in policies for one in policy_grid(text)] or [
        name for name in DEFAULT_POLICIES if name not in left_out
    ]
    grid = [_differing(any_cluster, axes, values) for values in itertools.product(*(a.values for a in axes))]
    grid = list(dict.fromkeys(grid))
    if len(texts) * len(grid) * len(clusters) > MOST_CANDIDATES:
        raise UsageError(
            f"{len(texts)} policies x {len(grid)} settings x {len(clusters)} sizes",
            place="--policies, --vary, --engines",
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
        for cluster in clusters.values():
            variant = _with_all(cluster, settings)
            name, chosen = (
                _named(text, variant, "--policies") if text else (reference, _current(current, variant))
            )
            candidates.append(Candidate(name, chosen, settled(variant, chosen), settings))
    return candidates, reference, reference_only


def _differing(cluster: Cluster, axes: Sequence[Axis], values: Sequence[Any]) -> Settings:
    """What of the settings is not so today."""
    pairs = zip((axis.key for axis in axes), values, strict=True)
    return tuple((key, value) for key, value in pairs if setting_of(cluster, key) != value)


def _with_all(cluster: Cluster, settings: Settings) -> Cluster:
    for key, value in in_order(settings):
        cluster = with_setting(cluster, key, value)
    check_capacities(cluster.kv_tiers, "--vary kv_tier")
    check_simulated(cluster)
    return cluster


def _current(current: str | None, cluster: Cluster) -> Policy:
    return current_policy(current or REFERENCE, cluster)[1]


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
