"""Which candidates a router can be made to do, and what stands for those that it cannot.

With `--router TARGET` only what the target does exactly may be recommended. A policy that it does not have
stays in the comparison, and beside it stands the nearest that the target has, simulated as it would be
deployed: the distance between the two is what the paper's policy would bring beyond the router.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agentctl.cluster import Cluster
from agentctl.emit.base import Deployment, Target, check_limits, find_target, loaded
from agentctl.policies._settings import settled
from agentctl.policies.base import Policy
from agentctl.recommend.search import Candidate
from agentctl.recommend.variants import variant_of
from agentctl.sim.pair_state import has_roles
from agentctl.workload import Workload


class Asked(NamedTuple):
    """What `--router` asks for."""

    target: Target
    version: str

    @property
    def name(self) -> str:
        return f"{self.target.NAME} {self.version}"


def asked_for(text: str | None) -> Asked | None:
    """Raises ConfigError for a target or a version that is not known."""
    return None if text is None else Asked(*find_target(text))


class Deployable(NamedTuple):
    """The candidates with those that stand for others, and who stands for whom.

    stands_for   title on so many engines -> the candidate it is deployed as, None: nothing comes near
    """

    candidates: list[Candidate]
    stands_for: Mapping[tuple[str, int], Candidate | None]

    def may_be_chosen(self, candidate: Candidate) -> bool:
        key = (candidate.title, candidate.engines)
        return key not in self.stands_for or self.stands_for[key] is candidate


def deployable(
    candidates: Sequence[Candidate],
    asked: Asked | None,
    clusters: Mapping[int, Cluster],
    reference: str | None = None,
) -> Deployable:
    """Add to the candidates what the target would do in the place of those that it does not have.

    clusters   by number of engines, as they are today
    reference  a policy that is there to be compared with only: nothing stands for it
    """
    if asked is None:
        return Deployable(list(candidates), {})
    found, stands_for = list(candidates), {}
    for candidate in candidates:
        if candidate.name == reference and not candidate.settings:
            continue
        variant = variant_of(clusters[candidate.engines], candidate.settings)
        theirs = None
        if not has_roles(variant):  # no target is told who computes prompts
            theirs = asked.target.counterpart(candidate.policy, variant, asked.version)
        same = candidate if theirs is candidate.policy else None
        if theirs is not None and same is None:
            same = _added(candidate, theirs, settled(variant, theirs), found)
        stands_for[candidate.title, candidate.engines] = same
    return Deployable(found, stands_for)


def _added(of: Candidate, theirs: Policy, cluster: Cluster, among: list[Candidate]) -> Candidate:
    """The candidate that is `theirs` on that cluster: one that is there, or a new one at the end."""
    for one in among:
        if one.policy.choose is theirs.choose and one.cluster == cluster and _same(one.policy, theirs):
            return one
    as_it_comes = _same(theirs, loaded(cluster, theirs.name))
    name = theirs.name if as_it_comes else f"{theirs.name} for {of.name}"  # with parameters chosen for it
    among.append(Candidate(name, theirs, cluster, of.settings))
    return among[-1]


def _same(a: Policy, b: Policy) -> bool:
    return a.tie == b.tie and repr(a.params) == repr(b.params)


def check_trace_fits(asked: Asked | None, cluster: Cluster, policy: Policy, workload: Workload) -> None:
    """Raise ConfigError, before anything is simulated, when a request could never run on today's engines."""
    if asked is not None:
        check_limits(deployment_of(cluster, policy, asked, workload, None))


def deployment_of(
    cluster: Cluster,
    policy: Policy,
    asked: Asked | None,
    workload: Workload,
    today: tuple[Cluster, Policy] | None,
) -> Deployment:
    requests = workload.requests
    total = requests.prompt_tokens + requests.output_tokens
    return Deployment(
        cluster=settled(cluster, policy),
        policy=policy,
        version=asked.version if asked else "",
        longest_prompt=int(requests.prompt_tokens.max(initial=0)),
        longest_total=int(total.max(initial=0)),
        today=today,
    )
