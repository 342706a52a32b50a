"""Hybrid-sticky: a session stays on its engine until that is overloaded, then it moves and stays there.

By tokens (the default), load is queued prefill plus active tokens, q + a, and home is overloaded above
`factor` times the mean. By time, it is the seconds of prefill that the engine would have with this request
(`smetric`'s cost), and home is overloaded above `factor` times the least. New and moving sessions go to the
least load. Unlike `smetric` it needs to know sessions, and does not ask whether the KV is still there.

Source: session affinity with an escape, an idea of public working notes. Sees: the session, pending prefill
(tokens and pairs), context tokens, hit tokens. Ties rotate.

    factor       2        above it times the mean load (by tokens) or the least (by time) a session moves
    by_time      0        0: load in tokens, 1: in seconds
    c_linear     profile  s per new token; the profile's b_prefill
    c_attention  profile  s per pair of tokens; the profile's b_attention
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies._only import only
from agentctl.policies._seconds import until_prefilled_s
from agentctl.policies.base import ROTATE, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    factor: float = 2.0
    by_time: float = 0.0
    c_linear: float = math.nan
    c_attention: float = math.nan
    tie: int = ROTATE


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    if my.by_time > 0:
        load = until_prefilled_s(view, requests.prompt_tokens[r], my)
        most = my.factor * load.min()
    else:
        load = (view.pending_prefill_tokens + view.context_tokens) * 1.0
        most = my.factor * load.mean()
    home = int(view.memory[requests.session[r]]) - 1  # zeros at first: no home
    return only(home, load) if home >= 0 and load[home] <= most else load


@policy(
    "hybrid-sticky",
    params=Params,
    source="public working notes",
    sees=("pending_prefill_tokens", "pending_prefill_pairs", "context_tokens", "hit_tokens"),
    from_profile={"c_linear": "b_prefill", "c_attention": "b_attention"},
    memory=lambda n_requests, n_sessions, n_engines: n_sessions,
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    engine = pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
    view.memory[requests.session[r]] = engine + 1
    return engine
