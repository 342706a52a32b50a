"""Pools with different models: what every request would be on each of them, and what a router believes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

LAM_PER_MICRODOLLAR = 5e-4  # of the SFS paper
BY_REQUEST = ("prompt_tokens", "output_tokens", "score", "accuracy", "predicted_output", "tau_s", "task")


class PoolMeans(NamedTuple):
    """What engines of each pool do on average, from a calibration: arrays [pool].

    arrivals_per_s, completions_per_s   of one engine, before any have been counted
    rates, waits   [pool, point] mean wait in the queue, s, at some arrival rates of one engine, rising;
                   beyond the last one the queue is unstable
    """

    prefill_tokens_per_s: F64
    decode_tokens_per_s: F64
    decode_step_s: F64
    arrivals_per_s: F64
    completions_per_s: F64
    rates: F64
    waits: F64


class Remaining(NamedTuple):
    """Tokens that are left of an answer, by how long it was predicted and how long it is so far.

    predicted, emitted  lower edges of bins, and points, ascending from 0
    tokens              [bin, point], linear between points; beyond the last one as there
    """

    predicted: F64
    emitted: F64
    tokens: F64


@dataclass(frozen=True, eq=False)
class Fleet:
    """Arrays [request, pool], requests in workload order, pools as in the cluster; costs in millionths of
    a dollar.

    models              of the pools
    prompt_tokens, output_tokens  true ones on that pool's model
    score               judged answer, 0..1; NaN: nobody has judged it
    accuracy            the score that the router believes
    predicted_output    tokens of the answer that the router believes, at least 1
    remaining           what an answer that outlives its prediction still gets; None: as much as predicted
    tau_s               [request] until when the first token is on time
    task, tasks         [request] number of its task, -1: unknown; their names
    prompt_price, output_price  [pool] of one token
    lam_per_microdollar utility = score - lam * cost
    """

    models: tuple[str, ...]
    prompt_tokens: I64
    output_tokens: I64
    score: F64
    accuracy: F64
    predicted_output: I64
    tau_s: F64
    task: I64
    tasks: tuple[str, ...]
    prompt_price: F64
    output_price: F64
    means: PoolMeans | None = None
    remaining: Remaining | None = None
    lam_per_microdollar: float = LAM_PER_MICRODOLLAR

    @property
    def cost(self) -> F64:
        """What every request truly costs on every pool."""
        return self.prompt_tokens * self.prompt_price + self.output_tokens * self.output_price

    @property
    def predicted_cost(self) -> F64:
        return self.prompt_tokens * self.prompt_price + self.predicted_output * self.output_price

    @property
    def utility(self) -> F64:
        """As judged; NaN where nobody has."""
        return self.score - self.lam_per_microdollar * self.cost

    def take(self, rows: I64) -> Fleet:
        """Those of some requests, in the order of `rows`."""
        return replace(self, **{name: getattr(self, name)[rows] for name in BY_REQUEST})
