"""Consistent hashing: every session has its place on a ring, and the next engine along the ring serves it.

No load and no cache is looked at, no table is kept, and any number of routers agree. How even the engines'
shares of the ring are depends on the virtual nodes; how even their loads are is luck. The places are
hashes of the seed and the engine's number, where routers hash addresses.

Source: consistent_hash of vllm-router 0.1.17, consistent_hashing of smg 1.13.0, session of vLLM's
production-stack. Sees: the session. Cannot tie.

    virtual_nodes  160  places of each engine on the ring
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from agentctl.policies._rings import ring_distances
from agentctl.policies.base import policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    virtual_nodes: float = 160.0


@policy(
    "consistent-hash",
    params=Params,
    source="vllm-router 0.1.17, smg 1.13.0, production-stack",
    memory=lambda n_requests, n_sessions, n_engines: n_sessions,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    session, n = int(requests.session[r]), view.waiting_requests.size
    if view.memory[session] == 0:  # the ring is asked once for a session
        nodes = int(my.virtual_nodes)
        view.memory[session] = 1 + np.argmin(ring_distances(session, n, nodes, view.seed))
    return int(view.memory[session]) - 1
