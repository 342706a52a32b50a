"""How evenly engines are loaded: over the whole run, and at the instants of its samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from agentctl.metrics.base import METRICS, Counts, Floats, Metric, Run, Samples, Unknown, metric

NO_SAMPLES = Unknown("engines were not sampled in this run")


class Stays(NamedTuple):
    """When finished requests were on engines, waiting ones included; one that is handed over is on two, and
    with roles none is while the router keeps it."""

    engine: Counts
    since_s: Floats
    until_s: Floats


def stays(run: Run) -> Stays:
    done = run.done
    engine, since, until = run.engine[done], run.arrival_s[done], run.finish_s[done]
    if run.hand_overs is None:
        return Stays(engine, since, until)
    decode, first = run.hand_overs.decode_engine[done], run.first_token_s[done]
    moved = decode != engine
    return Stays(
        np.concatenate([engine, decode[moved]]),
        np.concatenate([run.hand_overs.sent_s[done], first[moved]]),
        np.concatenate([np.where(moved, first, until), until[moved]]),
    )


@metric("ratio", "lower", "run")
def imbalance_prefill(run: Run) -> float | None:
    """Computed prefill tokens of the busiest engine over the mean of all engines; 1 is even. With roles: over
    the mean of its role, roles weighed by their load."""
    done, computed = run.done, run.computed_prefill_tokens
    if run.hand_overs is None:
        return _max_over_mean(run, _per_engine(run, run.engine[done], computed[done]))
    there = run.hand_overs.computed_tokens
    totals = _per_engine(run, run.engine[done], (computed - there)[done])
    return _max_over_mean(run, totals + _per_engine(run, run.hand_overs.decode_engine[done], there[done]))


@metric("ratio", "lower", "run")
def imbalance_batch(run: Run) -> float | None:
    """Mean batch size (queue included) of the busiest engine over the mean of all engines, whole run;
    by Little's law the sums of the times that requests are there; 1 is even. With roles: over the mean of its
    role, roles weighed by their load."""
    engine, since, until = stays(run)
    return _max_over_mean(run, _per_engine(run, engine, until - since))


def tokens_per_s_of(samples: Samples) -> Floats:
    """Output tokens a second of every engine between a sample and the next."""
    return np.diff(samples.emitted_tokens, axis=0) / np.diff(samples.time_s)[:, None]


def roles_of(run: Run) -> list[Counts]:
    """The engines of each role; without roles all."""
    if run.hand_overs is None:
        return [np.arange(run.n_engines)]
    role = run.hand_overs.role_of_engine
    return [np.flatnonzero(role == one) for one in np.unique(role)]


def over_mean(run: Run, load: Floats, spread: Callable[[Floats], Floats]) -> Floats:
    """`spread` of the engines' loads [..., engine] over their mean, role by role, weighed by the loads."""
    found = sum(spread(load[..., some]) * (some.size / run.n_engines) for some in roles_of(run))
    return found / load.mean(axis=-1)


def busiest(load: Floats) -> Floats:
    found: Floats = load.max(axis=-1)
    return found


def _deviation(load: Floats) -> Floats:
    found: Floats = load.std(axis=-1)
    return found


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
    "imbalance": ("busiest engine over the mean; 1 is even", busiest),
    "cv": ("standard deviation over engines over their mean; 0 is even", _deviation),
}


def _over_time(
    load_of: Callable[[Samples], Floats], spread: Callable[[Floats], Floats]
) -> Callable[[Run], Floats | Unknown]:
    def compute(run: Run) -> Floats | Unknown:
        if run.samples is None:
            return NO_SAMPLES
        load = load_of(run.samples)
        return over_mean(run, load[load.max(axis=1) > 0], spread)

    return compute


for _spread, (_words, _spread_of) in SPREADS.items():
    for _load, (_what, _load_of) in LOADS.items():
        _name = f"{_spread}_{_load}_over_time"
        _formula = f"At every sample with any: {_what}, {_words}. With roles: by role, weighed by their load."
        METRICS[_name] = Metric(_name, "ratio", "lower", "sample", _formula, _over_time(_load_of, _spread_of))


def _per_engine(run: Run, engine: Counts, amount: Floats | Counts) -> Floats:
    totals = np.zeros(run.n_engines)
    np.add.at(totals, engine, amount)
    return totals


def _max_over_mean(run: Run, values: Floats) -> float | None:
    return float(over_mean(run, values, busiest)) if values.mean() > 0 else None
