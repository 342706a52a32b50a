"""State X: four engines and one request on which the policies of papers and routers differ."""

import numpy as np

from agentctl.sim.state import RANGE
from agentctl.sim.view import View

A, B, C, D = range(4)
PROMPT = 20_000


def view_of(**fields):
    """Idle engines that hold nothing, four unless a field says otherwise."""
    n = max([len(value) for value in fields.values() if isinstance(value, list)], default=4)
    zeros = {name: np.zeros(n, dtype=np.int64) for name in View._fields}
    arrays = {k: np.array(v) if isinstance(v, list) else v for k, v in fields.items()}
    scalars = {
        "now": 0.0, "seed": 0, "last_chosen": -1, "expected_hit": 0, "published_at": 0.0,
        "kv_total_blocks": np.full(n, 1_000), "memory": np.zeros(0), "step_ends_at": np.full(n, np.inf),
        "block_tokens": 16,
        "path": np.zeros(0, RANGE).view(np.recarray), "path_start": 0, "path_stop": 0,
    }  # fmt: skip
    return View(**{**zeros, **scalars, **arrays})


# w, r, q, a and h of engines A to D. B's queue is one prefill of 26,000 new tokens in a context of 30,000,
# C's 1,000 new in 30,000: n (L - n/2) pairs. All requests came through this router: its own counts are
# w + r and q; blocks active with this request, none shared, are (a + L) / 16.
STATE_X = view_of(
    waiting_requests=[0, 3, 0, 0],
    running_requests=[6, 12, 2, 0],
    pending_prefill_tokens=[0, 26_000, 1_000, 0],
    pending_prefill_pairs=[0, 26_000 * 17_000, 1_000 * 29_500, 0],
    context_tokens=[150_000, 420_000, 30_000, 0],
    hit_tokens=[18_000, 19_200, 2_400, 0],
    inflight_requests=[6, 15, 2, 0],
    inflight_prefill_tokens=[0, 26_000, 1_000, 0],
    kv_used_blocks=[250, 700, 50, 0],
    active_blocks=[10_625, 27_500, 3_125, 1_250],
    expected_hit=19_200,
    path=np.array([(0, PROMPT // 16)], RANGE).view(np.recarray),
    path_stop=1,
)
