"""Sessions on prefill and decode engines, as ConServe keeps books: who is bound where, and KV reserved.

Layout of a policy's memory: IS_KNOWN, SEEN (requests of `view.over` that have been read), N_FINALS; tokens
reserved per engine; PER_SESSION numbers per session; then the final needs of ended sessions, sorted.

A session's need for KV counts fresh tokens only: a turn puts in what its prompt has beyond the prefix
parent's prompt and output, and its output, so that a session that only appends needs its final context. The
output is known beforehand here, as in ConServe's experiments, which force it.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.sim.roles import BOTH, DECODE, NOT_YET, PREFILL, REFUSED
from agentctl.sim.view import View
from agentctl.workload import Requests

Memory = NDArray[np.float64]

IS_KNOWN, SEEN, N_FINALS = range(3)
HEAD = 3
HOME, HELD, SO_FAR, LEFT, IS_MOVED, TOTAL = range(6)  # engine + 1; tokens; tokens; requests; whether; tokens
PER_SESSION = 6


def books_size(n_requests: int, n_sessions: int, n_engines: int) -> int:
    return HEAD + n_engines + (PER_SESSION + 1) * n_sessions


@njit(cache=True)
def at_session(view: View, session: int) -> int:
    """Where its numbers begin."""
    return int(HEAD + view.roles.size + PER_SESSION * session)


@njit(cache=True)
def put_in(requests: Requests, r: int) -> int:
    """Tokens of KV that request r adds to its session."""
    before = requests.parent[r]
    known = requests.prompt_tokens[before] + requests.output_tokens[before] if before >= 0 else 0
    return int(max(requests.prompt_tokens[r] - known, 0) + requests.output_tokens[r])


@njit(cache=True)
def read_up(view: View, requests: Requests) -> None:
    """Bring the books up to what has ended: a session gives its KV back with its last request."""
    memory = view.memory
    if memory[IS_KNOWN] == 0:
        memory[IS_KNOWN] = 1
        for q in range(requests.session.size):
            at = at_session(view, requests.session[q])
            memory[at + LEFT] += 1
            memory[at + TOTAL] += put_in(requests, q)
    for k in range(int(memory[SEEN]), view.n_over):
        at = at_session(view, requests.session[view.over[k]])
        memory[at + LEFT] -= 1
        if memory[at + LEFT] == 0 and memory[at + HOME] > 0:
            memory[HEAD + int(memory[at + HOME]) - 1] -= memory[at + HELD]
            _note_final(view, memory[at + SO_FAR])
    memory[SEEN] = view.n_over


@njit(cache=True)
def _first_final(view: View) -> int:
    """All sessions stand before it."""
    n = (view.memory.size - HEAD - view.roles.size) // (PER_SESSION + 1)
    return at_session(view, n)


@njit(cache=True)
def _note_final(view: View, tokens: float) -> None:
    memory, first = view.memory, _first_final(view)
    at = first + int(memory[N_FINALS])
    while at > first and memory[at - 1] > tokens:
        memory[at] = memory[at - 1]
        at -= 1
    memory[at] = tokens
    memory[N_FINALS] += 1


@njit(cache=True)
def final_quantile(view: View, quantile: float) -> float:
    """Tokens that this share of the ended sessions needed at most (nearest rank); 0 when none has ended."""
    n = int(view.memory[N_FINALS])
    if n == 0:
        return 0.0
    return float(view.memory[_first_final(view) + max(math.ceil(quantile * n), 1) - 1])


# Who may do what


@njit(cache=True)
def computes_prompts(view: View, e: int) -> bool:
    """Whether engine e computes prompts of requests that others decode."""
    kind = BOTH
    for role in view.roles:
        if role == PREFILL:
            kind = PREFILL
    return bool(view.roles[e] == kind) and has_decoders(view)


@njit(cache=True)
def has_decoders(view: View) -> bool:
    """Whether requests are handed over at all."""
    for role in view.roles:  # noqa: SIM110  (numba has no generators here)
        if role != BOTH:
            return True
    return False


@njit(cache=True)
def decodes(view: View, e: int) -> bool:
    """Whether sessions are bound to engine e: those that compute no prompts for others; all without roles."""
    if view.roles[e] == PREFILL:
        return False
    return bool(view.roles[e] == DECODE) or not computes_prompts(view, e)


@njit(cache=True)
def least_outstanding(view: View) -> int:
    """The engine that computes prompts whose uncached tokens in flight take least time; the lowest number."""
    best, least = -1, np.inf
    for e in range(view.roles.size):
        if computes_prompts(view, e):
            seconds = view.inflight_prefill_tokens[e] / view.prefill_rates[e]
            if best < 0 or seconds < least:
                best, least = e, seconds
    return best


@njit(cache=True)
def free_tokens(view: View, e: int) -> float:
    """KV of engine e that nobody has reserved."""
    return float(view.kv_total_blocks[e] * view.block_tokens - view.memory[HEAD + e])


@njit(cache=True)
def most_free(view: View) -> int:
    """The decoder with most KV unreserved; the lowest number."""
    best = -1
    for e in range(view.roles.size):
        if decodes(view, e) and (best < 0 or free_tokens(view, e) > free_tokens(view, best)):
            best = e
    return best


@njit(cache=True)
def largest(view: View) -> float:
    """Tokens of KV of the decoder that has most."""
    most = 0.0
    for e in range(view.roles.size):
        if decodes(view, e):
            most = max(most, float(view.kv_total_blocks[e] * view.block_tokens))
    return most


# Binding a session


@njit(cache=True)
def bind_session(view: View, requests: Requests, r: int, need: float) -> int:
    """Reserve `need` tokens for r's session where most KV is free: the engine, -1 if they do not fit yet."""
    engine = most_free(view)
    if free_tokens(view, engine) < need:
        return -1
    memory, at = view.memory, at_session(view, requests.session[r])
    memory[HEAD + engine] += need
    memory[at + HOME], memory[at + HELD], memory[at + SO_FAR] = engine + 1, need, put_in(requests, r)
    return engine


@njit(cache=True)
def add_turn(view: View, requests: Requests, r: int) -> int:
    """A later turn of a bound session: what it adds beyond what is held is reserved, without a check. Returns
    the engine."""
    memory, at = view.memory, at_session(view, requests.session[r])
    engine = int(memory[at + HOME]) - 1
    memory[at + SO_FAR] += put_in(requests, r)
    more = max(memory[at + SO_FAR] - memory[at + HELD], 0.0)
    memory[at + HELD] += more
    memory[HEAD + engine] += more
    return engine


@njit(cache=True)
def home(view: View, requests: Requests, r: int) -> int:
    """The engine of r's session, -1: none yet."""
    return int(view.memory[at_session(view, requests.session[r]) + HOME]) - 1


@njit(cache=True)
def has_moved(view: View, requests: Requests, r: int) -> bool:
    """Whether KV of r's session was handed to its decoder before; r's is now, if it has more than a token."""
    at = at_session(view, requests.session[r]) + IS_MOVED
    before = bool(view.memory[at] > 0)
    if requests.output_tokens[r] > 1:
        view.memory[at] = 1
    return before


@njit(cache=True)
def decoder_of(view: View, requests: Requests, r: int, need: float) -> int:
    """The decoder of r's session, which is bound now if it was not and needs so many tokens: NOT_YET where
    they do not fit, REFUSED where r alone never will. A session that needs more than any decoder has can be
    served, with what is evicted on the way: it has the largest for itself."""
    decoder = home(view, requests, r)
    if decoder >= 0:
        return add_turn(view, requests, r)
    most = largest(view)
    if put_in(requests, r) > most:
        return REFUSED
    decoder = bind_session(view, requests, r, min(need, most))
    return decoder if decoder >= 0 else NOT_YET
