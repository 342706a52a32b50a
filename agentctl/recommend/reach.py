"""Objectives that no engine can meet, whatever the policy and the load: told before anything is simulated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from agentctl.analyzers.words import percent, seconds
from agentctl.cluster import Cluster
from agentctl.errors import UsageError
from agentctl.estimators.batch_time import BatchTime, batch_time
from agentctl.slo import Slo
from agentctl.workload import Workload


def check_reachable(slos: Sequence[Slo], workload: Workload, clusters: Iterable[Cluster]) -> None:
    """Raise UsageError for an objective that too few requests can meet even on an idle engine of the fastest
    kind, with everything but one token of the prompt in its cache."""
    times = [pool.profile.batch_time for cluster in clusters for pool in cluster.pools]
    if not workload.n_requests:
        return
    for slo in slos:
        possible = _possible(slo, workload, times)
        if possible is None or possible.size == 0:
            continue
        share = float(possible.mean())
        needed = 100.0 if slo.percent is None else slo.percent
        if 100 * share < needed - 1e-9 and (slo.percent is not None or share == 0):
            least = min(_first_token(c) if slo.metric == "ttft" else _next_token(c) for c in times)
            raise UsageError(
                f"can be met by {percent(share)} of the requests, even on an idle engine that has all but "
                "one token of each prompt in its cache",
                place=f"slo {slo.text!r}",
                expected=f"a limit that {needed:g} % of them can meet",
                hint=f"one batch takes at least {seconds(least)}: raise the limit or lower the share",
            )


def _possible(slo: Slo, workload: Workload, times: Sequence[BatchTime]) -> NDArray[np.bool_] | None:
    """Of the requests that the objective counts, who could meet it; None: not known without a simulation."""
    requests = workload.requests
    output = requests.output_tokens
    first, following = min(map(_first_token, times)), min(map(_next_token, times))
    if slo.metric == "ttft":
        least = np.full(output.size, first)
    elif slo.metric == "tpot":
        least = np.full(output.size, following)
    elif slo.metric == "e2e":
        least = first + (output - 1) * following
    else:
        return None
    limit = slo.limit_s(requests.prompt_tokens, requests.prompt_tokens, output)
    counted = output > 1 if slo.metric == "tpot" else np.ones(output.size, dtype=bool)
    return (least <= limit)[counted]


def _first_token(c: BatchTime) -> float:
    return batch_time(c, 1.0, 1.0, 0.0, 1, 0, 0.0)


def _next_token(c: BatchTime) -> float:
    return batch_time(c, 0.0, 0.0, 0.0, 0, 1, 0.0)
