"""When a prompt would be computed on its decoder, and on the best prefill engine: estimates of a router.

What waits on an engine and what is left of the prompt at its rate of full batches; the move of what the
decoder lacks, alone on the network. History that only the decoder has does not go back: a prefill engine
computes it anew, unless it has it in its own cache (simulated alike).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from agentctl.policies._pools import computes_prompts
from agentctl.sim.view import View
from agentctl.workload import Requests


@njit(cache=True)
def local_seconds(view: View, requests: Requests, r: int, decoder: int) -> float:
    """Until r's prompt is computed on its decoder."""
    own = requests.prompt_tokens[r] - view.hit_tokens[decoder]
    return float((view.pending_prefill_tokens[decoder] + own) / view.prefill_rates[decoder])


@njit(cache=True)
def remote(view: View, requests: Requests, r: int, decoder: int) -> tuple[int, float]:
    """The prefill engine from which r's KV would be on its decoder first, and in how many seconds; the lowest
    number of equals."""
    moved = requests.prompt_tokens[r] - view.hit_tokens[decoder]
    best, least = -1, np.inf
    for e in range(view.roles.size):
        if computes_prompts(view, e):
            own = requests.prompt_tokens[r] - view.hit_tokens[e]
            seconds = (view.pending_prefill_tokens[e] + own) / view.prefill_rates[e]
            if best < 0 or seconds < least:
                best, least = e, seconds
    return best, float(least + view.move_latency_s + moved * view.move_s_per_token)


@njit(cache=True)
def step_seconds(
    view: View, decoder: int, b0: float, b_decode: float, b_context: float, added: float
) -> float:
    """A step of the decoder with all that run there, and `added` seconds of a prompt."""
    return float(
        b0 + b_decode * view.running_requests[decoder] + b_context * view.context_tokens[decoder] + added
    )
