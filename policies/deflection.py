"""Load-aware deflection [reconstruction]: a decoder computes a prompt itself where that is done sooner.

The decoder is the one with most of the prompt's tokens, then the fewest in use. It computes the prompt if a
step with a chunk of it keeps `tbt_slo_s` and the prompt is done before the best prefill engine's would be on
it; else that prefill engine does. The chunk that a decoder takes is its own limit, not the router's.

Source: load-aware prefill deflection, Kairos (arXiv 2607.02043), reconstructed from its abstract. Sees:
roles, hit tokens, pending prefill tokens, running requests, context tokens, the network. Ties: the lowest
engine number.

    tbt_slo_s    0.05   s between tokens
    chunk_tokens 2048   of a prompt in one step of a decoder
    b0, b_prefill, b_decode, b_context  the profile's
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies._local_or_remote import local_seconds, remote, step_seconds
from agentctl.policies._pools import decodes, has_decoders
from agentctl.policies.base import policy
from agentctl.sim.roles import hand_over
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    tbt_slo_s: float = 0.05
    chunk_tokens: float = 2048.0
    b0: float = float("nan")
    b_prefill: float = float("nan")
    b_decode: float = float("nan")
    b_context: float = float("nan")


@njit(cache=True)
def best_decoder(view: View) -> int:
    best = -1
    for e in range(view.roles.size):
        if not decodes(view, e):
            continue
        is_more = best < 0 or view.hit_tokens[e] > view.hit_tokens[best]
        is_same = best >= 0 and view.hit_tokens[e] == view.hit_tokens[best]
        if is_more or (is_same and view.context_tokens[e] < view.context_tokens[best]):
            best = e
    return best


@policy(
    "deflection",
    params=Params,
    source="Kairos, arXiv 2607.02043, reconstructed",
    sees=("roles", "hit_tokens", "pending_prefill_tokens", "running_requests", "context_tokens"),
    from_profile={"b0": "b0", "b_prefill": "b_prefill", "b_decode": "b_decode", "b_context": "b_context"},
    places=True,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    decoder = best_decoder(view)
    if not has_decoders(view):
        return decoder
    chunk = min(float(requests.prompt_tokens[r] - view.hit_tokens[decoder]), my.chunk_tokens)
    step = step_seconds(view, decoder, my.b0, my.b_decode, my.b_context, my.b_prefill * chunk)
    engine, there = remote(view, requests, r, decoder)
    if step <= my.tbt_slo_s and local_seconds(view, requests, r, decoder) <= there:
        return decoder
    return hand_over(engine, decoder)
