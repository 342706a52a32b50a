"""Sticky sessions of vllm-router: a new session goes where the fewest live sessions are, and stays there.

A session is live until it has had no request for `ttl_s`; clients may end it earlier by a call, which is not
simulated. Expired sessions are looked for once a minute. Sessions are counted, not their size or their load.

Source: vllm-router 0.1.17, sticky_least_loaded. Sees: the session. Ties: by a hash of session and engine.

    ttl_s  7200  s without a request after which a session no longer counts
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from agentctl.policies._rings import rendezvous
from agentctl.policies._sessions import Memory, bind, home_of
from agentctl.policies.base import FIRST, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests

SWEEP_S = 60.0


class Params(NamedTuple):
    ttl_s: float = 7_200.0


@njit(cache=True)
def _sweep(memory: Memory, n_engines: int, now: float, ttl_s: float) -> None:
    """Forget the sessions that expired, at most once a minute. Memory: the last sweep, live sessions per
    engine, the sessions."""
    if now - memory[0] < SWEEP_S:
        return
    memory[0] = now
    at = 1 + n_engines
    for place in range(at, memory.size, 2):
        if memory[place] > 0 and now - memory[place + 1] >= ttl_s:
            memory[int(memory[place])] -= 1  # engine + 1 is where its count is
            memory[place] = 0


@policy(
    "sticky-least-loaded",
    params=Params,
    source="vllm-router 0.1.17",
    memory=lambda n_requests, n_sessions, n_engines: 1 + n_engines + 2 * n_sessions,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    memory, n, session = view.memory, view.waiting_requests.size, int(requests.session[r])
    _sweep(memory, n, view.now, my.ttl_s)
    engine = home_of(memory, 1 + n, session, view.now, np.inf)
    if engine < 0:
        engine = pick_least(memory[1 : 1 + n], -rendezvous(session, n, view.seed), 0, -1, r, FIRST)
        memory[1 + engine] += 1
    bind(memory, 1 + n, session, engine, view.now)
    return engine
