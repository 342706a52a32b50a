"""PPD: a session's first prompt is computed on a prefill engine, later ones where the session is decoded.

Like ConServe without its books: nobody reserves and nobody waits. A session is bound to the decoder with
fewest tokens in use or on the way when its first request arrives.

Source: PPD (arXiv 2603.13358), whose append-prefill runs on the decoder; the choice of engines is ours. Sees:
the session, roles, context tokens, its own prefill tokens in flight. Ties: the lowest engine number.
"""

from __future__ import annotations

from numba import njit

from agentctl.policies._pools import decodes, has_decoders, least_outstanding
from agentctl.policies.base import NoParams, policy
from agentctl.sim.roles import hand_over
from agentctl.sim.view import View
from agentctl.workload import Requests


@njit(cache=True)
def least_context(view: View) -> int:
    best = -1
    for e in range(view.roles.size):
        if decodes(view, e) and (best < 0 or view.context_tokens[e] < view.context_tokens[best]):
            best = e
    return best


@policy(
    "ppd",
    source="PPD, arXiv 2603.13358",
    sees=("context_tokens", "inflight_prefill_tokens", "roles"),
    memory=lambda n_requests, n_sessions, n_engines: n_sessions,
    places=True,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: NoParams) -> int:
    session = requests.session[r]
    decoder = int(view.memory[session]) - 1
    if decoder >= 0:
        return decoder
    decoder = least_context(view)
    view.memory[session] = decoder + 1
    return hand_over(least_outstanding(view), decoder) if has_decoders(view) else decoder
