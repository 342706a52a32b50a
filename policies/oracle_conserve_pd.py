"""ConServe as its authors ran it: the KV that a session will need is known when it starts.

As `conserve-pd`, but a session reserves what all its turns will put in. No router can know that.

Source: ConServe (arXiv 2606.01839) and its code, eicchen/conserve @ 4ab277d. Sees: the session, its future
and its end, roles, KV blocks in total, its own prefill tokens in flight. Ties: the lowest engine number.

    error_share  0  of later turns that are sent to a prefill engine by mistake
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies._pools import TOTAL, at_session, books_size, read_up
from agentctl.policies.base import Share, policy
from agentctl.policies.conserve_pd import place_session
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    error_share: Share = 0.0


@policy(
    "oracle-conserve-pd",
    params=Params,
    source="ConServe, arXiv 2606.01839",
    sees=("kv_total_blocks", "block_tokens", "inflight_prefill_tokens", "roles", "over"),
    memory=books_size,
    places=True,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    read_up(view, requests)
    need = view.memory[at_session(view, requests.session[r]) + TOTAL]
    return place_session(view, requests, r, need, my.error_share)
