"""One policy on one cluster: load, run, measure, say what happened (the library function of `agentctl simulate`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentctl.result import Progress, RunResult

if TYPE_CHECKING:
    from agentctl.cluster import Cluster
    from agentctl.trace import Trace


def run_simulation(
    trace: Trace,
    cluster: Cluster,
    *,
    policy: str | None = None,
    params: Mapping[str, Any] | None = None,
    replay: str | None = None,
    concurrency: int | None = None,
    seed: int = 0,
    slos: Sequence[str] = (),
    progress: Progress | None = None,
) -> RunResult:
    """Replay `trace` on `cluster` under one policy.

    policy       name; default: the cluster's router. `params` override the router's own
    replay       timestamps | causal | thinktime | closed-loop; default thinktime where gaps are known
    concurrency  sessions in flight, for closed-loop
    slos         SLO expressions (agentctl.slo); none: the default SLO, printed

    The document has schema `agentctl/simulate/1`. Raises InputError (trace), ConfigError (cluster, policy,
    SLO).
    """
    raise NotImplementedError
