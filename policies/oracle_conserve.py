"""ConServe's placement as its authors ran it: the KV that a session will need is known when it starts.

As `conserve`, but a session reserves from its first request on the longest context that it will ever have,
prompt and output of all its turns. No router can know that. Nothing waits here for a session to fit.

Source: ConServe (arXiv 2606.01839) and its code. Sees: the session and its future, KV blocks in total. Ties:
the lowest engine number.

    idle_s  300  s without a request after which a session's KV is free (ours)
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from agentctl.policies._kv_budget import PER_SESSION, books_size, reserve, reserved_cost, session_at
from agentctl.policies.base import FIRST, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests

IS_KNOWN = 2  # where the memory says that the future has been looked up


class Params(NamedTuple):
    idle_s: float = 300.0
    tie: int = FIRST


def memory_size(n_requests: int, n_sessions: int, n_engines: int) -> int:
    """The books, and the longest context of every session."""
    return books_size(n_requests, n_sessions, n_engines) + n_sessions


@njit(cache=True)
def longest_context(view: View, requests: Requests, r: int) -> float:
    """Tokens of the session of request r, prompt and output, in its longest turn."""
    memory, n_requests = view.memory, requests.prompt_tokens.size
    books = session_at(view.kv_total_blocks.size, n_requests, 0)
    n_sessions = (memory.size - books) // (PER_SESSION + 1)
    at = memory.size - n_sessions
    if memory[IS_KNOWN] == 0:
        memory[IS_KNOWN] = 1
        for k in range(n_requests):
            context = requests.prompt_tokens[k] + requests.output_tokens[k]
            memory[at + requests.session[k]] = max(memory[at + requests.session[k]], context)
    return memory[at + requests.session[r]]


@policy(
    "oracle-conserve",
    params=Params,
    source="ConServe, arXiv 2606.01839",
    sees=("kv_total_blocks", "block_tokens"),
    memory=memory_size,
    cost=reserved_cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = reserved_cost(view, requests, r, my)
    engine = pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
    reserve(view, requests, r, engine, longest_context(view, requests, r))
    return engine
