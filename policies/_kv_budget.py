"""KV reserved for sessions, as ConServe keeps books: each session on one engine, from its first request on.

Layout of a policy's memory: [0] the oldest request that may still hold a reservation, [1] requests noted,
[2] for the policy; tokens reserved per engine; N_SIZES counts of finished sessions by size; time and session
of every request in order; then four numbers per session: its engine + 1, tokens reserved, the time and the
prompt of its last request.

A router does not hear that a session has ended: it is over when no request came for `idle_s`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies._only import only
from agentctl.sim.view import View
from agentctl.workload import Requests

Memory = NDArray[np.float64]

N_SIZES, PER_DOUBLING = 96, 4  # sizes grow by a fourth root of 2, up to 2^24 tokens
BOOKS, PER_SESSION = 3, 4


def books_size(n_requests: int, n_sessions: int, n_engines: int) -> int:
    return BOOKS + n_engines + N_SIZES + 2 * n_requests + PER_SESSION * n_sessions


@njit(cache=True)
def session_at(n_engines: int, n_requests: int, session: int) -> int:
    """Where the numbers of `session` begin."""
    return BOOKS + n_engines + N_SIZES + 2 * n_requests + PER_SESSION * session


@njit(cache=True)
def release_idle(memory: Memory, n_engines: int, n_requests: int, now: float, idle_s: float) -> None:
    """End the sessions without a request for `idle_s`. Once or more often at an instant: no difference."""
    noted = BOOKS + n_engines + N_SIZES
    while memory[0] < memory[1] and now - memory[noted + 2 * int(memory[0])] >= idle_s:
        place = noted + 2 * int(memory[0])
        at = session_at(n_engines, n_requests, int(memory[place + 1]))
        if memory[at] > 0 and memory[at + 2] == memory[place]:  # nothing came after that request
            memory[BOOKS + int(memory[at]) - 1] -= memory[at + 1]
            memory[BOOKS + n_engines + size_class(memory[at + 3])] += 1
            memory[at] = memory[at + 1] = 0
        memory[0] += 1


@njit(cache=True)
def size_class(tokens: float) -> int:
    return min(max(int(np.ceil(PER_DOUBLING * np.log2(max(tokens, 1.0)))), 0), N_SIZES - 1)


@njit(cache=True)
def size_quantile(memory: Memory, n_engines: int, quantile: float) -> float:
    """Tokens that this share of the ended sessions did not exceed, up to 19 % too many; 0 when none ended."""
    sizes = memory[BOOKS + n_engines : BOOKS + n_engines + N_SIZES]
    total, so_far = sizes.sum(), 0.0
    for k in range(N_SIZES):
        so_far += sizes[k]
        if total > 0 and so_far >= quantile * total:
            return 2.0 ** (k / PER_DOUBLING)
    return 0.0


@njit(cache=True)
def reserved_cost(view: View, requests: Requests, r: int, my: Any) -> NDArray[Any]:
    """Tokens reserved less the engine's KV, all negative while there is room; only the session's engine when
    it has one. Ends idle sessions."""
    memory, n, n_requests = view.memory, view.kv_total_blocks.size, requests.prompt_tokens.size
    release_idle(memory, n, n_requests, view.now, my.idle_s)
    costs = memory[BOOKS : BOOKS + n] - view.kv_total_blocks * view.block_tokens
    home = int(memory[session_at(n, n_requests, requests.session[r])]) - 1
    return only(home, costs) if home >= 0 else costs


@njit(cache=True)
def reserve(view: View, requests: Requests, r: int, engine: int, tokens: float) -> None:
    """The session of request r is on `engine` and has `tokens` there, or what it had if that was more."""
    memory, n, n_requests = view.memory, view.kv_total_blocks.size, requests.prompt_tokens.size
    at = session_at(n, n_requests, requests.session[r])
    more = max(tokens - memory[at + 1], 0.0)
    memory[BOOKS + engine] += more
    memory[at], memory[at + 1] = engine + 1, memory[at + 1] + more
    memory[at + 2], memory[at + 3] = view.now, requests.prompt_tokens[r]
    place = BOOKS + n + N_SIZES + 2 * int(memory[1])
    memory[place], memory[place + 1] = view.now, requests.session[r]
    memory[1] += 1
