"""What a router can see at the moment it places one request.

Arrays have one value per engine. Engine metrics are those of the last publish (always fresh for now), the
router's own counters are exact. Never an engine's private state, never the future.
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
    inflight_requests        the router's own: sent and not finished
    inflight_prefill_tokens  the router's own: uncached tokens (hit at dispatch) until the first token
    expected_hit             tokens of this request that its session should find: whole blocks of the prefix
                             parent's prompt and output, at most the prompt; 0 in a first turn
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
