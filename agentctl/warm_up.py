"""The simulator compiled once, before several processes need it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from agentctl.policies.base import Policy
from agentctl.sim.driver import simulate
from agentctl.sim.pair_state import has_roles
from agentctl.workload import Workload, take_sessions

if TYPE_CHECKING:
    from agentctl.cluster import Cluster


def compile_first(pairs: Iterable[tuple[Policy, Cluster]], on: Workload) -> None:
    """One session of `on` with every policy, as (policy, cluster)."""
    first = take_sessions(on, np.array([0]), on.session_starts()[:1])
    for policy, cluster in {(one.name, has_roles(where)): (one, where) for one, where in pairs}.values():
        simulate(first, cluster, policy)
