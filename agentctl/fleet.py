"""A fleet of models for the simulator: pools and their prices, requests on each, what is believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from agentctl.analyzers.words import count
from agentctl.cluster import Cluster, Pool
from agentctl.errors import ConfigError, InputError, UsageError
from agentctl.fleet_means import measured
from agentctl.fleet_tau import DEFAULT, tau_s
from agentctl.workload import LAM_PER_MICRODOLLAR, Fleet, Remaining, Workload

if TYPE_CHECKING:
    from pathlib import Path

    from agentctl.predictions import Predictions
    from agentctl.trace import Trace

OUTPUTS = ("predicted", "true")


@dataclass(frozen=True)
class Question:
    """What is wanted of a router between models, and how well it is told.

    lam      utility = score - lam * cost in millionths of a dollar
    tau      limit of the time to the first token (agentctl.fleet_tau)
    outputs  lengths of answers that the router believes: predicted, true, or a factor on true ones (x0.5)
    seed     of the limits
    """

    lam: float = LAM_PER_MICRODOLLAR
    tau: str = DEFAULT
    outputs: str = "predicted"
    seed: int = 0

    def factor(self) -> float | None:
        """Of true lengths; None: predicted ones. Raises UsageError."""
        if self.outputs == "predicted":
            return None
        try:
            factor = 1.0 if self.outputs == "true" else float(self.outputs.removeprefix("x"))
        except ValueError:
            factor = np.nan
        if not 0 < factor < np.inf:
            raise UsageError(
                f"is {self.outputs!r}",
                place="--outputs",
                expected="predicted, true, or a factor such as x0.5",
            )
        return factor


@dataclass(frozen=True)
class Asked:
    """What a command was given to choose between models by.

    labels   files: how well each model answered which request, or does on a task (agentctl.labels)
    audits   every estimator is asked about the engine that a request is sent to
    """

    labels: tuple[Path, ...]
    question: Question = Question()
    audits: bool = False


def labelled(workload: Workload, trace: Trace, cluster: Cluster, asked: Asked) -> Workload:
    """`with_fleet` with predictions learned from the labels, of sessions left out. Raises as that."""
    from agentctl.labels import read_labels
    from agentctl.predictions import predict

    asked.question.factor()
    _prices(cluster, "price_per_million_prompt_tokens")
    labels = read_labels(*asked.labels)
    models = tuple(dict.fromkeys(models_of(cluster)))
    _check_labelled(models, labels.models)
    return with_fleet(workload, cluster, predict(trace, labels, models, asked.question.seed), asked.question)


def _check_labelled(models: Sequence[str], known: Sequence[str]) -> None:
    if missing := sorted(set(models) - set(known)):
        raise ConfigError(
            f"no label speaks of {', '.join(missing)}",
            place="[pool] model",
            expected=f"one of {', '.join(known)}",
            hint='model = "..." of a [[pool]] is what labels call it',
        )


def model_of(pool: Pool) -> str:
    """Raises ConfigError where nobody says which model a pool serves."""
    found = pool.model or pool.profile.model
    if not found:
        raise ConfigError("missing", place=f"[pool] {pool.name}: model", hint="the model that it serves")
    return found


def models_of(cluster: Cluster) -> tuple[str, ...]:
    return tuple(model_of(pool) for pool in cluster.pools)


def with_fleet(
    workload: Workload, cluster: Cluster, predictions: Predictions, question: Question = Question()
) -> Workload:
    """The workload with what its requests are on the cluster's pools.

    predictions   of the models of the cluster (agentctl.predictions), by request of the trace

    Raises ConfigError for a pool without prices or a model that is not predicted, InputError for requests
    whose answer on some model nobody can predict or whose length there is unknown.
    """
    models = models_of(cluster)
    _check_labelled(models, predictions.models)
    at = {name: row for row, name in enumerate(predictions.request_ids.tolist())}
    told = predictions.take(np.array([at[name.partition("~")[0]] for name in workload.request_ids]))
    column = [predictions.models.index(model) for model in models]
    prompt, output = (
        _known(getattr(told, name)[:, column], name, models) for name in ("prompt_tokens", "output_tokens")
    )
    _known(told.accuracy[:, column], "accuracy", models)
    factor = question.factor()
    if factor is None:
        believed = _known(told.output_mean[:, column], "output_mean", models)
    else:
        believed = factor * output
    lengths = np.maximum(prompt, 1).astype(np.int64), np.maximum(output, 1).astype(np.int64)
    limits = tau_s(question.tau, workload.requests.prompt_tokens, workload.request_ids, question.seed)
    table = told.remaining.arrays if factor is None else None
    fleet = Fleet(
        models=models,
        prompt_tokens=lengths[0],
        output_tokens=lengths[1],
        score=told.score[:, column],
        accuracy=told.accuracy[:, column],
        predicted_output=np.maximum(np.rint(believed), 1).astype(np.int64),
        tau_s=limits,
        task=told.task.astype(np.int64),
        tasks=told.tasks,
        prompt_price=_prices(cluster, "price_per_million_prompt_tokens"),
        output_price=_prices(cluster, "price_per_million_output_tokens"),
        means=measured(cluster, *lengths, question.seed),
        remaining=None if table is None else Remaining(table.predicted, table.emitted, table.tokens),
        lam_per_microdollar=question.lam,
    )
    return replace(workload, fleet=fleet)


def _known(values: NDArray[np.float64], what: str, models: Sequence[str]) -> NDArray[np.float64]:
    """Raises InputError where any is unknown."""
    for model, column in zip(models, values.T, strict=True):
        unknown = int(np.isnan(column).sum())
        if unknown:
            raise InputError(
                f"{what} is unknown of {count(unknown, 'request')} of {column.size:,} on {model}",
                place="labels",
                hint="label them, or give the model's mean of every task (task, model, score)",
            )
    return values


def _prices(cluster: Cluster, key: str) -> NDArray[np.float64]:
    """Millionths of a dollar per token: dollars per million tokens."""
    for pool in cluster.pools:
        if getattr(pool, key) is None:
            raise ConfigError(
                "missing", place=f"[pool] {pool.name}: {key}", hint="dollars that a caller pays, 0 if nothing"
            )
    return np.array([getattr(pool, key) for pool in cluster.pools], np.float64)
