"""What is measured in a run: every metric in one place, with its unit, its better direction and its formula.

A metric per request, session or sample is an array with NaN where it does not exist (a rejected request has
no TTFT, a one-token output no TPOT): it is summarised over the others, and the missing ones are counted,
never made 0. What a run cannot tell is null, with the reason.
"""

from agentctl.metrics.balance import imbalance_batch, imbalance_prefill
from agentctl.metrics.base import (
    METRICS,
    Counts,
    Draws,
    Floats,
    Isolated,
    Metric,
    Run,
    Samples,
    Summary,
    Unknown,
    measure,
    measure_of,
    nearest_rank,
    summary,
)
from agentctl.metrics.cache import hit_ratio, replication
from agentctl.metrics.energy import (
    computed_tokens_per_j,
    energy_j,
    energy_per_session_j,
    idle_w,
    output_tokens_per_j,
    session_energy_j,
    tokens_per_j,
    total_energy_j,
)
from agentctl.metrics.fleet import on_time, on_time_utility
from agentctl.metrics.latency import e2e_s, itl_max_s, queue_s, tpot_s, ttft_s
from agentctl.metrics.rates import (
    in_system,
    output_tokens_per_s,
    per_s,
    requests_per_s,
    session_starts_s,
    sessions_per_min,
    span_s,
    tokens_per_s,
)
from agentctl.metrics.sessions import session_s, sessions_in_flight, ttfet_s
from agentctl.metrics.turns import (
    SLO_TIMES_ISOLATED,
    geometric_mean,
    isolated_of,
    share_above,
    times_isolated,
)

__all__ = [
    "METRICS",
    "SLO_TIMES_ISOLATED",
    "Counts",
    "Draws",
    "Floats",
    "Isolated",
    "Metric",
    "Run",
    "Samples",
    "Summary",
    "Unknown",
    "computed_tokens_per_j",
    "e2e_s",
    "energy_j",
    "energy_per_session_j",
    "geometric_mean",
    "hit_ratio",
    "idle_w",
    "imbalance_batch",
    "imbalance_prefill",
    "in_system",
    "isolated_of",
    "itl_max_s",
    "measure",
    "measure_of",
    "nearest_rank",
    "on_time",
    "on_time_utility",
    "output_tokens_per_j",
    "output_tokens_per_s",
    "per_s",
    "queue_s",
    "replication",
    "requests_per_s",
    "session_energy_j",
    "session_s",
    "session_starts_s",
    "sessions_in_flight",
    "sessions_per_min",
    "share_above",
    "span_s",
    "summary",
    "times_isolated",
    "tokens_per_j",
    "tokens_per_s",
    "total_energy_j",
    "tpot_s",
    "ttfet_s",
    "ttft_s",
]
