"""Preble as released in AIBrix (prefix-cache-preble): a gate of load, then prefix or cost.

r counts the gateway's own requests on each engine. When the largest r exceeds the smallest by more than
`max_gap`, only the engines with the smallest r are candidates. If more than `match_ratio` of the prompt
matches, the candidate with the longest match wins, among equal ones the one that was sent the fewest
requests in the last `window_s`. Otherwise the least cost wins: for each request of the window that the engine
was sent, the share that missed * the time to prefill what missed + output_tokens * s_per_token. This
request's own work is not weighed.

Source: AIBrix 0.8.0. Its prefill times are fixed: Mistral-7B on a V100 (or an A6000, left out), whatever the
engines are. It counts per node of a prefix tree, all engines of a node alike; here every request counts on
the engine that it went to. Sees: hit tokens (of the gateway's own tree), the gateway's own requests in
flight. Ties: the lowest engine number (there in no order).

    max_gap        8     requests between the most and the least busy engine
    match_ratio    0.5   of the prompt
    window_s       180   s of the past that count
    output_tokens  45    tokens of an output
    s_per_token    0.15  s per output token
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit
from numpy.typing import NDArray

from agentctl.policies._only import among
from agentctl.policies._window import forget, note, recent_requests, recent_s, window_size
from agentctl.policies.base import FIRST, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    max_gap: float = 8.0
    match_ratio: float = 0.5
    window_s: float = 180.0
    output_tokens: float = 45.0
    s_per_token: float = 0.15
    tie: int = FIRST


@njit(cache=True)
def v100_prefill_s(new: int, prompt: int) -> float:
    """AIBrix's prefill time of `new` tokens in a context of `prompt`: Mistral-7B, V100. Fitted in pieces."""
    linear_ms = 55.0
    if new >= 384:
        linear_ms = 0.27106428 * new + 10.52444263
    elif new >= 192:
        linear_ms = -295 + 3.125 * new - 6.4e-3 * new * new
    attention_ms = 0.8 if prompt <= 1024 else 4.65e-4 * prompt + 0.398
    if prompt > 1024 and new <= 1024:
        attention_ms /= 2
    if new >= 4096:
        attention_ms += -18.425 + 9.65e-3 * new + 5.4e-6 * new * new
    return (linear_ms + attention_ms) / 1000 / 0.9


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[Any]:
    load, hit = view.inflight_requests, view.hit_tokens
    forget(view.memory, hit.size, view.now, my.window_s)
    most = load.min() if load.max() - load.min() > my.max_gap else load.max()
    if hit.max() <= my.match_ratio * requests.prompt_tokens[r]:
        return among(load <= most, recent_s(view.memory, hit.size))
    longest = (hit * (load <= most)).max()
    return among((load <= most) & (hit == longest), recent_requests(view.memory, hit.size))


@policy(
    "preble@aibrix",
    params=Params,
    source="AIBrix 0.8.0",
    sees=("hit_tokens", "inflight_requests"),
    memory=window_size,
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    engine = pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
    prompt = requests.prompt_tokens[r]
    new = prompt - view.hit_tokens.max()  # the tree is common to all engines
    seconds = new / prompt * v100_prefill_s(new, prompt) + my.output_tokens * my.s_per_token
    note(view.memory, view.hit_tokens.size, engine, view.now, seconds)
    return engine
