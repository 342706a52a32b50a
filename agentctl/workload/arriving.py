"""A workload whose starts are made: its sessions, or each of its requests alone, as a process brings them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from agentctl.errors import UsageError
from agentctl.trace import Trace
from agentctl.workload.arrays import AT_ARRIVAL, Workload
from agentctl.workload.compile import compile_workload
from agentctl.workload.load import take_sessions, uniform_of
from agentctl.workload.process import Process


def compile_arriving(trace: Trace, replay: str | None, process: Process | None, seed: int = 0) -> Workload:
    """The workload of a dataset (`compile_workload`), arriving by `process` where there is one.

    Raises as `compile_workload`; UsageError for a replay mode that has no arrivals, and for a rate that the
    trace does not have.
    """
    if process is None:
        return compile_workload(trace, replay)
    if replay == "closed-loop":
        raise UsageError(
            "a closed loop has no arrivals to make", place="--arrivals", expected="another --replay"
        )
    if process.of == "requests":
        if replay not in (None, "timestamps"):
            raise UsageError(
                f"requests by themselves wait for nobody, and --replay is {replay}",
                place="--arrivals-of",
                expected="sessions, or no --replay",
            )
        replay = "timestamps"
    return arrange(compile_workload(trace, replay), process, seed)


def arrange(workload: Workload, process: Process, seed: int = 0) -> Workload:
    """The sessions of `workload` (its requests, each a session of its own), started by `process`.

    The arrivals depend on nothing but the process and the seed.
    """
    if process.of == "requests":
        workload = apart(workload)
    if process.rate is None:
        process = replace(process, rate=rate_of(workload))
    return at_rate(replace(workload, arriving=process, starts_synthesised=True), 1.0, seed)


def at_rate(workload: Workload, load: float, seed: int) -> Workload:
    """An arranged workload at `load` times its rate.

    Below 1 the same sessions take longer. Above 1 as many more come, so that the time stays the same: all of
    them again in the same order, as other users (`take_sessions`). The first are the same at every load.
    """
    assert workload.arriving is not None
    process, n = workload.arriving.scaled(load), workload.n_sessions
    starts = workload.session_starts()
    shuffled = process.order == "shuffled"
    order = np.argsort(uniform_of(workload.session_ids, seed, "order") if shuffled else starts, kind="stable")
    wanted = max(n, round(n * load))
    sessions = np.resize(order, wanted).astype(np.int64)
    since_start = workload.requests.arrival - starts[workload.requests.session]  # so that starts are exact
    from_zero = replace(workload, requests=workload.requests._replace(arrival=since_start))
    made = take_sessions(from_zero, sessions, process.starts(wanted, seed))
    return replace(made, arriving=process)


def apart(workload: Workload) -> Workload:
    """Every request a session of its own that waits for nobody. Prompts share blocks as before; what a
    request generated is in nobody's prompt any more."""
    n, old = workload.n_requests, workload.requests
    none = np.full(n, -1, np.int32)
    alone = old._replace(
        session=np.arange(n, dtype=np.int32),
        turn=np.zeros(n, np.int32),
        parent=none,
        release=np.full(n, AT_ARRIVAL, np.int8),
        gap=np.zeros(n),
        deps_start=np.zeros(n + 1, np.int64),
        deps=np.empty(0, np.int32),
        confirmed_child=none,
    )
    return replace(
        workload, requests=alone, session_ids=workload.request_ids, replay="timestamps", as_logged=None
    )


def rate_of(workload: Workload) -> float:
    """Session starts per second, between the first and the last. Raises UsageError when there is no time."""
    starts = workload.session_starts()
    span = float(np.ptp(starts)) if starts.size else 0.0
    if span <= 0:
        raise UsageError(
            "the trace has no rate: everything starts at once",
            place="--arrivals",
            expected="--rate, such as 6/s",
        )
    return (starts.size - 1) / span
