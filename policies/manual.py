"""Sticky sessions of the SGLang routers: a session stays where its first request went.

A new session, or one without a request for `idle_s`, is assigned by `assignment_mode`; later requests follow
it whatever the load. Nothing ever moves a busy session.

Source: sglang-router 0.3.2 and smg 1.13.0, manual. Sees: the session, the router's own requests in flight.
Ties: random. min_group counts sessions with a request in flight; here it counts requests in flight, which is
the same for sessions that send one request at a time.

    assignment_mode  0      0 random, 1 min_load, 2 min_group
    idle_s           14400  s without a request after which the session is new again
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies._sessions import bind, home_of
from agentctl.policies.base import RANDOM, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    assignment_mode: float = 0.0
    idle_s: float = 14_400.0
    tie: int = RANDOM


@policy(
    "manual",
    params=Params,
    source="sglang-router 0.3.2, smg 1.13.0",
    sees=("inflight_requests",),
    memory=lambda n_requests, n_sessions, n_engines: 2 * n_sessions,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    load, session = view.inflight_requests, requests.session[r]
    engine = home_of(view.memory, 0, session, view.now, my.idle_s)
    if engine < 0:
        score = load * (my.assignment_mode > 0)  # random: all are equal
        engine = pick_least(score, no_second(load), view.seed, view.last_chosen, r, my.tie)
    bind(view.memory, 0, session, engine, view.now)
    return engine
