"""Many policies and sizes on resampled workloads: the decision, its uncertainty and its reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentctl.result import Progress, RunResult

if TYPE_CHECKING:
    from agentctl.cluster import Cluster
    from agentctl.profile import Profile
    from agentctl.trace import Trace


def recommend(
    trace: Trace,
    *,
    profile: Profile | None = None,
    cluster: Cluster | None = None,
    policies: Sequence[str] = (),
    engines: Sequence[int] = (),
    slos: Sequence[str] = (),
    current: str | None = None,
    objective: str = "peak-load",
    replay: str | None = None,
    replicates: int | None = None,
    seed: int = 0,
    strict: bool = False,
    progress: Progress | None = None,
) -> RunResult:
    """Compare `policies` x `engines` on `trace` and name one, or say that the data cannot.

    profile, cluster  one of them is needed; with a profile alone the cluster is one pool of it, 4 engines
    policies          names; default: all that simulate on this cluster
    engines           numbers of engines to try; default: the cluster's
    slos              SLO expressions; none: the default SLO, printed
    current           `POLICY` or `POLICY:key=value,...`; default: round-robin, said not to be the user's
    replicates        resampled workloads per load; default: what ends in tens of seconds, stated

    The document has schema `agentctl/recommend/1`; exit code 3 when no candidate meets the SLO at the
    trace's load or the claim is declined.
    """
    raise NotImplementedError
