"""How long users wait: times of requests."""

from __future__ import annotations

import numpy as np

from agentctl.metrics.base import Floats, Run, metric


@metric("s", "lower", "request")
def ttft_s(run: Run) -> Floats:
    """Time to first token: first token minus arrival."""
    return np.where(run.done, run.first_token_s - run.arrival_s, np.nan)


@metric("s", "lower", "request")
def tpot_s(run: Run) -> Floats:
    """Time per output token after the first: (finish - first token) / (output tokens - 1).
    A one-token output has none."""
    gaps = np.where(run.done & (run.output_tokens > 1), run.output_tokens - 1, np.nan)
    return (run.finish_s - run.first_token_s) / gaps


@metric("s", "lower", "request")
def itl_max_s(run: Run) -> Floats:
    """Longest inter-token latency: the largest gap between two output tokens that follow each other.
    A one-token output has none."""
    return np.where(run.done, run.itl_max_s, np.nan)


@metric("s", "lower", "request")
def e2e_s(run: Run) -> Floats:
    """End to end: finish minus arrival."""
    return np.where(run.done, run.finish_s - run.arrival_s, np.nan)


@metric("s", "lower", "request")
def queue_s(run: Run) -> Floats:
    """Queue time: first admission into a batch minus arrival."""
    return np.where(run.done, run.scheduled_s - run.arrival_s, np.nan)
