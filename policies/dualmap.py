"""DualMap: two hashes of the prefix name two engines; affinity decides between them until the SLO is at risk.

The engine of the two with the longer hit wins while its pending prefill, this prompt's included, fits into
the budget, c_linear tokens <= slo_share * slo_s; beyond that the smaller pending prefill wins. Equal hits or
pending tokens: the one with less KV in use. A session that shares no more than the hashed prefix with others
finds its KV on one of two engines, and prefixes spread over all.

The hash takes the first `hash_tokens` of the prompt. A prefix that makes up more than hot_factor / engines of
the last 200 requests (of 20 at least) is hot: from the next request on, prompts that begin with it are hashed
by one more length of hash_tokens. Nothing shortens a hash again.

Source: DualMap (arXiv 2602.06502) and its code. Migration of waiting requests inside the pair is left out: a
request that is sent stays. Sees: the first blocks of the prompt, hit tokens, pending prefill tokens, KV
blocks in use. Ties: random. The seed places prefixes: another seed, other pairs.

    slo_s        5        s of TTFT
    slo_share    1        of it that may be pending (their start script has 0.5)
    hash_tokens  512      tokens of a length of the hash
    hot_factor   2        shares of an engine above which a prefix is hot
    c_linear     profile  s per pending token; the profile's b_prefill
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies._only import among
from agentctl.policies.base import RANDOM, pick_least, policy, prefix_key, tie_hash
from agentctl.sim.view import View
from agentctl.workload import Requests

WINDOW, FEWEST = 200, 20  # requests whose prefixes are remembered, and that are needed to call one hot
# Memory: the number of requests so far, the hashed prefixes of the last WINDOW, and a table of hot prefixes
# with two places per request, open addressing, 0: free.
TABLE = 1 + WINDOW


class Params(NamedTuple):
    slo_s: float = 5.0
    slo_share: float = 1.0
    hash_tokens: float = 512.0
    hot_factor: float = 2.0
    c_linear: float = math.nan
    tie: int = RANDOM


@njit(cache=True)
def place_of(memory: NDArray[np.float64], name: float) -> int:
    """Where prefix `name` stands in the table, or the free place for it."""
    size = memory.size - TABLE
    place = tie_hash(int(name) >> 20, int(name)) % size
    while memory[TABLE + place] != 0 and memory[TABLE + place] != name:
        place = (place + 1) % size
    return TABLE + place


@njit(cache=True)
def hashed_prefix(view: View, prompt: int, r: int, my: Params) -> tuple[float, bool]:
    """(A name of the prefix that is hashed, whether the prompt goes on after it.)

    Names are whole numbers > 0 that a float holds exactly: line * 2^20 + blocks. A prompt without a whole
    block has a name of its own.
    """
    unit = max(int(my.hash_tokens) // view.block_tokens, 1)
    most, n_blocks, name = prompt // view.block_tokens, 0, 0.0
    if most == 0:
        return 2.0**52 + r, False
    while n_blocks == 0 or (n_blocks < most and view.memory[place_of(view.memory, name)] != 0):
        n_blocks = min(n_blocks + unit, most)
        key = prefix_key(view, n_blocks)
        name = float((key >> 32) * 2**20 + (key & 0xFFFFFFFF))
    return name, n_blocks < most


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    """For the pair: the negative hit, or pending tokens once the engine with the longer hit has too many."""
    n, prompt = view.hit_tokens.size, requests.prompt_tokens[r]
    name, _ = hashed_prefix(view, prompt, r, my)
    mixed = tie_hash(tie_hash(view.seed, int(name) >> 20), int(name))
    first, second = tie_hash(mixed, 1) % n, tie_hash(mixed, 2) % n
    if first == second:
        second = (first + 1) % n
    is_of_pair = np.zeros(n, np.bool_)
    is_of_pair[first] = is_of_pair[second] = True
    by_hit = among(is_of_pair, -view.hit_tokens)
    by_load = among(is_of_pair, view.pending_prefill_tokens + (prompt - view.hit_tokens))
    affine = pick_least(by_hit, view.kv_used_blocks, view.seed, view.last_chosen, r, my.tie)
    if my.c_linear * by_load[affine] <= my.slo_share * my.slo_s:
        return by_hit
    return by_load


@policy(
    "dualmap",
    params=Params,
    source="DualMap, arXiv 2602.06502",
    sees=(
        "hit_tokens", "pending_prefill_tokens", "kv_used_blocks", "block_tokens", "path", "path_start",
        "path_stop",
    ),
    from_profile={"c_linear": "b_prefill"},
    memory=lambda n_requests, n_sessions, n_engines: TABLE + 2 * n_requests,
    cost=cost,
)  # fmt: skip
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    memory, costs = view.memory, cost(view, requests, r, my)
    engine = pick_least(costs, view.kv_used_blocks, view.seed, view.last_chosen, r, my.tie)
    name, goes_on = hashed_prefix(view, requests.prompt_tokens[r], r, my)
    memory[1 + int(memory[0]) % WINDOW] = name
    memory[0] += 1
    n_seen, n_same = int(min(memory[0], WINDOW)), 0
    for place in range(1, 1 + n_seen):
        n_same += memory[place] == name
    if goes_on and n_seen >= FEWEST and n_same * costs.size > my.hot_factor * n_seen:
        memory[place_of(memory, name)] = name
    return engine
