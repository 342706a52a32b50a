"""A trace's own run, simulated: every request goes to the engine that the log says, when the log says.

Behind `calibrate log`, which looks for the coefficients that reproduce it, and `validate`, which says how
well given ones do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numba import njit
from numpy.typing import NDArray

from agentctl.cluster import Cluster, Router
from agentctl.errors import ConfigError, InputError
from agentctl.estimators.batch_time import BatchTime
from agentctl.logged_hits import with_logged_hits
from agentctl.policies.base import NoParams, Policy
from agentctl.sim.driver import begin, check_ended
from agentctl.sim.make_state import common_block
from agentctl.sim.outcome import Outcome
from agentctl.sim.outcome_of import outcome_of
from agentctl.sim.samples import first_samples, sample_from
from agentctl.sim.view import View
from agentctl.trace import Trace
from agentctl.workload import Requests, Workload, compile_workload
from agentctl.workload.arrays import first_children
from agentctl.workload.compile import SIMULATED

F64 = NDArray[np.float64]
COLUMNS = [
    "request_id", "session_id", "instance", "status", "ttft_s", "e2e_s", "queue_s", "cached_tokens",
]  # fmt: skip
SCRATCH = ("holds", "samples", "ended")  # of the state: what a run leaves there, the next does not read
LEAST_PLACED = 0.99  # share of rows whose engine the log must know


@njit(cache=True)
def _as_logged(view: View, requests: Requests, r: int, my: NoParams) -> int:
    return int(view.memory[r])


# In no list of policies: it decides nothing. Its memory is filled with the engines before the run.
AS_LOGGED = Policy(
    "as-logged", _as_logged, NoParams(), "the log", (), {}, "Every request goes where the log says.",
    memory=lambda n_requests, n_sessions, n_engines: n_requests,
)  # fmt: skip


class Logged(NamedTuple):
    """What the log measured of the workload's requests; NaN where it did not, or the request failed."""

    ttft_s: F64
    e2e_s: F64
    queue_s: F64
    cached_tokens: F64


class Placement(NamedTuple):
    """engine: number of each request's engine in `names`; n_guessed: how many of them the log lacks."""

    engine: NDArray[np.int64]
    names: tuple[str, ...]
    n_guessed: int = 0


class LoggedRun:
    """The trace's requests on a cluster, to be run again and again with other coefficients.

    cluster   its engines stand for the log's, in the order of their names; all take the same coefficients
    policy    None: the log's placement, else this one decides
    replay    as in compile_workload; by default requests arrive at the logged times
    requests  of the trace's start; default: all

    Where the log has cached tokens but no blocks, its hits are simulated
    as it has them (`hits_as_logged`). Raises InputError for a trace without measured latencies, token
    counts or placement, ConfigError for a cluster with another number of engines than the log's.
    """

    def __init__(
        self,
        trace: Trace,
        cluster: Cluster,
        policy: Policy | None = None,
        replay: str | None = "timestamps",
        requests: int | None = None,
    ) -> None:
        rows = simulated_rows(trace, COLUMNS).head(trace.n_requests if requests is None else requests)
        self.workload = first_requests(compile_workload(trace, replay), rows.height)
        self.logged = _logged(rows, str(trace.path))
        self.placement = None if policy else placement_of(rows, cluster.n_engines, str(trace.path))
        self.hits_as_logged = trace.block_tokens is None and bool(np.nansum(self.logged.cached_tokens) > 0)
        if self.hits_as_logged and self.placement is not None:
            self.workload = with_logged_hits(
                self.workload, self.logged.cached_tokens, self.logged.ttft_s, self.placement.engine,
                common_block(cluster),
            )  # fmt: skip
        self.cluster = cluster if policy else replace(cluster, router=Router(AS_LOGGED.name))
        self.policy_name = (policy or AS_LOGGED).name
        self._replay = begin(self.workload, self.cluster, policy or AS_LOGGED, seed=0, concurrency=None)
        if self.placement is not None:
            self._replay.s.memory[:] = self.placement.engine
        live = (*self._replay.s._asdict().items(), *self._replay.arrivals._asdict().items())
        plain = [_bytes(array) for name, array in live if name not in SCRATCH]
        self._fresh = [(array, array.copy()) for array in plain]
        self._used = False

    def simulate(self, batch_time: BatchTime | None = None, observed: bool = False) -> Outcome:
        """The run with these coefficients, or the cluster's own; `observed` as in sim.driver.simulate."""
        self._run(batch_time, observed)
        return outcome_of(self.workload, self.cluster, self._replay, observed)

    def latencies(self, batch_time: BatchTime) -> tuple[F64, F64]:
        """Simulated TTFT and duration of every request, s; NaN: rejected. Cheaper than an outcome."""
        self._run(batch_time)
        jobs = self._replay.s.jobs
        return jobs["first_token"] - jobs["arrival"], jobs["finish"] - jobs["arrival"]

    def _run(self, batch_time: BatchTime | None, observed: bool = False) -> None:
        if self._used:
            for live, fresh in self._fresh:
                live[...] = fresh
        self._used = True
        s = self._replay.s
        if batch_time is not None:
            for name in BatchTime._fields[1:]:
                s.limits[name] = getattr(batch_time, name)
        if observed:
            sample_from(s, *first_samples(self.workload.requests.arrival, None))
        self._replay.go_on(self.workload.n_requests + 1)
        check_ended(s)


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The memory of an array, since records are copied field by field."""
    flat = np.asarray(array).reshape(-1).view(np.uint8)
    assert np.shares_memory(flat, array) or not array.size
    return flat


def first_requests(workload: Workload, n: int) -> Workload:
    """The first n requests, which wait for earlier ones only."""
    if n >= workload.n_requests:
        return workload
    whole = workload.requests
    part = {name: values[:n] for name, values in whole._asdict().items()}
    part["deps_start"] = whole.deps_start[: n + 1]
    part["deps"] = whole.deps[: whole.deps_start[n]]
    part["confirmed_child"] = first_children(part["parent"])
    return replace(workload, requests=Requests(**part), request_ids=workload.request_ids[:n], as_logged=None)


def engines_in(trace: Trace) -> tuple[str, ...]:
    """Names of the engines that served a request, sorted; none where the log does not say."""
    return _names(simulated_rows(trace, ["status", "instance"]))


def simulated_rows(trace: Trace, columns: list[str]) -> pl.DataFrame:
    """One row per request of the workload."""
    return trace.requests(columns).filter(pl.col("status").cast(pl.String).is_in(SIMULATED))


def blocks_for_all(trace: Trace, block_tokens: int) -> int:
    """KV blocks of an engine that holds every request at once: its cache is never full."""
    rows = simulated_rows(trace, ["status", "prompt_tokens", "output_tokens"])
    tokens = rows["prompt_tokens"].fill_null(0) + rows["output_tokens"].fill_null(0)
    return int(np.ceil(tokens.to_numpy() / block_tokens).sum()) + 2


def _names(rows: pl.DataFrame) -> tuple[str, ...]:
    return tuple(sorted(rows["instance"].drop_nulls().cast(pl.String).unique()))


def placement_of(rows: pl.DataFrame, n_engines: int, place: str) -> Placement:
    """Where each row was served. A row without an engine goes where its session's row before it went, or to
    the first engine; with one engine in the cluster and none in the log all go there."""
    named = rows["instance"].cast(pl.String)
    names = _names(rows)
    n_missing = named.null_count()
    if not names and n_engines == 1:
        return Placement(np.zeros(rows.height, np.int64), (), 0)
    if n_missing > (1 - LEAST_PLACED) * rows.height:
        raise InputError(
            f"{n_missing:,} of {rows.height:,} requests do not say which engine served them",
            place=place,
            expected=f"an engine on {LEAST_PLACED:.0%} of them, or a log of one engine",
            hint="name the field that holds it: agentctl ingest --map instance=FIELD",
        )
    if len(names) != n_engines:
        raise ConfigError(
            f"the log names {len(names)} engines and the cluster has {n_engines}", place=place,
            hint=f"--engines {len(names)}",
        )  # fmt: skip
    number = named.replace_strict({name: k for k, name in enumerate(names)}, return_dtype=pl.Int64)
    filled = pl.DataFrame({"engine": number, "session": rows["session_id"]}).with_columns(
        pl.col("engine").forward_fill().over("session").fill_null(0)
    )
    return Placement(filled["engine"].to_numpy(), names, n_missing)


def _logged(rows: pl.DataFrame, place: str) -> Logged:
    """Raises InputError where no request has a latency."""
    is_ok = (rows["status"].cast(pl.String) == "ok").to_numpy()

    def measured(column: str) -> F64:
        values = rows[column].cast(pl.Float64).fill_null(np.nan).to_numpy()
        return np.where(is_ok, values, np.nan)

    logged = Logged(*(measured(column) for column in Logged._fields))
    if np.isnan(logged.ttft_s).all() and np.isnan(logged.e2e_s).all():
        raise InputError(
            "no request has a measured latency",
            place=place,
            expected="time to first token or whole duration of the requests",
            hint="name the fields: agentctl ingest --map ttft_s=FIELD --map e2e_s=FIELD",
        )
    return logged
