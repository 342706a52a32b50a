"""What a simulated cluster with KV tiers keeps beside the rest of its state (agentctl.sim.state).

A tier holds *units*: KV of so many tokens, named by the engine block that they end with, which stands for the
whole prefix. Unit u of a path is the one that ends at its block (u + 1) * unit_blocks, counted from the root;
it lies on the line of that block, whoever's path it is. A *store* is what one tier keeps for one engine, or
for all of them. Its *stretches* are consecutive units of one line that were used last together, are all here
or all on the way in, and are read by as many.

Slots of stretches, moves and spans begin at 1: 0 stands for none. Memory is taken when it is touched.
Indices: t tier, k store, x stretch, e engine, r request.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.cluster import Cluster, KvTier, Pool
from agentctl.errors import ConfigError
from agentctl.sim.content import Content
from agentctl.sim.transfer import Links, make_links

THROUGH, BACK, SELECTIVE = range(3)
WRITES = {"through": THROUGH, "back": BACK, "selective": SELECTIVE}
AWAITED, ASYNC, LAYERWISE = range(3)
OVERLAPS = {"none": AWAITED, "async": ASYNC, "layerwise": LAYERWISE}
NO_STANDING, LOADING, READY = range(3)
UNKNOWN = -1
NO_LIMIT = 1 << 60


def _record(**fields: str) -> np.dtype:
    return np.dtype(list(fields.items()), align=True)


# A tier's settings; names as in cluster.toml.
TIER = _record(
    first_store="i8", by_engine="?",  # the store of engine e is number first_store + e, or first_store
    unit_tokens="i8", unit_blocks="i8", capacity="i8",  # units
    bytes_per_token="f8", read_bytes_per_s="f8", write_bytes_per_s="f8", latency_s="f8", parallel="i8",
    write="i8", write_decode="?", exclusive="?", use_if_faster="?", overlap="i8",
    layers="i8",  # of the model; 0: unknown
)  # fmt: skip
STORE = _record(
    tier="i8", n_units="i8",
    oldest="i8", newest="i8",  # the queue of stretches by their last use
    n_stretches="i8", free_stretch="i8", n_moves="i8", free_move="i8",  # slots ever in use; the first free
    clock="i8",  # operations, to mark what one of them has found
    bytes_loaded="f8", bytes_stored="f8", units_lost="i8", most_units="i8",
)  # fmt: skip
STRETCH = _record(
    line="i4", low="i4", high="i4",  # units low .. high - 1
    readers="i4",  # loads under way
    move="i4",  # the store that brings it in; 0: it is here
    deeper="i4",  # the next stretch of the line; a free slot is chained by it
    previous="i4", next="i4",  # in the queue
    chain="i4",  # another stretch of the same move
    mark="i8",  # the operation that found it last
)  # fmt: skip
# What a store has of a line.
SHELF = _record(
    first="i4",  # stretch
    once="i4", twice="i4",  # behind the last unit that was a local hit of one admission, of two
)  # fmt: skip
# A load or a store under way; its slot is that of its transfer.
MOVE = _record(is_load="?", engine="i4", r="i4", first="i4", began="f8")  # first: span or stretch
SPAN = _record(low="i4", high="i4", next="i4")  # units of a load
FOUND = _record(tier="i4", low="i4", high="i4", start="i4", tokens="i4")  # units; from which token, how many
REACH = _record(line="i4", low="i4", high="i4")  # units of a line; of `losses` blocks
# What tiers add to a request and to an engine.
LOADS = _record(standing="i4", n_loads="i4", began="f8", load_s="f8")
BENCH = _record(
    n_loading="i8", n_ready="i8",  # of the waiting requests
    batch_loads="i8",  # of the batch that is being planned, or waits
    awaits="?",  # the planned batch waits for its loads ...
    start_after="f8", layered_until="f8", first_layer="f8",  # ... as those that have ended say
)  # fmt: skip


class TierState(NamedTuple):
    """Fields of State; a cluster without tiers has one of each record and no tier."""

    tiers: NDArray  # TIER [tier]
    stores: NDArray  # STORE [store]
    stretches: NDArray  # STRETCH [store, slot]
    shelves: NDArray  # SHELF [store, line]
    moves: NDArray  # MOVE [store, slot]
    spans: NDArray  # SPAN [slot]
    free_span: NDArray[np.int64]  # [2] slots ever in use; the first free
    loads: NDArray  # LOADS [request]
    tier_hits: NDArray[np.int32]  # [request, tier] tokens, at the first admission; UNKNOWN before
    benches: NDArray  # BENCH [engine]
    depths: NDArray[np.int64]  # [line] blocks before its first
    noted: NDArray[np.int32]  # [line, engine] of its first blocks, in a prompt here; where tiers write back
    losses: NDArray  # REACH, blocks whose last copy this planning has lost, in that order
    found: NDArray  # FOUND, scratch
    wanted: NDArray  # REACH, scratch: units, from the root on
    started: NDArray[np.int64]  # scratch: requests that may be stored, 2 * r + whether it ends
    moving: NDArray[np.float64]  # [1] when the next transfer ends, or its latency
    links: NDArray
    transfers: NDArray
    of_engine: NDArray[np.int64]
    with_count: NDArray[np.int64]


def make_tiers(
    cluster: Cluster | None, content: Content, n_jobs: int, n_engines: int, seqs: int, n_moving: int
) -> TierState:
    """Empty tiers. Raises ConfigError for what does not fit the pools. Behind their links there is one more,
    for `n_moving` transfers at a time between engines."""
    settings = cluster.kv_tiers if cluster else ()
    if not settings or cluster is None:
        return _tier_state(
            (), np.zeros(0, TIER), content, 1, n_engines if n_moving else 1, 1, [1.0], np.zeros(1, np.int64),
            0, n_moving,
        )  # fmt: skip
    tiers = np.zeros(len(settings), TIER)
    shares, first = [], 0
    for tier, one in zip(tiers, settings, strict=True):
        _set_tier(tier, one, cluster.pools)
        tier["first_store"] = first
        n_stores = n_engines if one.scope == "engine" else 1
        first += n_stores
        shares += [_share(one)] * n_stores
    usable = np.repeat(
        [pool.usable_blocks for pool in cluster.pools], [pool.engines for pool in cluster.pools]
    )
    return _tier_state(
        settings, tiers, content, n_jobs, n_engines, content.n_lines, shares, usable, seqs, n_moving
    )


def _share(one: KvTier) -> float:
    """Of the tier, what one engine's link passes."""
    link = one.engine_read_bytes_per_s
    return 1.0 if link is None or link >= one.read_bytes_per_s else link / one.read_bytes_per_s


def _set_tier(tier: NDArray, one: KvTier, pools: tuple[Pool, ...]) -> None:
    place = f"[[kv_tier]] {one.name}"
    block = pools[0].block_tokens
    if one.unit_tokens % block:
        raise ConfigError(
            f"unit_tokens is {one.unit_tokens} and an engine's block has {block} tokens",
            place=place,
            expected="whole blocks",
        )
    sizes = {pool.profile.kv_bytes_per_token for pool in pools}
    if None in sizes or len(sizes) > 1:
        raise ConfigError(
            "the size of a token's KV is not known" if None in sizes else "pools have KV of different sizes",
            place=place,
            expected="kv_bytes_per_token in every profile, and the same",
        )
    tier["by_engine"] = one.scope == "engine"
    tier["unit_tokens"], tier["unit_blocks"] = one.unit_tokens, one.unit_tokens // block
    tier["capacity"], tier["bytes_per_token"] = one.capacity_tokens // one.unit_tokens, sizes.pop()
    for name in ("read_bytes_per_s", "write_bytes_per_s", "latency_s", "parallel", "write_decode",
                 "use_if_faster"):  # fmt: skip
        tier[name] = getattr(one, name)
    tier["exclusive"] = one.inclusion == "exclusive"
    tier["write"], tier["overlap"] = WRITES[one.write], OVERLAPS[one.overlap]
    tier["layers"] = one.layers or 0


def _tier_state(
    settings: tuple[KvTier, ...],
    tiers: NDArray,
    content: Content,
    n_jobs: int,
    n_engines: int,
    n_lines: int,
    shares: list[float],
    usable: NDArray[np.int64],
    seqs: int,
    n_moving: int,
) -> TierState:
    """Slots: a stretch has a unit at least, a load a block of an engine, a store a unit on the way in."""
    lengths = _line_lengths(content) if settings else np.zeros(1, np.int64)
    writes_back = any(one.write == "back" for one in settings)
    n_stretches = 1
    for tier in tiers:
        distinct = int((lengths // tier["unit_blocks"]).sum()) + lengths.size
        n_stretches = max(n_stretches, min(int(tier["capacity"]), distinct) + 2)
    stores = np.zeros(len(shares), STORE)
    stores["tier"] = np.concatenate(
        [np.full(n_engines if one.scope == "engine" else 1, t) for t, one in enumerate(settings)]
        or [np.zeros(1, np.int64)]
    )
    n_moves = n_stretches + int(usable.sum()) + 2 if settings else 1
    most_blocks = _most_blocks(content) + int(usable.max()) + 2 if settings else 1
    links: Links = make_links([*shares, *[1.0] * (n_moving > 0)], max(n_moves, n_moving), n_engines)
    n_losses = 4 * int(usable.max()) + 64 if writes_back else 0
    arrays: tuple[Any, ...] = (
        tiers, stores, np.zeros((len(shares), n_stretches), STRETCH), np.zeros((len(shares), n_lines), SHELF),
        np.zeros((len(shares), n_moves), MOVE), np.zeros(int(usable.sum()) + 2, SPAN), np.zeros(2, np.int64),
        np.zeros(n_jobs, LOADS), np.full((n_jobs, max(len(settings), 1)), UNKNOWN, np.int32),
        np.zeros(n_engines, BENCH), _line_depths(content) if settings else np.zeros(1, np.int64),
        np.zeros((n_lines, n_engines) if writes_back else (1, 1), np.int32), np.zeros(n_losses, REACH),
        np.zeros(most_blocks, FOUND), np.zeros(2 * most_blocks + n_losses, REACH),
        np.zeros(seqs, np.int64), np.full(1, np.inf), *links,
    )  # fmt: skip
    return TierState(*(array.view(np.recarray) if array.dtype.fields else array for array in arrays))


def _line_lengths(content: Content) -> NDArray[np.int64]:
    """Blocks of each line that any path reaches."""
    lengths = np.zeros(content.n_lines, np.int64)
    np.maximum.at(lengths, content.line, content.length)
    return lengths


def _line_depths(content: Content) -> NDArray[np.int64]:
    """How many blocks lie before the first one of a line: the same on every path through it."""
    before = np.cumsum(content.length, dtype=np.int64) - content.length
    paths = np.diff(content.start)
    before -= np.repeat(before[content.start[:-1][paths > 0]], paths[paths > 0])
    depths = np.zeros(content.n_lines, np.int64)
    depths[content.line] = before
    return depths


def _most_blocks(content: Content) -> int:
    """Of one path."""
    if content.line.size == 0:
        return 0
    total = np.concatenate([[0], np.cumsum(content.length, dtype=np.int64)])
    return int((total[content.start[1:]] - total[content.start[:-1]]).max(initial=0))
