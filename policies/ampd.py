"""AMPD [reconstruction]: each later prompt is computed where it is done first, while decodes stay fast.

Sessions are bound to decoders as in `conserve-pd`, turn by turn; first prompts go to prefill engines. A later
one stays on its decoder if a step there with its chunk keeps `tbt_slo_s`, and if it is done there within
`ttft_slo_s` or before the best prefill engine would be. Decisions are flipped with probability `error_share`.
AMPD's text was not available: what is known is that each incremental prefill goes to the bound decoder or a
prefill engine by their load, and that 14 to 32 % should stay local. Its reordering of prefill queues and its
planner of engine counts are not here; `recommend` compares counts.

Source: AMPD (arXiv 2602.14516), reconstructed. Sees: what ConServe sees; pending prefill tokens, hit tokens,
running requests, context tokens; the network. Ties: local; then the lowest engine number.

    ttft_slo_s   1      s
    tbt_slo_s    0.05   s between tokens
    chunk_tokens 2048   of a prompt in one step of a decoder
    error_share  0      of decisions that are flipped
    b0, b_prefill, b_decode, b_context  the profile's
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies._local_or_remote import local_seconds, remote, step_seconds
from agentctl.policies._pools import (
    books_size,
    decoder_of,
    has_decoders,
    has_moved,
    least_outstanding,
    put_in,
    read_up,
)
from agentctl.policies.base import Share, policy, tie_hash
from agentctl.sim.roles import hand_over
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    ttft_slo_s: float = 1.0
    tbt_slo_s: float = 0.05
    chunk_tokens: float = 2048.0
    error_share: Share = 0.0
    b0: float = float("nan")
    b_prefill: float = float("nan")
    b_decode: float = float("nan")
    b_context: float = float("nan")


@njit(cache=True)
def stays(view: View, requests: Requests, r: int, decoder: int, my: Params) -> bool:
    """Whether r's prompt is computed on its decoder."""
    chunk = min(float(requests.prompt_tokens[r] - view.hit_tokens[decoder]), my.chunk_tokens)
    step = step_seconds(view, decoder, my.b0, my.b_decode, my.b_context, my.b_prefill * chunk)
    local = local_seconds(view, requests, r, decoder)
    _, there = remote(view, requests, r, decoder)
    return step <= my.tbt_slo_s and (local <= my.ttft_slo_s or local <= there)


@policy(
    "ampd",
    params=Params,
    source="AMPD, arXiv 2602.14516, reconstructed",
    sees=("kv_total_blocks", "block_tokens", "inflight_prefill_tokens", "roles", "over",
          "pending_prefill_tokens", "hit_tokens", "running_requests", "context_tokens"),
    from_profile={"b0": "b0", "b_prefill": "b_prefill", "b_decode": "b_decode", "b_context": "b_context"},
    memory=books_size,
    places=True,
)  # fmt: skip
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    read_up(view, requests)
    decoder = decoder_of(view, requests, r, float(put_in(requests, r)))
    if decoder < 0 or not has_decoders(view):
        return decoder
    if not has_moved(view, requests, r):
        return hand_over(least_outstanding(view), decoder)
    local = stays(view, requests, r, decoder, my)
    if my.error_share > 0 and tie_hash(view.seed, r) < my.error_share * 2.0**32:
        local = not local
    if local:
        return decoder
    engine, _ = remote(view, requests, r, decoder)
    return hand_over(engine, decoder)
