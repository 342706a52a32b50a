"""What a request log says of an engine's traffic, for its queue."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from agentctl.analyzers.words import count
from agentctl.errors import InputError
from agentctl.estimators.lps_batch import MeanRequest
from agentctl.trace import Trace

COLUMNS = [
    "arrival_s", "e2e_s", "prompt_tokens", "output_tokens", "cached_tokens", "instance", "status",
]  # fmt: skip


@dataclass(frozen=True)
class Log:
    """What a request log says of an engine's traffic; arrays over the requests that were served.

    labels   which engine served each, numbered; None: the log does not say, one is taken
    cached   prompt tokens found in a cache, NaN where unknown
    """

    arrival: np.ndarray
    e2e: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    cached: np.ndarray
    labels: np.ndarray | None
    digest: str
    origin_s: float | None  # of its times, in unix seconds

    @property
    def n_engines(self) -> int:
        return 1 if self.labels is None else int(np.unique(self.labels).size)

    @property
    def rate_per_s(self) -> float:
        """Arrivals per second and engine."""
        return float((self.arrival.size - 1) / np.ptp(self.arrival) / self.n_engines)

    @property
    def mean_request(self) -> MeanRequest:
        known = np.isfinite(self.cached)
        hit = float(self.cached[known].mean()) if known.any() else 0.0
        computed = np.where(known, self.prompt - self.cached, self.prompt)
        return MeanRequest(
            float(self.prompt.mean()),
            float(self.output.mean()),
            min(hit, float(self.prompt.mean()) - 1),
            _scv(self.output),
            _scv(computed),
        )


def read_log(trace: Trace) -> Log:
    """The requests of a trace that were served; raises InputError without token counts."""
    rows = trace.requests(COLUMNS).filter(pl.col("status").cast(pl.String) == "ok")
    for column in ("prompt_tokens", "output_tokens"):
        if rows[column].null_count():
            raise InputError(
                f"{rows[column].null_count():,} of {rows.height:,} requests have no {column}",
                place=str(trace.path),
                expected="token counts of every request",
                hint=f"name the field that holds them: agentctl ingest --map {column}=FIELD",
            )
    if rows.height < 2:
        raise InputError(
            f"has {count(rows.height, 'request')} that the engine served",
            place=str(trace.path),
            expected="50 at least, in quiet and busy times",
        )
    origin = trace.meta.get("time_origin_ns")
    names = rows["instance"].cast(pl.String)
    labels = None if names.null_count() else names.rank("dense").to_numpy().astype(np.int64)
    numbers = {name: rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in COLUMNS[:5]}
    return Log(
        arrival=numbers["arrival_s"],
        e2e=numbers["e2e_s"],
        prompt=numbers["prompt_tokens"],
        output=np.maximum(numbers["output_tokens"], 1),
        cached=numbers["cached_tokens"],
        labels=labels,
        digest=trace.digest,
        origin_s=None if origin is None else origin / 1e9,
    )


def _scv(values: np.ndarray) -> float:
    mean = float(values.mean())
    return float(values.var()) / mean**2 if mean > 0 else 0.0
