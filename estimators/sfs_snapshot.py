"""What is known of one engine at one instant: enough to go on with its scheduler from there.

An engine publishes a snapshot after every scheduling step; a router keeps the newest. `to_plain` and
`parse_snapshot` are JSON's numbers, strings and lists; the engine's limits and coefficients stand in `engine`
like a [[pool]] of cluster.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numba import config
from numpy.typing import NDArray

from agentctl.cluster import CLUSTER_SCHEMA, VLLM_KEYS, Cluster, Pool, parse_cluster
from agentctl.errors import ConfigError, InputError
from agentctl.sim.fleet_state import HEAD, SEEN
from agentctl.sim.make_state import make_limits
from agentctl.toml import build, check_keys

SNAPSHOT_SCHEMA = "agentctl/snapshot/1"
ENGINE_KEYS = (*VLLM_KEYS, "kv_blocks", "max_num_seqs", "max_model_len", "prefix_caching")

Positive = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]


def for_kernels(records: NDArray) -> NDArray:
    """The same records as compiled code takes them soonest; interpreted code wants fields as attributes."""
    return records.view(np.recarray if config.DISABLE_JIT else np.ndarray)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class SeenRequest:
    """A request on an engine, the batch in flight not counted. Tokens unless named.

    output_tokens     in all: as known or predicted; a prediction that it has outlived counts double
    emitted_tokens    outputs so far
    computed_tokens   with KV, prompt and outputs, cache hits included
    in_flight_tokens  that the batch in flight computes
    kv_blocks         that come free when it ends; None: all that it has, none shared with others
    hit_tokens        of a waiting request: found in the engine's cache when it is admitted
    """

    prompt_tokens: Positive
    output_tokens: Positive
    request_id: str = ""
    emitted_tokens: Count = 0
    computed_tokens: Count = 0
    in_flight_tokens: Count = 0
    kv_blocks: Count | None = None
    hit_tokens: Count = 0
    arrival_s: float = 0.0
    priority: int = 0

    @property
    def processed_prompt_tokens(self) -> int:
        return min(self.computed_tokens, self.prompt_tokens)


@dataclass(frozen=True)
class Snapshot:
    """One engine at `taken_s`; all times are of one clock. `running` and `waiting` stand in the scheduler's
    order, preempted requests in front of `waiting` as the scheduler puts them.

    batch_started_s   of the batch in flight, None when there is none
    batches           executed so far (matters for prefill_schedule_interval alone)

    Raises InputError for what no engine can be in.
    """

    engine: Pool
    taken_s: float
    free_blocks: Count
    running: tuple[SeenRequest, ...] = ()
    waiting: tuple[SeenRequest, ...] = ()
    batch_started_s: float | None = None
    batches: Count = 0

    def __post_init__(self) -> None:
        _check_engine(self)
        _check_requests(self)

    @property
    def requests(self) -> tuple[SeenRequest, ...]:
        return self.running + self.waiting

    @property
    def is_idle(self) -> bool:
        return not self.requests

    @cached_property
    def limits(self) -> NDArray:
        """LIMITS of agentctl.sim.state, one record."""
        return make_limits(Cluster((self.engine,)))

    @cached_property
    def records(self) -> NDArray:
        """SEEN, running requests first."""
        size = self.engine.block_tokens
        rows = [
            (
                q.prompt_tokens, q.output_tokens, q.emitted_tokens, q.computed_tokens, q.in_flight_tokens,
                -(-(q.computed_tokens + q.in_flight_tokens) // size) if q.kv_blocks is None else q.kv_blocks,
                q.hit_tokens, q.priority, q.arrival_s,
            )
            for q in self.requests
        ]  # fmt: skip
        return for_kernels(np.array(rows, SEEN))

    @cached_property
    def head(self) -> NDArray:
        """HEAD, one record."""
        started = np.nan if self.batch_started_s is None else self.batch_started_s
        row = (len(self.running), len(self.waiting), self.free_blocks, self.batches, self.taken_s, started)
        return for_kernels(np.array([row], HEAD))

    def to_plain(self) -> dict[str, Any]:
        """What `parse_snapshot` reads again."""
        pool = self.engine
        engine = {key: getattr(pool, key) for key in ENGINE_KEYS if getattr(pool, key) is not None}
        plain: dict[str, Any] = {"schema": SNAPSHOT_SCHEMA}
        plain["engine"] = {"name": pool.name, **engine, "batch_time": pool.profile.batch_time._asdict()}
        for field in fields(self)[1:]:
            plain[field.name] = getattr(self, field.name)
        for name in ("running", "waiting"):
            plain[name] = [asdict(request) for request in plain[name]]
        return plain


@dataclass(frozen=True)
class _Plain:
    """Snapshot without its engine, for the reader."""

    taken_s: float
    free_blocks: Count
    running: tuple[SeenRequest, ...] = ()
    waiting: tuple[SeenRequest, ...] = ()
    batch_started_s: float | None = None
    batches: Count = 0


def parse_snapshot(plain: Any, engine: Pool | None = None) -> Snapshot:
    """A snapshot from plain data; `engine` is used where the data do not say which engine they are of.

    Raises InputError with the place of what is wrong.
    """
    try:
        return _parse(plain, engine)
    except ConfigError as error:
        raise InputError(error.fact, place=error.place, expected=error.expected, hint=error.hint) from error


def _parse(plain: Any, engine: Pool | None) -> Snapshot:
    if not isinstance(plain, Mapping):
        raise InputError("is no object", place="snapshot")
    table = dict(plain)
    if (schema := table.pop("schema", None)) != SNAPSHOT_SCHEMA:
        raise InputError(f"schema is {schema!r}", place="snapshot", expected=repr(SNAPSHOT_SCHEMA))
    if "engine" in table:
        engine = parse_engine(table.pop("engine"))
    if engine is None:
        raise InputError("missing", place="snapshot engine", expected="limits as in [[pool]] of cluster.toml")
    for name in ("running", "waiting"):
        for row in table.get(name) or ():
            if isinstance(row, Mapping):
                check_keys(row, SeenRequest.__dataclass_fields__, f"snapshot {name}")
    found = build(_Plain, table, "snapshot")
    return Snapshot(engine, **{field.name: getattr(found, field.name) for field in fields(found)})


def parse_engine(table: Any) -> Pool:
    """Limits and coefficients of one engine, as in a [[pool]] of cluster.toml."""
    return parse_cluster({"schema": CLUSTER_SCHEMA, "pool": [table]}, "snapshot engine").pools[0]


def _bad(fact: str, place: str, expected: str) -> InputError:
    return InputError(fact, place=f"snapshot {place}", expected=expected)


def _check_engine(snapshot: Snapshot) -> None:
    pool = snapshot.engine
    if pool.scheduler != "vllm":
        raise _bad(f"is {pool.scheduler}", "engine scheduler", "vllm: no other is replayed yet")
    if not np.isfinite(snapshot.taken_s):
        raise _bad(f"is {snapshot.taken_s}", "taken_s", "seconds")
    started = snapshot.batch_started_s
    if started is not None and not started <= snapshot.taken_s:
        raise _bad(f"is {started}", "batch_started_s", f"at most taken_s, {snapshot.taken_s}")
    if (started is not None) != any(request.in_flight_tokens for request in snapshot.running):
        raise _bad(f"is {started}", "batch_started_s", "a time exactly when requests have in_flight_tokens")
    if len(snapshot.running) > pool.max_num_seqs:
        raise _bad(f"are {len(snapshot.running)}", "running", f"at most max_num_seqs, {pool.max_num_seqs}")
    ids = [request.request_id for request in snapshot.requests if request.request_id]
    if len(set(ids)) < len(ids):
        raise _bad("one id is of two requests", "request_id", "every request once")


def _check_requests(snapshot: Snapshot) -> None:
    seen, size, n = snapshot.records, snapshot.engine.block_tokens, len(snapshot.running)
    limits = snapshot.limits[0]
    length, after = seen["prompt"] + seen["emitted"], seen["computed"] + seen["in_flight"]
    blocks, named = -(-after // size), after // size * snapshot.engine.prefix_caching
    idle = (after > 0) | (seen["own_blocks"] > 0)
    idle[:n] = False
    own = int(seen["own_blocks"].sum())
    counts = [seen[name] for name in SEEN.names or () if name not in ("priority", "arrival")]
    rules = (
        (np.minimum.reduce(counts) < 0, "has a number below 0"),
        ((seen["prompt"] < 1) | (seen["output"] < 1), "has no prompt or no output"),
        (after > length, "computes more tokens than prompt and outputs have"),
        (idle, "waits, but has computed tokens or blocks"),
        (seen["own_blocks"] > blocks, "has more kv_blocks than its computed tokens fill"),
        (blocks - seen["own_blocks"] > named, "shares blocks (kv_blocks) that are not full or not cached"),
        (seen["hit"] > seen["prompt"], "hits more than its prompt"),
        (~np.isfinite(seen["arrival"]), "has no finite arrival_s"),
        (
            (seen["prompt"] > limits.most_prompt) | (length >= limits.most_tokens),
            "is longer than the engine can ever serve",
        ),
    )
    for wrong, fact in rules:
        if wrong.any():
            place = int(np.argmax(wrong))
            where = f"running[{place}]" if place < n else f"waiting[{place - n}]"
            raise InputError(fact, place=f"snapshot {where}")
    if own + snapshot.free_blocks > snapshot.engine.usable_blocks:
        raise _bad(
            f"are {snapshot.free_blocks} beside {own} blocks in use", "free_blocks",
            f"together at most {snapshot.engine.usable_blocks}",
        )  # fmt: skip
