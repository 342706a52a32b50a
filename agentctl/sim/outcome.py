"""What happened to every request of a simulated run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from agentctl.metrics import Draws, HandOvers, Run, Samples
from agentctl.sim.fleet_outcome import Served
from agentctl.workload import Workload

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


class TierUse(NamedTuple):
    """What one KV tier did in a run, all of its stores together."""

    stores: int
    hit_tokens: int  # at first admissions
    loaded_bytes: float
    stored_bytes: float
    most_tokens: int  # that any of its stores has held
    replaced_tokens: int  # or given away


class EngineEnergy(NamedTuple):
    """What one engine drew in a run; NaN: unknown."""

    idle_w: float  # all the time
    prefill_j: float  # above idle, in steps of prefill alone
    decode_j: float
    mixed_j: float
    prefill_s: float  # that such steps took
    decode_s: float
    mixed_s: float
    slowed_s: float  # of these, what a cap or a clock lock has added

    @property
    def busy_j(self) -> float:
        """Above idle."""
        return self.prefill_j + self.decode_j + self.mixed_j


@dataclass
class Outcome:
    """Arrays over requests in workload order; times are seconds of the simulation's clock.

    A rejected request (`done` is False) has an arrival and nothing else: NaN, -1 and 0 stand for what it
    lacks, and are null in `table`.
    """

    workload: Workload
    pool_names: tuple[str, ...]
    pool_of_engine: I64
    done: NDArray[np.bool_]
    engine: I64  # over all pools, -1: where the prompt was computed
    arrival_s: F64  # as simulated
    scheduled_s: F64  # when first admitted
    first_token_s: F64
    finish_s: F64
    hit_tokens: I64  # at first admission
    computed_prefill_tokens: I64  # recompute after a preemption included
    preemptions: I64
    itl_max_s: F64  # longest gap between two of its output tokens
    # with KV tiers only: tokens found at first admission in tiers of its engine, in those of the cluster; and
    # seconds from the start of its loads to their end
    hit_host_tokens: I64 | None = None
    hit_global_tokens: I64 | None = None
    # or roles: and from the start to the end of its transfer, of a request that was handed over
    transfer_s: F64 | None = None
    # with roles only: the role of each engine; when a request left the router; where tokens but the first
    # were computed, tokens moved there and found there, and when; of its prefill and its preemptions, what
    # was there
    role_of_engine: I64 | None = None
    sent_s: F64 | None = None
    decode_engine: I64 | None = None
    moved_tokens: I64 | None = None
    decode_hit_tokens: I64 | None = None
    move_began_s: F64 | None = None
    move_ended_s: F64 | None = None
    decode_computed_tokens: I64 | None = None
    decode_preemptions: I64 | None = None
    tiers: tuple[TierUse, ...] = ()
    served: Served | None = None  # where pools have different models
    # where the power of any engine is known: joules above idle of a request (NaN: of an engine whose power is
    # unknown), and of every engine
    energy_j: F64 | None = None
    energy: tuple[EngineEnergy, ...] = ()
    # what costs extra and only a run that is observed has
    session_tokens: I64 | None = None  # of the prompt, that an earlier request of its session had
    copies: float | None = None  # engines that had a block of content, on average
    samples: Samples | None = None

    @classmethod
    def empty(cls, workload: Workload, pool_names: tuple[str, ...], pool_of_engine: I64) -> Outcome:
        n = workload.n_requests

        def unknown() -> F64:
            return np.full(n, np.nan)

        def zero() -> I64:
            return np.zeros(n, dtype=np.int64)

        return cls(
            workload=workload,
            pool_names=pool_names,
            pool_of_engine=pool_of_engine,
            done=np.zeros(n, dtype=bool),
            engine=np.full(n, -1),
            arrival_s=unknown(),
            scheduled_s=unknown(),
            first_token_s=unknown(),
            finish_s=unknown(),
            hit_tokens=zero(),
            computed_prefill_tokens=zero(),
            preemptions=zero(),
            itl_max_s=unknown(),
        )

    @property
    def n_engines(self) -> int:
        return int(self.pool_of_engine.size)

    @property
    def found_tokens(self) -> I64:
        """In any cache, at first admission."""
        tiers = [hits for hits in (self.hit_host_tokens, self.hit_global_tokens) if hits is not None]
        return sum(tiers, self.hit_tokens)

    @property
    def prompt_tokens(self) -> I64:
        """On the model that served the request; as logged of one that none could."""
        logged = self.workload.requests.prompt_tokens
        return logged if self.served is None else np.where(self.done, self.served.prompt_tokens, logged)

    @property
    def output_tokens(self) -> I64:
        """The same of the answer."""
        logged = self.workload.requests.output_tokens
        return logged if self.served is None else np.where(self.done, self.served.output_tokens, logged)

    def run(self) -> Run:
        """What the metrics read."""
        requests = self.workload.requests
        of_models: dict[str, Any] = self.served.for_metrics() if self.served else {}
        return Run(
            n_engines=self.n_engines,
            n_sessions=len(self.workload.session_ids),
            done=self.done,
            session=requests.session,
            engine=self.engine,
            arrival_s=self.arrival_s,
            first_token_s=self.first_token_s,
            finish_s=self.finish_s,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self.found_tokens,
            computed_prefill_tokens=self.computed_prefill_tokens,
            scheduled_s=self.scheduled_s,
            itl_max_s=self.itl_max_s,
            preemptions=self.preemptions,
            session_tokens=self.session_tokens,
            copies=self.copies,
            samples=self.samples,
            host_tokens=self.hit_host_tokens,
            global_tokens=self.hit_global_tokens,
            transfer_s=self.transfer_s,
            energy_j=self.energy_j,
            draws=self._draws(),
            hand_overs=self._hand_overs(),
            **of_models,
        )

    def _hand_overs(self) -> HandOvers | None:
        if self.decode_engine is None:
            return None
        assert self.role_of_engine is not None and self.sent_s is not None
        assert self.decode_computed_tokens is not None and self.decode_preemptions is not None
        return HandOvers(
            self.role_of_engine, self.decode_engine, self.sent_s, self.decode_computed_tokens,
            self.decode_preemptions,
        )  # fmt: skip

    def _draws(self) -> Draws | None:
        if not self.energy:
            return None
        return Draws(sum(one.idle_w for one in self.energy), sum(one.busy_j for one in self.energy))

    def table(self) -> pa.Table:
        """outcome.parquet: one row per request in workload order; null where it does not apply. What only
        roles or models have are columns behind the others."""
        requests, missing, n = self.workload.requests, ~self.done, self.done.size

        def if_done(values: I64 | F64, kind: pa.DataType) -> pa.Array:
            return pa.array(values, type=kind, mask=missing)

        def if_known(values: I64 | F64 | None, kind: pa.DataType) -> pa.Array:
            return pa.nulls(n, kind) if values is None else if_done(values, kind)

        def known(values: F64) -> pa.Array:
            return pa.array(values, type=pa.float64(), mask=missing | np.isnan(values))

        def names(values: list[str], codes: NDArray[np.integer], mask: NDArray[np.bool_]) -> pa.Array:
            indices = pa.array(codes.astype(np.int32), mask=mask)
            return pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string()))

        nothing = np.zeros(n, dtype=bool)
        pools = np.where(missing, 0, self.pool_of_engine[self.engine])
        sessions = pa.array(self.workload.session_ids, pa.string()).take(pa.array(requests.session))
        table = pa.table(
            {
                "request_id": pa.array(self.workload.request_ids, pa.string()),
                "session_id": sessions,
                "turn_index": pa.array(requests.turn, pa.int32()),
                "status": names(["done", "rejected"], missing.astype(np.int32), nothing),
                "pool": names(list(self.pool_names), pools, missing),
                "engine": if_done(self.engine, pa.int64()),
                "decode_engine": if_done(
                    self.engine if self.decode_engine is None else self.decode_engine, pa.int64()
                ),
                "arrival_s": pa.array(self.arrival_s, pa.float64()),
                "scheduled_s": if_done(self.scheduled_s, pa.float64()),
                "first_token_s": if_done(self.first_token_s, pa.float64()),
                "finish_s": if_done(self.finish_s, pa.float64()),
                "prompt_tokens": pa.array(self.prompt_tokens, pa.int64()),
                "output_tokens": pa.array(self.output_tokens, pa.int64()),
                "hit_tokens": if_done(self.hit_tokens, pa.int64()),
                "hit_host_tokens": if_known(self.hit_host_tokens, pa.int64()),
                "hit_global_tokens": if_known(self.hit_global_tokens, pa.int64()),
                "computed_prefill_tokens": if_done(self.computed_prefill_tokens, pa.int64()),
                "preemptions": if_done(self.preemptions, pa.int64()),
                "transfer_s": if_known(self.transfer_s, pa.float64()),
                "energy_j": pa.nulls(n, pa.float64()) if self.energy_j is None else known(self.energy_j),
            }
        )
        if self.moved_tokens is not None and self.sent_s is not None:
            moves = (self.move_began_s, self.move_ended_s)
            table = (
                table.append_column("sent_s", if_done(self.sent_s, pa.float64()))
                .append_column("moved_tokens", if_done(self.moved_tokens, pa.int64()))
                .append_column("decode_hit_tokens", if_known(self.decode_hit_tokens, pa.int64()))
            )
            for key, instants in zip(("move_began_s", "move_ended_s"), moves, strict=True):
                assert instants is not None
                table = table.append_column(key, known(instants))
        if self.served is None:
            return table
        of = self.served
        floats = {
            "score": of.score, "believed_score": of.accuracy, "cost_microdollars": of.cost,
            "utility": of.utility, "tau_s": of.tau_s, "believed_ttft_s": of.believed_ttft_s,
        }  # fmt: skip
        columns = {
            "model": names(list(of.models), np.where(missing, 0, of.pool), missing),
            "task": names(list(of.tasks) or [""], np.maximum(of.task, 0), of.task < 0),
            "predicted_output_tokens": if_done(of.predicted_output_tokens, pa.int64()),
            **{key: known(values) for key, values in floats.items()},
            **{f"believed_ttft_{key.replace('-', '_')}_s": known(of.audits[key]) for key in of.audits},
        }
        for key, column in columns.items():
            table = table.append_column(key, column)
        return table
