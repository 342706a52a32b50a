"""What became of requests where pools have different models, beside what their router believed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.sim.fleet_state import ESTIMATORS
from agentctl.sim.state import State
from agentctl.workload import Fleet

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


class Served(NamedTuple):
    """Arrays over requests, NaN, -1 or 0 of those that no engine could serve; money in millionths of dollars.

    pool                that served it; model_of_pool and tasks are names
    prompt_tokens, output_tokens  on its model; predicted_output_tokens
    score, accuracy     as judged (NaN: nobody has), as believed
    cost, utility       true ones
    tau_s               limit of the time to the first token
    believed_ttft_s     when it was sent, NaN: the policy asked nobody
    audits              by estimator, the same of the engine it was sent to; empty without an audit
    task                number of its task, -1: unknown
    """

    models: tuple[str, ...]
    tasks: tuple[str, ...]
    pool: I64
    task: I64
    prompt_tokens: I64
    output_tokens: I64
    predicted_output_tokens: I64
    score: F64
    accuracy: F64
    cost: F64
    utility: F64
    tau_s: F64
    believed_ttft_s: F64
    audits: dict[str, F64]

    def for_metrics(self) -> dict[str, F64]:
        """Fields of agentctl.metrics.Run."""
        return {
            name: getattr(self, name) for name in ("score", "cost", "utility", "tau_s", "believed_ttft_s")
        }


def served_of(s: State, fleet: Fleet, done: NDArray[np.bool_]) -> Served:
    """Read from the state of a cluster in which everything has ended."""
    rows = np.arange(done.size)
    engine = np.where(done, s.jobs["engine"][: done.size], 0).astype(np.int64)
    pool = s.limits["pool"][engine]

    def chosen(values: F64) -> F64:
        return np.where(done, values[rows, pool], np.nan)

    audits = s.audits if s.fleet["audits"][0] else np.empty((done.size, 0))
    return Served(
        models=fleet.models,
        tasks=fleet.tasks,
        pool=np.where(done, pool, -1),
        task=fleet.task,
        prompt_tokens=np.where(done, fleet.prompt_tokens[rows, pool], 0),
        output_tokens=np.where(done, fleet.output_tokens[rows, pool], 0),
        predicted_output_tokens=np.where(done, fleet.predicted_output[rows, pool], 0),
        score=chosen(fleet.score),
        accuracy=chosen(fleet.accuracy),
        cost=chosen(fleet.cost),
        utility=chosen(fleet.utility),
        tau_s=fleet.tau_s,
        believed_ttft_s=np.where(done, s.forecasts["ttft"], np.nan),
        audits={name: audits[:, k].copy() for k, name in enumerate(ESTIMATORS[: audits.shape[1]])},
    )
