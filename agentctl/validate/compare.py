"""Simulated against logged, request by request: errors of latencies, of hits, of the engines' state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from agentctl.metrics import Samples, Summary, summary
from agentctl.validate.intervals import (
    LEAST_SECONDS,
    Blocks,
    Estimate,
    Sorted,
    mean_of,
    quantile_errors,
    ratio_of,
)

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

LATENCIES = ("ttft_s", "e2e_s", "tpot_s", "queue_s")
RELATIVE = ("ttft_s", "e2e_s", "tpot_s")  # many waits are 0: relative errors of them mean nothing
PERCENTS = (50, 90, 95, 99)
BINS = 4
GAUGES = ("kv_usage", "running", "waiting")


@dataclass(frozen=True)
class Pairs:
    """What was compared, arrays over the requests of the workload; NaN where one of the two is unknown."""

    arrival_s: F64
    logged: dict[str, F64]  # LATENCIES
    simulated: dict[str, F64]
    prompt_tokens: F64
    logged_hit: F64  # tokens
    simulated_hit: F64
    load: F64  # requests in the system at arrival, on the same engine where that is known

    def known(self, name: str) -> NDArray[np.bool_]:
        return np.isfinite(self.logged[name]) & np.isfinite(self.simulated[name])


@dataclass(frozen=True)
class Errors:
    """Of one latency over n requests; relative ones are simulated / logged - 1, above 0: simulated too long.

    error       of the mean and of percentiles, by name (mean, p50, ...)
    bias, mape  mean of the requests' relative errors, and of their sizes; None where they mean nothing
    gap_s       mean of simulated - logged
    """

    n: int
    logged: Summary
    simulated: Summary
    error: dict[str, Estimate]
    bias: Estimate
    mape: Estimate
    median_ape: float | None
    gap_s: Estimate


@dataclass(frozen=True)
class Hits:
    """Shares of the prompt tokens of n requests; gap: simulated - logged."""

    n: int
    logged: float
    simulated: float
    gap: Estimate


@dataclass(frozen=True)
class Bin:
    """Requests that met from `least` to `most` others' load (themselves included) at arrival."""

    least: int
    most: int
    requests: int
    errors: dict[str, Errors]
    hits: Hits | None


@dataclass(frozen=True)
class Gauge:
    """What engines said of themselves n times, and what the simulated ones were at these instants."""

    n: int
    logged: float
    simulated: float
    mean_gap: float  # of the sizes of the differences


def errors_of(name: str, pairs: Pairs, blocks: Blocks, which: NDArray[np.bool_] | None = None) -> Errors:
    """Errors of the latency `name`, of the requests in `which` (default: all)."""
    known = pairs.known(name) if which is None else pairs.known(name) & which
    logged, simulated, part = pairs.logged[name][known], pairs.simulated[name][known], blocks.take(known)
    error: dict[str, Estimate] = {}
    if logged.size:
        sides = Sorted(simulated, part), Sorted(logged, part)
        error["mean"] = _relative_mean(simulated, logged, part)
        found = quantile_errors(*sides, PERCENTS, blocks.n)
        error |= {f"p{percent}": one for percent, one in zip(PERCENTS, found, strict=True)}
    relative = np.empty(0)
    measurable = logged > LEAST_SECONDS
    if name in RELATIVE:
        relative = simulated[measurable] / logged[measurable] - 1
    inner = part.take(measurable) if name in RELATIVE else part.take(np.zeros(logged.size, bool))
    return Errors(
        n=int(logged.size),
        logged=summary(logged),
        simulated=summary(simulated),
        error=error,
        bias=mean_of(relative, inner),
        mape=mean_of(np.abs(relative), inner),
        median_ape=float(np.median(np.abs(relative))) if relative.size else None,
        gap_s=mean_of(simulated - logged, part),
    )


def _relative_mean(simulated: F64, logged: F64, blocks: Blocks) -> Estimate:
    found = ratio_of(simulated, logged, blocks)
    return Estimate(*(None if value is None else value - 1 for value in found))


def hits_of(pairs: Pairs, blocks: Blocks, which: NDArray[np.bool_] | None = None) -> Hits | None:
    """None where the log does not say what was found in a cache."""
    known = np.isfinite(pairs.logged_hit) & np.isfinite(pairs.simulated_hit)
    known = known if which is None else known & which
    prompt = pairs.prompt_tokens[known]
    if not prompt.sum() > 0:
        return None
    logged, simulated = pairs.logged_hit[known], pairs.simulated_hit[known]
    gap = ratio_of(simulated - logged, prompt, blocks.take(known))
    return Hits(
        int(prompt.size), float(logged.sum() / prompt.sum()), float(simulated.sum() / prompt.sum()), gap
    )


def bins_of(pairs: Pairs, blocks: Blocks) -> tuple[Bin, ...]:
    """By the load that requests met: at most BINS of about as many requests each, every request in one."""
    load = pairs.load[np.isfinite(pairs.load)].astype(np.int64)
    if not load.size:
        return ()
    shares = np.arange(1, BINS) / BINS
    edges = np.unique(np.quantile(load, shares, method="inverted_cdf"))
    edges = edges[edges < load.max()]  # a bin is (edge before, edge]
    number = np.where(np.isfinite(pairs.load), np.searchsorted(edges, pairs.load), -1)
    result = []
    for one in range(edges.size + 1):
        here = number == one
        result.append(
            Bin(
                least=int(pairs.load[here].min()),
                most=int(pairs.load[here].max()),
                requests=int(here.sum()),
                errors={name: errors_of(name, pairs, blocks, here) for name in RELATIVE},
                hits=hits_of(pairs, blocks, here),
            )
        )
    return tuple(result)


def load_at_arrival(arrival_s: F64, end_s: F64, engine: I64) -> F64:
    """Requests on the same engine when each arrived, itself included; NaN where some end is unknown."""
    load = np.full(arrival_s.size, np.nan)
    for one in np.unique(engine):
        here = engine == one
        arrival, end = np.sort(arrival_s[here]), np.sort(end_s[here])
        if np.isfinite(end).all():
            came = np.searchsorted(arrival, arrival_s[here], side="right")
            load[here] = came - np.searchsorted(end, arrival_s[here], side="right")
    return load


def gauges_of(events: pl.DataFrame, samples: Samples | None, names: tuple[str, ...]) -> dict[str, Gauge]:
    """What the log's engines (`names`; none: there is one) say of themselves, against the simulated ones."""
    said = events.filter(pl.col("kind").cast(pl.String) != "prefill")  # said just when something arrives
    if samples is None or not samples.time_s.size or said.is_empty():
        return {}
    numbers = {name: number for number, name in enumerate(names)}
    engines = [numbers.get(name, -1) for name in said["instance"].cast(pl.String).to_list()]
    engine = np.array(engines) if names else np.zeros(said.height, np.int64)
    at = np.searchsorted(samples.time_s, said["ts_s"].to_numpy(), side="right") - 1
    inside = (engine >= 0) & (at >= 0) & (said["ts_s"].to_numpy() <= samples.time_s[-1])
    total = samples.kv_total_blocks
    simulated = {
        "kv_usage": samples.kv_used_blocks / total,
        "running": samples.running_requests,
        "waiting": samples.waiting_requests,
    }
    result = {}
    for name in GAUGES:
        logged = said[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
        known = inside & np.isfinite(logged)
        if known.any():
            ours = simulated[name][at[known], engine[known]].astype(np.float64)
            gap = float(np.abs(ours - logged[known]).mean())
            result[name] = Gauge(int(known.sum()), float(logged[known].mean()), float(ours.mean()), gap)
    return result
