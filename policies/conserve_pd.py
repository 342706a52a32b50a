"""ConServe: a session's first prompt is computed on a prefill engine, its KV moves once, and there it stays.

A session is bound to the decoder with most KV unreserved when its first request arrives, and waits at the
router until its need fits (agentctl.policies._pools says what a need is). One that needs more than any
decoder has keeps the largest for itself; a request that fits nowhere is refused.
Its first prompt goes to the prefill engine whose outstanding uncached tokens take least time, later turns run
on the decoder, prompts included. Needs are reserved turn by turn, without a check after the first
(`quantile` 0: ConServe's per-turn variant), or from the start what that share of the ended sessions needed.
Without prefill engines this is ConServe's collocated baseline: sessions pinned and held back in the same way.
A later turn is misplaced, computed on a prefill engine and moved again, with probability `error_share`.

Source: ConServe (arXiv 2606.01839) and its code, eicchen/conserve @ 4ab277d; the choice of one of several
prefill engines is ours. Sees: the session and its end, roles, KV blocks in total, its own prefill tokens in
flight. Ties: the lowest engine number. One gateway only.

    quantile     0  0: turn by turn; above: of the needs of ended sessions, reserved at the start
    error_share  0  of later turns that are sent to a prefill engine by mistake
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies._pools import (
    books_size,
    decoder_of,
    final_quantile,
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
    quantile: Share = 0.0
    error_share: Share = 0.0


@njit(cache=True)
def place_session(view: View, requests: Requests, r: int, need: float, error_share: float) -> int:
    """The placement of request r, whose session needs so many tokens if it is not bound yet."""
    decoder = decoder_of(view, requests, r, need)
    if decoder < 0 or not has_decoders(view):
        return decoder
    is_wrong = error_share > 0 and tie_hash(view.seed, r) < error_share * 2.0**32
    if not has_moved(view, requests, r) or is_wrong:
        return hand_over(least_outstanding(view), decoder)
    return decoder


@policy(
    "conserve-pd",
    params=Params,
    source="ConServe, arXiv 2606.01839",
    sees=("kv_total_blocks", "block_tokens", "inflight_prefill_tokens", "roles", "over"),
    memory=books_size,
    places=True,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    read_up(view, requests)
    need = float(put_in(requests, r))
    if my.quantile > 0:
        need = max(need, final_quantile(view, my.quantile))
    return place_session(view, requests, r, need, my.error_share)
