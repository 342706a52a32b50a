"""Prefix-aware routing of vLLM production-stack: any engine that got the longest part of the prompt.

The router's trie forgets nothing and load does not count: a common prefix draws everything to the engine
that got it first. A match below `min_match_characters` goes to the engine with the fewest requests in the
last `window_s`, the first of them.

Source: vLLM production-stack of 2026-08, prefixaware. Sees: hit tokens (of the router's own trie). Ties:
random.

    min_match_characters  0   four to a token; 0: every match counts, also none
    window_s              60  s of own requests that count as the rate
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies._rates import note_request, rates_size, recent_requests
from agentctl.policies.base import FIRST, RANDOM, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests

CHARACTERS_PER_TOKEN = 4


class Params(NamedTuple):
    min_match_characters: float = 0.0
    window_s: float = 60.0
    tie: int = RANDOM


@policy(
    "prefixaware",
    params=Params,
    source="vLLM production-stack, 2026-08",
    sees=("hit_tokens",),
    memory=rates_size,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    hit = view.hit_tokens
    rate = recent_requests(view.memory, hit.size, view.now, my.window_s)
    if CHARACTERS_PER_TOKEN * hit.max() >= my.min_match_characters:
        engine = pick_least(-hit, no_second(hit), view.seed, view.last_chosen, r, my.tie)
    else:
        engine = pick_least(rate, no_second(hit), view.seed, view.last_chosen, r, FIRST)
    note_request(view.memory, hit.size, engine, view.now)
    return engine
