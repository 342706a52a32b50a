"""llm-d's endpoint picker: filters, then a weighted sum of scores from 0 to 1, then a picker.

Filters. With `session_filter`, only the engine the session is bound to. With `affinity_filter`, only the
engines S that hold at least `affinity_threshold` of the prompt, unless there are none, only one candidate,
or a draw of `exploration_probability` says otherwise, or the least TTFT in S exceeds the least outside by
more than `max_ttft_penalty_ms` (0: never); TTFT is this router's prefill tokens in flight over
`peak_prefill_throughput`.

Scores, over the candidates, each times its weight, most wins:

    queue           1 at the fewest waiting, 0 at the most; 1 for all when equal
    running         the same with running requests
    kv              share of KV blocks free
    load_aware      0.5 without a queue, falling to 0 at `load_threshold` waiting
    active_request  1 up to `idle_threshold` own requests, else max_busy_score (most - F) / most
    token_load      1 - (T + n) / queue_threshold_tokens: own prefill tokens with this request's uncached ones
    prefix          (1 - m) h / L + m min(1, h / match_length_scale_tokens)^2, m the match_length_weight
    no_hit_lru      0.5 when any engine has a hit; else 1 to 0 by rank: engines that never got such a
                    request in list order, then those that got one longest ago
    session         1 for the engine the session is bound to, else 0

A session is bound to the engine of its first request and is bound anew when that engine is no candidate or
after `session_ttl_s` without a request.

A hit h counts tokens in an engine's own KV tiers, behind those that it holds, at 0.8 each, in whole blocks.

Source: llm-d-router after v0.10.0 (main of 2026-08-22). Sees: hit tokens, in tiers too; waiting
and running requests, KV blocks in use and in total as scraped; the router's own requests and prefill tokens
in flight; the session. Ties: random.

    queue_weight             2         of the score; this and the next two are the default profile
    kv_weight                2         of the score
    prefix_weight            3         of the score
    running_weight           0         of the score
    load_aware_weight        0         of the score
    active_request_weight    0         of the score
    token_load_weight        0         of the score
    no_hit_lru_weight        0         of the score
    session_weight           0         of the score
    load_threshold           128       waiting requests from which an engine counts as full
    idle_threshold           0         own requests up to which an engine counts as idle
    max_busy_score           1         of an engine that is not idle
    queue_threshold_tokens   4194304   tokens from which an engine counts as full
    match_length_weight      0         of the length of the match against its share of the prompt
    match_length_scale_tokens 8192     tokens of match that count as full
    session_ttl_s            300       s without a request after which a session is forgotten
    session_filter           0         1: on
    affinity_filter          0         1: on
    affinity_threshold       0.8       share of the prompt
    exploration_probability  0         of leaving the affinity filter out
    max_ttft_penalty_ms      18000     ms
    peak_prefill_throughput  15928     tokens/s; a 32B model on two H100, to be calibrated
    weighted_random          0         0: the highest score; 1: drawn in proportion to the score
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies._candidates import Candidates, least_among, most_among
from agentctl.policies._draws import draw
from agentctl.policies._sessions import Memory, bind, home_of
from agentctl.policies.base import RANDOM, no_second, pick_least, policy, tie_hash
from agentctl.sim.view import View
from agentctl.workload import Requests

EXPLORE = 0x2545F491  # keeps the draw of exploration apart from that of ties


HOST_WEIGHT = 0.8  # of a block in the memory of the host


class Params(NamedTuple):
    queue_weight: float = 2.0
    kv_weight: float = 2.0
    prefix_weight: float = 3.0
    running_weight: float = 0.0
    load_aware_weight: float = 0.0
    active_request_weight: float = 0.0
    token_load_weight: float = 0.0
    no_hit_lru_weight: float = 0.0
    session_weight: float = 0.0
    load_threshold: float = 128.0
    idle_threshold: float = 0.0
    max_busy_score: float = 1.0
    queue_threshold_tokens: float = 4_194_304.0
    match_length_weight: float = 0.0
    match_length_scale_tokens: float = 8_192.0
    session_ttl_s: float = 300.0
    session_filter: float = 0.0
    affinity_filter: float = 0.0
    affinity_threshold: float = 0.8
    exploration_probability: float = 0.0
    max_ttft_penalty_ms: float = 18_000.0
    peak_prefill_throughput: float = 15_928.0
    weighted_random: float = 0.0
    tie: int = RANDOM


@njit(cache=True)
def held(view: View) -> NDArray[np.float64]:
    """Tokens of the prompt that engines hold, and what their own KV tiers add, weighted, in whole blocks."""
    block = view.block_tokens
    return view.hit_tokens + HOST_WEIGHT * view.host_hit_tokens // block * block


@njit(cache=True)
def affine(view: View, prompt: int, r: int, my: Params) -> Candidates:
    """The candidates that the affinity filter leaves of all engines."""
    holds = held(view) >= my.affinity_threshold * prompt
    explores = tie_hash(view.seed ^ EXPLORE, r) < my.exploration_probability * 2**32
    inside = least_among(view.inflight_prefill_tokens, holds)
    outside = least_among(view.inflight_prefill_tokens, ~holds)
    penalty_ms = 1_000 * (inside - outside) / my.peak_prefill_throughput
    too_late = my.max_ttft_penalty_ms > 0 and penalty_ms > my.max_ttft_penalty_ms
    if explores or too_late or inside == np.inf:
        return np.ones(holds.size, np.bool_)
    return holds


@njit(cache=True)
def scores(view: View, prompt: int, my: Params, among: Candidates, home: int) -> NDArray[np.float64]:
    """The weighted sum of all scores for each candidate; minus infinite for engines that are none."""
    waiting, running, own = view.waiting_requests, view.running_requests, view.inflight_requests
    least_waiting, most_waiting = least_among(waiting, among), most_among(waiting, among)
    least_running, most_running = least_among(running, among), most_among(running, among)
    hits = held(view)
    most_own, is_cold = most_among(own, among), most_among(hits, among) == 0
    cold_at = view.memory[1 : 1 + among.size]
    total = np.full(among.size, -np.inf)
    for e in range(among.size):
        if not among[e]:
            continue
        hit, busy = hits[e], 1.0
        if own[e] > my.idle_threshold:
            busy = my.max_busy_score * (most_own - own[e]) / most_own
        length = min(hit / my.match_length_scale_tokens, 1.0) ** 2
        tokens = view.inflight_prefill_tokens[e] + (prompt - hit)
        total[e] = (
            my.queue_weight * fewest(waiting[e], least_waiting, most_waiting)
            + my.running_weight * fewest(running[e], least_running, most_running)
            + my.kv_weight * clip(1 - view.kv_used_blocks[e] / view.kv_total_blocks[e])
            + my.load_aware_weight * clip(0.5 * (1 - waiting[e] / my.load_threshold))
            + my.active_request_weight * clip(busy)
            + my.token_load_weight * clip(1 - tokens / my.queue_threshold_tokens)
            + my.prefix_weight * clip(hit / prompt + my.match_length_weight * (length - hit / prompt))
            + my.no_hit_lru_weight * (coldest(e, cold_at, among) if is_cold else 0.5)
            + my.session_weight * (e == home)
        )
    return total


@njit(cache=True)
def fewest(count: float, least: float, most: float) -> float:
    """1 for the fewest of the candidates, 0 for the most; 1 when all are equal."""
    return (most - count) / (most - least) if most > least else 1.0


@njit(cache=True)
def coldest(engine: int, cold_at: Memory, among: Candidates) -> float:
    """1 to 0 by the engine's rank. cold_at: the number of its last request without a hit, 0 for none."""
    n, rank = 0, 0
    for other in range(among.size):
        n += among[other]
        if cold_at[engine] > 0 and cold_at[other] > 0:
            rank += cold_at[other] < cold_at[engine]
        elif cold_at[other] == 0 and among[other]:
            rank += cold_at[engine] > 0 or other < engine
    return clip(1 - rank / max(n - 1, 1))


@njit(cache=True)
def clip(score: float) -> float:
    return min(max(score, 0.0), 1.0)


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[np.float64]:
    """The negative score; infinite for engines that are filtered out."""
    prompt, n = requests.prompt_tokens[r], view.hit_tokens.size
    home = home_of(view.memory, 1 + n, requests.session[r], view.now, my.session_ttl_s)
    among = np.ones(n, np.bool_)
    if my.session_filter > 0 and home >= 0:
        among = np.zeros(n, np.bool_)
        among[home] = True
    elif my.affinity_filter > 0:
        among = affine(view, prompt, r, my)
    return -scores(view, prompt, my, among, home)


@policy(
    "llm-d",
    params=Params,
    source="llm-d-router, main of 2026-08-22",
    sees=(
        "hit_tokens",
        "host_hit_tokens",
        "block_tokens",
        "waiting_requests",
        "running_requests",
        "kv_used_blocks",
        "kv_total_blocks",
        "inflight_requests",
        "inflight_prefill_tokens",
    ),
    memory=lambda n_requests, n_sessions, n_engines: 1 + n_engines + 2 * n_sessions,
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs, memory, n = cost(view, requests, r, my), view.memory, view.hit_tokens.size
    if my.weighted_random > 0:
        engine = draw(np.maximum(-costs, 0.0), view.seed, r)
    else:
        engine = pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
    if my.no_hit_lru_weight > 0 and held(view).max() == 0:
        memory[0] += 1  # requests without a hit so far
        memory[1 + engine] = memory[0]
    session = requests.session[r]
    home = home_of(memory, 1 + n, session, view.now, my.session_ttl_s)
    stays = home >= 0 and costs[home] < np.inf
    bind(memory, 1 + n, session, home if stays else engine, view.now)
    return engine
