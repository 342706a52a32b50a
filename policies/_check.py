"""Does a user's policy work? Compile it, run it, and compare what it does compiled and as plain Python."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from numba.extending import is_jitted

from agentctl.cluster import Cluster
from agentctl.errors import ConfigError
from agentctl.policies._sample import ENGINES, TURNS, sample_cluster, sample_workload
from agentctl.policies.base import Policy
from agentctl.sim.driver import simulate
from agentctl.sim.outcome import Outcome

SESSIONS = 20  # 100 requests
MORE_COMPILED, MORE_PLAIN = 2_000, 40  # sessions more, for the speed: start-up is left out


@dataclass(frozen=True)
class Checked:
    """What a policy did on the sample workload.

    is_compiled  the function is decorated; a plain one was compiled too, or `why_not`
    differs_at   first request that compiled and plain Python treat differently; None: none, or one form only
    """

    policy: Policy
    is_compiled: bool
    why_not: str | None
    requests: int
    per_engine: tuple[int, ...]
    differs_at: int | None
    compiled_per_s: float | None  # simulated requests
    plain_per_s: float


def check_policy(policy: Policy) -> Checked:
    """Raises ConfigError for a policy that cannot be used: see agentctl.sim.bound."""
    workload, cluster = sample_workload(SESSIONS), sample_cluster()
    is_compiled = is_jitted(policy.choose)
    plain = replace(policy, choose=getattr(policy.choose, "py_func", policy.choose))
    compiled = policy if is_compiled else replace(policy, choose=njit(plain.choose))
    compiled_run, why_not = None, None
    try:
        compiled_run = simulate(workload, cluster, compiled)
    except ConfigError as error:
        if is_compiled:
            simulate(workload, cluster, plain)  # which knows more of what went wrong: the line, the request
            raise
        why_not = error.message
    plain_run = simulate(workload, cluster, plain)
    return Checked(
        policy=policy,
        is_compiled=is_compiled,
        why_not=why_not,
        requests=workload.n_requests,
        per_engine=tuple(np.bincount(plain_run.engine, minlength=ENGINES).tolist()),
        differs_at=None if compiled_run is None else _first_difference(compiled_run, plain_run),
        compiled_per_s=None if compiled_run is None else _speed(compiled, cluster, MORE_COMPILED),
        plain_per_s=_speed(plain, cluster, MORE_PLAIN),
    )


def _first_difference(a: Outcome, b: Outcome) -> int | None:
    """The first request, by arrival, of which any bit of the outcome differs."""
    one, other = a.table(), b.table()
    if one.equals(other):
        return None
    rows = zip(one.to_pylist(), other.to_pylist(), strict=True)
    return next(r for r, (x, y) in enumerate(rows) if x != y)


def _speed(policy: Policy, cluster: Cluster, more_sessions: int) -> float:
    """Requests simulated in a second under this policy, by the difference of two runs."""
    seconds = []
    for n_sessions in (SESSIONS, SESSIONS + more_sessions):
        workload = sample_workload(n_sessions)
        start = time.perf_counter()
        simulate(workload, cluster, policy)
        seconds.append(time.perf_counter() - start)
    return more_sessions * TURNS / max(seconds[1] - seconds[0], 1e-9)
