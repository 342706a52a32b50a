"""What a router can see at the moment it places one request.

Arrays have one value per engine. Engine metrics (waiting to kv_used) are those of the last publish that this
gateway sees, the gateway's own counters are exact, hits are what its index believes (agentctl.sim.router).
Never an engine's private state, never the future; policies that need those are named `oracle-...`. What a
policy does not name in its `sees` may stand at any value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class View(NamedTuple):
    """Counts are requests, tokens or blocks as named.

    waiting_requests         routed and not admitted, those routed at this very instant included
    running_requests         admitted and not finished
    pending_prefill_tokens   prompt tokens still to compute: uncached ones by the hit known at dispatch until
                             admission, what really remains afterwards; chunks in flight count until their end
    pending_prefill_pairs    sum over the same requests of n * (L - n/2), n tokens remaining of a context of L
                             (attention work; SMetric's T_pre)
    context_tokens           prompt and output tokens so far of the requests on the engine, waiting or not
    kv_used_blocks           blocks of running requests, the batch in flight included
    hit_tokens               prompt tokens of this request that the engine holds: whole blocks, at most
                             prompt - 1. Blocks appear, and evicted ones vanish, at the end of the batch
    host_hit_tokens          prompt tokens behind those that are in the engine's own KV tiers, and those in
    global_hit_tokens        tiers of the cluster, as the engine would find them; 0 with an index of its own
    inflight_requests        the gateway's own: sent and not finished
    inflight_prefill_tokens  the gateway's own: uncached tokens (hit at dispatch) until the first token
    expected_hit             tokens of this request that its session should find: whole blocks of the prefix
                             parent's prompt and output, at most the prompt; 0 in a first turn
    unpublished_requests     the gateway's own: sent since the metrics it sees were published; 0 when fresh
    unpublished_tokens       uncached tokens (hit at dispatch) of those
    published_at             instant of those metrics; -inf before the first
    active_blocks            distinct whole prompt blocks of the gateway's requests in flight, this one added
    memory                   the policy's own numbers in this gateway, zeros at first; the policy changes them
    step_ends_at             private: end of the batch or step in flight, infinite when idle
    block_tokens             tokens per block of the engines
    path                     ranges (line, length) of all requests' blocks; this one's are path_start to
                             path_stop - 1, its first prompt // block_tokens blocks being the prompt's
    roles                    of engines: BOTH, PREFILL or DECODE of agentctl.sim.roles
    last_decode              engine that decodes the router's previous request; -1 before the first
    prefill_engine           that has computed this request's prompt, where only its decoder is asked for; -1
    over                     requests that have ended or were turned away, in that order: the first n_over
    prefill_rates            tokens per second in full batches of prompts, by the engines' profiles
    move_s_per_token         of the network between pools, alone; and move_latency_s; 0 without one
    accuracy                 believed score of this request's answer, by engine; NaN without a fleet of models
    cost                     of the request, as believed: millionths of a dollar
    ttft_s                   seconds to its first token as the policy's estimator has it; infinite: never
    ttft_high_s              what all but a share of requests stay below, learned from those that ended
    tau_s                    until when this request's first token is on time
    lam                      what a millionth of a dollar counts against a score of 1
    """

    now: float
    seed: int
    last_chosen: int  # engine of the router's previous decision, -1 before the first
    waiting_requests: NDArray[np.int64]
    running_requests: NDArray[np.int64]
    pending_prefill_tokens: NDArray[np.int64]
    pending_prefill_pairs: NDArray[np.float64]
    context_tokens: NDArray[np.int64]
    kv_used_blocks: NDArray[np.int64]
    kv_total_blocks: NDArray[np.int64]
    hit_tokens: NDArray[np.int64]
    inflight_requests: NDArray[np.int64]
    inflight_prefill_tokens: NDArray[np.int64]
    expected_hit: int
    unpublished_requests: NDArray[np.int64]
    unpublished_tokens: NDArray[np.int64]
    published_at: float
    active_blocks: NDArray[np.int64]
    memory: NDArray[np.float64]
    step_ends_at: NDArray[np.float64]
    block_tokens: int
    path: NDArray
    path_start: int
    path_stop: int
    host_hit_tokens: NDArray[np.int64]
    global_hit_tokens: NDArray[np.int64]
    roles: NDArray[np.int64]
    last_decode: int
    prefill_engine: int
    over: NDArray[np.int64]
    n_over: int
    prefill_rates: NDArray[np.float64]
    move_s_per_token: float
    move_latency_s: float
    accuracy: NDArray[np.float64]
    cost: NDArray[np.float64]
    ttft_s: NDArray[np.float64]
    ttft_high_s: NDArray[np.float64]
    tau_s: float
    lam: float
