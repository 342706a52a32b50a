"""Estimates in seconds from what a router sees, with the coefficients of the engines' batch-time model.

They take the parameters `my` of a policy, which has the coefficients that they name as fields of its own.
Loops over engines, because array expressions take several times as long to compile. For compiled callers: see
agentctl.sim.jit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.sim.jit import INTERNAL
from agentctl.sim.view import View

Seconds = NDArray[Any]  # one per engine
# What first_token_s takes from the profile, for a policy's `from_profile`.
FIRST_TOKEN = {
    name: name for name in ("b0", "b_prefill", "b_decode", "b_context_mixed", "b_attention", "h0", "h_seq")
}


@njit(cache=True)
def prefill_s(new: float, prompt: float, my: Any) -> float:
    """T(n, L) = c_linear n + c_attention n (L - n/2): time to prefill n new tokens of a context of L."""
    return my.c_linear * new + my.c_attention * new * (prompt - new / 2)


@njit(cache=True, **INTERNAL)
def backlog_s(view: View, my: Any) -> Seconds:
    """Time to prefill what is pending. my: c_linear s per token, c_attention s per pair of tokens."""
    seconds = np.empty(view.hit_tokens.size)
    for e in range(seconds.size):
        seconds[e] = my.c_linear * view.pending_prefill_tokens[e]
        seconds[e] += my.c_attention * view.pending_prefill_pairs[e]
    return seconds


@njit(cache=True, **INTERNAL)
def until_prefilled_s(view: View, prompt: int, my: Any) -> Seconds:
    """The backlog and what each engine would compute of this prompt."""
    seconds = backlog_s(view, my)
    for e in range(seconds.size):
        seconds[e] += prefill_s(prompt - view.hit_tokens[e], prompt, my)
    return seconds


@njit(cache=True, **INTERNAL)
def first_token_s(view: View, prompt: int, e: int, done: float, my: Any) -> float:
    """Time until the first token of a prompt on engine e: batches of `chunk_tokens` until all that is pending
    and then this prompt is computed, every batch carrying the decodes of now.

    done  pending tokens that need no further batch: those of a batch in flight

    Contexts of waiting requests are taken to be as long as those of running ones. The GPU's time and the
    host's are summed before the longer one is taken. What chunks read of their past (b_past) is left out.
    """
    new, running = prompt - view.hit_tokens[e], view.running_requests[e]
    context = view.context_tokens[e] * running / max(running + view.waiting_requests[e], 1)
    tokens = view.pending_prefill_tokens[e] - done + new
    pairs = view.pending_prefill_pairs[e] + new * (prompt - new / 2)
    n_batches = math.ceil(tokens / my.chunk_tokens)
    each = my.b0 + my.b_decode * running + my.b_context_mixed * context
    gpu = n_batches * each + my.b_prefill * tokens + my.b_attention * pairs
    return max(gpu, n_batches * (my.h0 + my.h_seq * (running + 1)))


@njit(cache=True, **INTERNAL)
def decode_step_s(view: View, prompt: int, e: int, my: Any) -> float:
    """Time per output token on engine e when all that wait and this prompt decode as well."""
    n_decodes = view.waiting_requests[e] + view.running_requests[e] + 1
    gpu = my.b0 + my.b_decode * n_decodes + my.b_context * (view.context_tokens[e] + prompt)
    return max(gpu, my.h0 + my.h_seq * n_decodes)
