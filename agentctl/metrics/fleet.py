"""Quality, price and punctuality together, where a router chooses between models (SFS, arXiv 2607.18253)."""

from __future__ import annotations

import numpy as np

from agentctl.metrics.base import Floats, Run, Unknown, metric

ONE_MODEL = Unknown("only one model is known: --labels says how well others would have answered")


@metric("ratio", "higher", "request")
def score(run: Run) -> Floats | Unknown:
    """Judged answer of the model that served the request, 0 to 1."""
    return ONE_MODEL if run.score is None else run.score


@metric("microdollar", "lower", "request")
def cost_microdollars(run: Run) -> Floats | Unknown:
    """Millionths of a dollar: prompt and output tokens times the prices of the pool that served it."""
    return ONE_MODEL if run.cost is None else run.cost


@metric("ratio", "higher", "request")
def utility(run: Run) -> Floats | Unknown:
    """Score less lam times the cost in millionths of a dollar."""
    return ONE_MODEL if run.utility is None else run.utility


@metric("ratio", "higher", "run")
def on_time_utility(run: Run) -> float | Unknown | None:
    """Mean over requests of the utility where the first token came within tau, and of 0 where it did not or
    nobody could serve the request. Requests that nobody has judged are left out."""
    if run.utility is None:
        return ONE_MODEL
    known = ~run.done | ~np.isnan(run.utility)
    gained = np.where(on_time(run), run.utility, 0.0)[known]
    return float(gained.mean()) if gained.size else None


@metric("ratio", "higher", "run")
def on_time_ratio(run: Run) -> float | Unknown | None:
    """Share of requests whose first token came within tau."""
    if run.tau_s is None:
        return ONE_MODEL
    return float(on_time(run).mean()) if run.done.size else None


@metric("ratio", "lower", "run")
def false_feasible_ratio(run: Run) -> float | Unknown | None:
    """Share of requests that were sent to an engine where they were believed to be on time, and were not."""
    return _wrongly(run, believed=True)


@metric("ratio", "lower", "run")
def false_infeasible_ratio(run: Run) -> float | Unknown | None:
    """Share of requests that were sent to an engine where they were believed to be late, and were on time."""
    return _wrongly(run, believed=False)


def on_time(run: Run) -> np.ndarray:
    """Whether the first token came within the request's limit."""
    assert run.tau_s is not None
    took = np.where(run.done, run.first_token_s - run.arrival_s, np.inf)
    return took <= run.tau_s


def _wrongly(run: Run, *, believed: bool) -> float | Unknown | None:
    ttft = run.believed_ttft_s
    if ttft is None or run.tau_s is None:
        return ONE_MODEL
    asked = run.done & ~np.isnan(ttft)
    if not asked.any():
        return Unknown("the policy asks for no estimate of the time to the first token")
    wrong = (ttft <= run.tau_s) if believed else (ttft > run.tau_s)
    return float((wrong & (on_time(run) != believed))[asked].mean())
