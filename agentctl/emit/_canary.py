"""What to watch while the new configuration serves its first traffic, and from where on to go back.

A threshold is an end of the run's own interval at the trace's load: the value of the whole trace, give or
take two standard deviations of its resamples. Worse than that, the cluster does not do what was simulated.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

Better = Literal["lower", "higher"]
SPREAD = 2.0  # standard deviations of the replicates, as in all intervals here

# What is measured -> engine -> how its own metrics say it (names as exported; _bucket and _total as usual).
METRICS = {
    "ttft_p50_s": {
        "vllm": "histogram_quantile(0.50, vllm:time_to_first_token_seconds)",
        "sglang": "histogram_quantile(0.50, sglang:time_to_first_token_seconds)",
    },
    "ttft_p95_s": {
        "vllm": "histogram_quantile(0.95, vllm:time_to_first_token_seconds)",
        "sglang": "histogram_quantile(0.95, sglang:time_to_first_token_seconds)",
    },
    "tpot_p95_s": {
        "vllm": "histogram_quantile(0.95, vllm:request_time_per_output_token_seconds)",
        "sglang": "histogram_quantile(0.95, sglang:inter_token_latency_seconds)",
    },
    "hit_ratio": {
        "vllm": "rate(vllm:prefix_cache_hits) / rate(vllm:prefix_cache_queries)",
        "sglang": "sglang:cache_hit_rate",
    },
    "imbalance_prefill": {
        "vllm": "busiest engine over mean: rate(vllm:prompt_tokens) - rate(vllm:prompt_tokens_cached)",
        "sglang": "busiest engine over mean: rate(sglang:prompt_tokens) - rate(sglang:cached_tokens)",
    },
    "attained": {
        "vllm": "share of requests within all objectives, from the request log",
        "sglang": "share of requests within all objectives, from the request log",
    },
}  # fmt: skip
NAMES: dict[str, tuple[str, str, Better]] = {
    "ttft_p50_s": ("TTFT p50", "s", "lower"),
    "ttft_p95_s": ("TTFT p95", "s", "lower"),
    "tpot_p95_s": ("TPOT p95", "s", "lower"),
    "hit_ratio": ("prompt tokens found in cache", "ratio", "higher"),
    "imbalance_prefill": ("prefill of the busiest engine over the mean", "ratio", "lower"),
    "attained": ("requests within all objectives", "ratio", "higher"),
}


class Watch(NamedTuple):
    """One metric. `threshold` is the worse end of the interval; None: the run has no interval for it."""

    key: str
    name: str
    unit: str
    better: Better
    value: float
    low: float | None
    high: float | None
    threshold: float | None
    query: str


def watch(key: str, value: float | None, replicates: Sequence[float | None], engine: str) -> Watch | None:
    """From the value of the whole trace and those of its resamples; None where the run does not define it."""
    if value is None or not math.isfinite(value):
        return None
    name, unit, better = NAMES[key]
    known = [one for one in replicates if one is not None and math.isfinite(one)]
    low = high = None
    if len(known) >= 2:
        spread = SPREAD * statistics.stdev(known)
        low, high = max(value - spread, 0.0), value + spread
        high = min(high, 1.0) if key in ("hit_ratio", "attained") else high
    threshold = high if better == "lower" else low
    return Watch(key, name, unit, better, value, low, high, threshold, METRICS[key][engine])


def document(watched: Sequence[Watch], slos: Sequence[str]) -> dict[str, Any]:
    return {
        "schema": "agentctl/canary/1",
        "load": "the trace's own",
        "objectives": list(slos),
        "go_back": "a threshold is crossed in two windows in a row, after the burn-in",
        "watch": [one._asdict() for one in watched],
    }
