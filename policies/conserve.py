"""ConServe's placement on collocated engines: a new session goes where most KV is unreserved, and stays.

free = the engine's KV less what its sessions have reserved, most wins. A session reserves its prompt, and
more with every turn as its context grows (`quantile` 0, ConServe's per-turn variant, here without the output
that a router cannot know before the next turn shows it), or from the start what that share of the ended
sessions did not exceed. Nothing moves and nothing waits: ConServe holds a session back until it fits, a
policy has to answer, so that engines may be overbooked.

Source: ConServe (arXiv 2606.01839) and its code. Sees: the session, KV blocks in total. Ties: the lowest
engine number. A session without a request for `idle_s` is over; routers are told in ConServe's experiments.

    quantile  0    0: the prompt so far; above: of the last prompts of ended sessions
    idle_s    300  s without a request after which a session's KV is free (ours)
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies._kv_budget import books_size, reserve, reserved_cost, size_quantile
from agentctl.policies.base import FIRST, Share, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests


class Params(NamedTuple):
    quantile: Share = 0.0
    idle_s: float = 300.0
    tie: int = FIRST


@policy(
    "conserve",
    params=Params,
    source="ConServe, arXiv 2606.01839",
    sees=("kv_total_blocks", "block_tokens"),
    memory=books_size,
    cost=reserved_cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = reserved_cost(view, requests, r, my)
    engine = pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
    tokens = float(requests.prompt_tokens[r])
    if my.quantile > 0:
        tokens = max(tokens, size_quantile(view.memory, costs.size, my.quantile))
    reserve(view, requests, r, engine, tokens)
    return engine
