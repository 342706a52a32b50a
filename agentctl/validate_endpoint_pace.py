"""The same slice as a recommendation would simulate it: turns follow the simulated ends, not the measured.

Arrivals as measured judge request by request; an error that makes a session late makes it meet other
traffic, and only this replay has that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agentctl.cluster import Cluster, Router
from agentctl.endpoint.replayed import NOT_SENT, Replayed
from agentctl.endpoint.slice import Slice
from agentctl.logged import AS_LOGGED
from agentctl.sim.driver import simulate
from agentctl.trace import Trace
from agentctl.workload import AT_ARRIVAL, Workload, compile_workload

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Pace:
    """By request of the measured log: simulated latencies, NaN where rejected. By session of several turns:
    seconds from its first request's start to its last one's end."""

    simulated: dict[str, F64]
    session_measured_s: F64
    session_simulated_s: F64


def own_pace(
    part: Slice, rows: Replayed, measured: Trace, cluster: Cluster, overhead_s: float
) -> Pace | None:
    """None where no turn waits for another: then it is the same run."""
    workload, number = _with_turns(part, measured, overhead_s)
    if not np.any(workload.requests.release != AT_ARRIVAL):
        return None
    outcome = simulate(workload, replace(cluster, router=Router(AS_LOGGED.name)), AS_LOGGED)
    requests = workload.requests
    ttft = outcome.first_token_s - outcome.arrival_s + overhead_s
    e2e = outcome.finish_s - outcome.arrival_s + overhead_s
    steps = np.where(requests.output_tokens > 1, requests.output_tokens - 1.0, np.nan)
    ended = {row["request"]: row["sent"] + row["end_s"] for row in rows.rows
             if row["status"] != NOT_SENT and row["end_s"] is not None}  # fmt: skip
    ours, theirs = [], []
    for session in np.unique(requests.session).tolist():
        here = np.flatnonzero(requests.session == session)
        ends = [ended.get(int(number[r])) for r in here]
        if here.size > 1 and None not in ends and outcome.done[here].all():
            theirs.append(max(end for end in ends if end is not None) - requests.arrival[here].min())
            ours.append((outcome.finish_s[here]).max() - outcome.arrival_s[here].min() + overhead_s)
    simulated = {"ttft_s": ttft, "e2e_s": e2e, "tpot_s": (e2e - ttft) / steps}
    return Pace(simulated, np.array(theirs), np.array(ours))


def _with_turns(part: Slice, measured: Trace, overhead_s: float) -> tuple[Workload, NDArray[np.int64]]:
    """The measured log's workload with the slice's waits; and the slice's number of each request.

    A request whose predecessor is not simulated comes when it came."""
    log = compile_workload(measured, "timestamps")
    place = {name: k for k, name in enumerate(part.workload.request_ids)}
    number = np.array([place[name] for name in log.request_ids], np.int64)
    new = np.full(part.n_requests, -1)
    new[number] = np.arange(number.size)
    old, n = part.workload.requests, number.size
    release, gap = np.zeros(n, np.int8), np.zeros(n)
    deps: list[int] = []
    deps_start = np.zeros(n + 1, np.int64)
    for r, k in enumerate(number.tolist()):
        waits = new[old.deps[old.deps_start[k] : old.deps_start[k + 1]]]
        if old.release[k] != AT_ARRIVAL and waits.size and (waits >= 0).all() and (waits < r).all():
            release[r], gap[r] = old.release[k], old.gap[k] + overhead_s
            deps += waits.tolist()
        deps_start[r + 1] = len(deps)
    requests = log.requests._replace(
        release=release, gap=gap, deps_start=deps_start, deps=np.array(deps, np.int32),
        session=old.session[number], turn=old.turn[number],
    )  # fmt: skip
    sessions = part.workload.session_ids
    return replace(log, requests=requests, session_ids=sessions, replay="thinktime", as_logged=None), number
