"""KV-aware routing of vLLM's production-stack: the engine that holds nearly the whole prompt.

The engine with the longest hit wins when all but `threshold` tokens of the prompt hit there. Otherwise,
and when nothing hits, the engine with the fewest requests in the last `window_s`. A hit short of that is
lost, and load does not count where it is long enough.

Source: vLLM production-stack of 2026-08, kvaware (it asks LMCache's controller). Sees: hit tokens. Ties:
the first engine.

    threshold  2000  tokens of the prompt that need not hit
    window_s   60    s of own requests that count as the rate
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies._rates import note_request, rates_size, recent_requests
from agentctl.policies.base import FIRST, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    threshold: float = 2_000.0
    window_s: float = 60.0
    tie: int = FIRST


@policy(
    "kvaware",
    params=Params,
    source="vLLM production-stack, 2026-08",
    sees=("hit_tokens",),
    memory=rates_size,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    hit = view.hit_tokens
    rate = recent_requests(view.memory, hit.size, view.now, my.window_s)
    enough = hit.max() > 0 and hit.max() >= requests.prompt_tokens[r] - my.threshold
    score = -hit if enough else rate
    engine = pick_least(score, no_second(hit), view.seed, view.last_chosen, r, my.tie)
    note_request(view.memory, hit.size, engine, view.now)
    return engine
