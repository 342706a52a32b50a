"""Prefix hashing: the first tokens of the prompt have a place on a ring; an overloaded engine passes them on.

An engine is overloaded when this router has more than `load_factor` times an even share of its requests in
flight there, this one included, and more than the share and `load_above`. The engine with the fewest requests
then wins; when all are overloaded, the one on the ring. Sessions with a common system prompt longer than
`prefix_tokens` all share one place. A client that sends X-SMG-Routing-Key has that hashed instead.

Source: smg 1.13.0, prefix_hash, run (docs/conformance.md). Sees: the first blocks of the prompt, the
router's own requests in flight. Ties: the first engine. A prompt shorter than `prefix_tokens` counts with its
whole blocks.

    prefix_tokens  256   tokens hashed, in whole blocks of the engines
    load_factor    1.25  of an even share of the requests in flight
    load_above     10    requests above an even share
    virtual_nodes  150   places of each engine on the ring
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from agentctl.policies._rings import ring_distances
from agentctl.policies.base import FIRST, no_second, pick_least, policy, prefix_key, tie_hash
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    prefix_tokens: float = 256.0
    load_factor: float = 1.25
    load_above: float = 10.0
    virtual_nodes: float = 150.0
    tie: int = FIRST


@policy(
    "prefix-hash",
    params=Params,
    source="smg 1.13.0",
    sees=("inflight_requests", "block_tokens", "path", "path_start", "path_stop"),
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    load = view.inflight_requests
    n_blocks = min(int(my.prefix_tokens), requests.prompt_tokens[r]) // view.block_tokens
    key = prefix_key(view, n_blocks) if n_blocks > 0 else -1 - r
    key = tie_hash(key >> 32, key)  # the ring takes 32 bits
    share = (load.sum() + 1) / load.size
    overloaded = (load > my.load_factor * share) & (load > share + my.load_above)
    home = int(np.argmin(ring_distances(key, load.size, int(my.virtual_nodes), view.seed)))
    if not overloaded[home] or overloaded.all():
        return home
    return pick_least(load, no_second(load), view.seed, view.last_chosen, r, my.tie)
