"""How evenly engines are loaded: over the whole run, and at the instants of its samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from agentctl.metrics.base import METRICS, Floats, Metric, Run, Samples, Unknown, metric

NO_SAMPLES = Unknown("engines were not sampled in this run")


@metric("ratio", "lower", "run")
def imbalance_prefill(run: Run) -> float | None:
    """Computed prefill tokens of the busiest engine over the mean of all engines; 1 is even."""
    return _max_over_mean(_per_engine(run, run.computed_prefill_tokens.astype(np.float64)))


@metric("ratio", "lower", "run")
def imbalance_batch(run: Run) -> float | None:
    """Mean batch size (queue included) of the busiest engine over the mean of all engines, whole run;
    by Little's law the sums of E2E times; 1 is even."""
    return _max_over_mean(_per_engine(run, run.finish_s - run.arrival_s))


def tokens_per_s_of(samples: Samples) -> Floats:
    """Output tokens a second of every engine between a sample and the next."""
    return np.diff(samples.emitted_tokens, axis=0) / np.diff(samples.time_s)[:, None]


def _max_over_mean_of(load: Floats) -> Floats:
    return load.max(axis=1) / load.mean(axis=1)


def _variation_of(load: Floats) -> Floats:
    return load.std(axis=1) / load.mean(axis=1)


LOADS: dict[str, tuple[str, Callable[[Samples], Floats]]] = {
    "pending_prefill": (
        "prefill tokens owed",
        lambda samples: samples.pending_prefill_tokens.astype(np.float64),
    ),
    "running": ("requests in the batch", lambda samples: samples.running_requests.astype(np.float64)),
    "tokens_per_s": ("output tokens a second since the sample before", tokens_per_s_of),
    "kv": ("share of KV blocks in use", lambda samples: samples.kv_used_blocks / samples.kv_total_blocks),
}
SPREADS: dict[str, tuple[str, Callable[[Floats], Floats]]] = {
    "imbalance": ("busiest engine over the mean; 1 is even", _max_over_mean_of),
    "cv": ("standard deviation over engines over their mean; 0 is even", _variation_of),
}


def _over_time(
    load_of: Callable[[Samples], Floats], spread: Callable[[Floats], Floats]
) -> Callable[[Run], Floats | Unknown]:
    def compute(run: Run) -> Floats | Unknown:
        if run.samples is None:
            return NO_SAMPLES
        load = load_of(run.samples)
        return spread(load[load.max(axis=1) > 0])

    return compute


for _spread, (_words, _spread_of) in SPREADS.items():
    for _load, (_what, _load_of) in LOADS.items():
        _name = f"{_spread}_{_load}_over_time"
        _formula = f"At every sample with any: {_what}, {_words}."
        METRICS[_name] = Metric(_name, "ratio", "lower", "sample", _formula, _over_time(_load_of, _spread_of))


def _per_engine(run: Run, amount: Floats) -> Floats:
    totals = np.zeros(run.n_engines)
    np.add.at(totals, run.engine[run.done], amount[run.done])
    return totals


def _max_over_mean(values: Floats) -> float | None:
    mean = values.mean()
    return float(values.max() / mean) if mean > 0 else None
