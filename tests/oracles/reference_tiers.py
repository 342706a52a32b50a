"""KV tiers behind the judge's engines, unit by unit and transfer by transfer, written to be read.

A *tier* keeps KV that engines have computed, in units of `unit_tokens`. A unit is named like the engine
block it ends with, which stands for the whole prefix: equal names hold equal KV. Reading order: Tier
(settings), Store (what one tier holds, and its transfers), TieredEngine (who loads and stores what, when),
TieredCluster (time).

Looking. At each admission, after the local hit: unit by unit from the one that the hit ends in, the first
tier in order that holds the next whole unit, as long as one does and never the entire sequence. Tokens of
a first unit that are here already are not moved. A tier with `use_if_faster` whose part, moved alone at
full speed after its latency, takes as long as its tokens would add to a batch, or longer, is left out, and
the search is done again without it.

Loading. A request's loads start together, one per tier. If one of its tiers is `async` it keeps its place
in the queue and holds the blocks that are loaded, and others pass it; loaded blocks can be found from the
end of the load on. Otherwise it goes into the batch, which then lasts
    none:       until its loads have ended, plus its own duration
    layerwise:  max(loads, duration) + the load's first layer (load / layers, if the number is known)
If nothing runs or loads and the next request does not fit, the loaded one that is last in the queue gives
its blocks back and starts over.

Storing. What is stored is a snapshot: no engine block waits for a store. A unit can be found from the end
of its store on, and has its place from the start of it.
    through:    at the end of a prefill, the units of the prompt; with `write_decode` those of all tokens,
                then and when the request ends
    selective:  as through, but only units that were local hits of two admissions
    back:       when the engine loses its last copy of the unit's last block (of a prompt, unless
                `write_decode`), in one store for all that a scheduling loses
Units that are there are not moved again. An exclusive tier gives a unit away when the last load of it ends.

Replacing. Least recently used; loading and storing are uses, and of one request the last unit counts as
used first. Units on the way in or being read stay. What finds no place is not stored, later units first.

Bandwidth: see transfers. Loads and stores share a tier; an engine's link passes the same part of it, engine
read / read, for both. Latency belongs to loads: once each, or once per ceil(units / parallel).

At one instant: transfers that end, then batches that end, arrivals, and engines that start.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from oracles.reference_simulator import Chunk, Cluster, Engine, Job, Limits, Names, Pool, Request
from oracles.transfers import Link

# ----------------------------------------------------------------------------------------------- what goes in


@dataclass(frozen=True)
class Tier:
    """Names as in cluster.toml; a capacity of 0 is allowed here."""

    capacity_tokens: float = math.inf
    scope: str = "cluster"  # engine | cluster
    read_bytes_per_s: float = math.inf
    write_bytes_per_s: float = math.inf
    engine_read_bytes_per_s: float | None = None
    latency_s: float = 0.0
    parallel: int = 0
    unit_tokens: int = 16
    inclusion: str = "inclusive"  # inclusive | exclusive
    write: str = "through"  # through | back | selective
    write_decode: bool = False
    use_if_faster: bool = False
    overlap: str = "async"  # none | async | layerwise

    @property
    def share(self) -> float:
        """Of the tier, what one engine's link passes."""
        if self.engine_read_bytes_per_s is None or self.engine_read_bytes_per_s >= self.read_bytes_per_s:
            return 1.0
        return self.engine_read_bytes_per_s / self.read_bytes_per_s

    def latency(self, units: int) -> float:
        return self.latency_s * (math.ceil(units / self.parallel) if self.parallel else 1)


# ------------------------------------------------------------------------------------------ what a tier holds


@dataclass(eq=False)
class Unit:
    here: bool = False  # else on the way in
    readers: int = 0


@dataclass(eq=False)
class Move:
    """A load or a store."""

    kind: str
    engine: int
    r: int  # -1: no request's
    names: list[Hashable]
    size: float  # bytes
    began: float
    ended: float = math.nan


class Store:
    def __init__(self, tier: Tier, bytes_per_token: float):
        self.tier, self.bytes_per_token = tier, bytes_per_token
        self.link = Link(tier.share)
        self.units: dict[Hashable, Unit] = {}  # the one used longest ago in front
        self.hits: Counter[Hashable] = Counter()  # admissions that hit a unit locally
        self.moves: list[Move] = []  # all there ever were; their names on the link are places in this list
        self.lost: list[Hashable] = []  # units replaced or given away

    def has(self, name: Hashable) -> bool:
        return name in self.units and self.units[name].here

    def alone(self, tokens: float, units: int) -> float:
        """Seconds that a load takes when nothing else moves."""
        work = tokens * self.bytes_per_token / self.tier.read_bytes_per_s
        return self.tier.latency(units) + work / self.tier.share

    def load(self, engine: int, r: int, names: list[Hashable], tokens: int, now: float) -> Move:
        self._use(names)
        for name in names:
            self.units[name].readers += 1
        size = tokens * self.bytes_per_token
        move = Move("load", engine, r, names, size, now)
        self._start(move, size / self.tier.read_bytes_per_s, self.tier.latency(len(names)), now)
        return move

    def store(self, engine: int, r: int, names: list[Hashable], now: float) -> None:
        """Names from the head on."""
        known = [name for name in names if name in self.units]
        self._use(known)
        new = []
        for name in names:
            if name not in self.units and name not in new:
                if len(self.units) + len(new) >= self.tier.capacity_tokens // self.tier.unit_tokens:
                    victim = self._victim(known)
                    if victim is None:
                        break
                    del self.units[victim]
                    self.lost.append(victim)
                new.append(name)
        for name in reversed(new):
            self.units[name] = Unit()
        self._use([name for name in names if name in self.units])
        if new:
            size = len(new) * self.tier.unit_tokens * self.bytes_per_token
            self._start(
                Move("store", engine, r, new, size, now), size / self.tier.write_bytes_per_s, 0.0, now
            )

    def advance(self, now: float) -> list[Move]:
        """The moves that have ended by now."""
        ended = [self.moves[number] for number in self.link.advance(now)]
        for move in ended:
            move.ended = now
            for name in move.names:
                unit = self.units[name]
                if move.kind == "store":
                    unit.here = True
                    continue
                unit.readers -= 1
                if self.tier.inclusion == "exclusive" and unit.readers == 0:
                    del self.units[name]
                    self.lost.append(name)
        return ended

    def _start(self, move: Move, work: float, latency: float, now: float) -> None:
        self.link.start(len(self.moves), move.engine, work, latency)
        self.moves.append(move)

    def _use(self, names: list[Hashable]) -> None:
        for name in reversed(names):
            self.units[name] = self.units.pop(name)

    def _victim(self, spared: list[Hashable]) -> Hashable | None:
        for name, unit in self.units.items():
            if unit.here and unit.readers == 0 and name not in spared:
                return name
        return None


# ----------------------------------------------------------------------------------- one engine and its tiers


@dataclass(eq=False)
class Part:
    """What a request can have from one tier."""

    tier: int
    names: list[Hashable] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)  # tokens, from and to

    @property
    def tokens(self) -> int:
        return sum(to - start for start, to in self.spans)


class WatchedPool(Pool):
    """Tells when the last copy of a block is lost."""

    def __init__(self, usable: int, lose: Callable[[Hashable], None]):
        super().__init__(usable)
        self.lose = lose

    def take(self) -> int:
        events = len(self.events)
        block = super().take()
        for name, _ in self.events[events:]:
            if name not in self.found:
                self.lose(name)
        return block


class TieredEngine(Engine):
    def __init__(self, limits: Limits, names: Names):
        super().__init__(limits, names)
        self.pool = WatchedPool(self.pool.usable, lambda name: self.lost_names.append(name))
        self.lost_names: list[Hashable] = []  # last copies lost in this scheduling
        self.moves: dict[int, list[Move]] = {}  # loads under way, by request
        self.loading: set[int] = set()  # requests that wait in the queue for their loads
        self.ready: set[int] = set()  # requests in the queue whose loads have ended: they hold blocks
        self.gave_back: set[int] = set()  # requests that gave the blocks back into which they had loaded
        self.tier_hits: dict[int, list[int]] = {}  # tokens by tier, at the first admission
        self.load_s: Counter[int] = Counter()  # seconds from the start of the loads to their end
        self.batch_began, self.batch_moves = math.nan, list[Move]()

    def connect(self, number: int, stores: list[Store], layers: int | None, settle: Callable[[float], None]):
        """`settle` lets transfers end that end now, those that take no time included."""
        self.number, self.stores, self.layers, self.settle = number, stores, layers, settle
        for store in stores:
            if store.tier.unit_tokens % self.limits.block_tokens:
                raise ValueError(
                    f"units of {store.tier.unit_tokens} and blocks of {self.limits.block_tokens}"
                )
        self.unit_ends: list[set[Hashable]] = [set() for _ in stores]  # blocks here that end a storable unit

    # --- what is found

    def unit_names(self, r: int, tier: int, tokens: int) -> list[Hashable]:
        """The whole units among the first `tokens` of a request."""
        per_unit = self.stores[tier].tier.unit_tokens // self.limits.block_tokens
        n = tokens // self.stores[tier].tier.unit_tokens
        return [self.names.name(r, (u + 1) * per_unit - 1) for u in range(n)]

    def search(self, job: Job, hit: int) -> list[Part]:
        left_out: set[int] = set()
        while True:
            parts = self._walk(job, hit, left_out)
            slow = {part.tier for part in parts if self._is_not_worth_it(part)}
            if not slow:
                return parts
            left_out |= slow

    def _walk(self, job: Job, at: int, left_out: set[int]) -> list[Part]:
        parts: dict[int, Part] = {}
        going = self.limits.prefix_caching
        while going:
            going = False
            for t, store in enumerate(self.stores):
                end = (at // store.tier.unit_tokens + 1) * store.tier.unit_tokens
                if t in left_out or end > job.length - 1:
                    continue
                name = self.unit_names(job.r, t, end)[-1]
                if store.has(name):
                    part = parts.setdefault(t, Part(t))
                    part.names.append(name)
                    part.spans.append((at, end))
                    at, going = end, True
                    break
        return list(parts.values())

    def in_tiers(self, r: int, hit: int) -> tuple[int, int]:
        tokens = {"engine": 0, "cluster": 0}
        for part in self._walk(Job(r, self.names.requests[r], 0.0, 0), hit, set()):
            tokens[self.stores[part.tier].tier.scope] += part.tokens
        return tokens["engine"], tokens["cluster"]

    def _is_not_worth_it(self, part: Part) -> bool:
        store = self.stores[part.tier]
        load = store.alone(part.tokens, len(part.names))
        return store.tier.use_if_faster and load >= sum(self.recompute(*span) for span in part.spans)

    def recompute(self, start: int, to: int) -> float:
        """Seconds that prefill of these tokens adds to a batch in which the GPU is the limit."""
        c, x = self.limits.batch_time, to - start
        return c.b_prefill * x + c.b_attention * (x * start + x * (x + 1) / 2) - c.b_past * x

    # --- admission

    def schedule(self, now: float = 0.0) -> dict[int, int]:
        plan = super().schedule(now)
        while self.ready and self._stands_still():
            self._give_back([job for job in self.waiting if job.r in self.ready][-1])
            plan = super().schedule(now)
        self._write_back(now)
        self.batch_began = now
        self.batch_moves = [move for chunk in self.batch for move in self.moves.get(chunk.job.r, [])]
        if self.batch_moves:
            self.batch_ends = math.inf
        return plan

    def _stands_still(self) -> bool:
        return not (self.batch or self.running or self.loading)

    def _give_back(self, job: Job) -> None:
        self.pool.release(job.blocks)
        job.blocks, job.cached, job.computed = [], 0, 0
        self.ready.remove(job.r)
        self.gave_back.add(job.r)

    def _admit(self, budget: int, now: float) -> None:
        """As without tiers, but those that load are passed, and those that have loaded need no lookup."""
        for job in list(self.waiting):
            if budget <= 0 or len(self.running) >= self.limits.max_num_seqs:
                return
            if job.r in self.loading:
                continue
            if job.r not in self.ready and not self._begin(job, budget, now):
                return
            if job.r in self.loading:
                continue
            tokens = min(self._threshold(job.length - job.computed), budget)
            whole = job.length if self.limits.reserve_full_prompt else job.computed + tokens
            spare = self.watermark_blocks if self.running else 0
            if self.blocks_for(whole) - len(job.blocks) + spare > len(self.pool.free):
                return  # only a loaded one can fail here
            self._allocate(job, tokens)
            self.ready.discard(job.r)
            if math.isnan(job.scheduled):
                job.scheduled = now
            self.batch.append(Chunk(job, tokens, job.computed, job.is_decode))
            budget -= tokens
            self.waiting.remove(job)
            self.running.append(job)

    def _begin(self, job: Job, budget: int, now: float) -> bool:
        """Look up, and start to load; False if it does not fit."""
        hit = self._lookup(job)
        hit_tokens = len(hit) * self.limits.block_tokens
        parts = self.search(job, hit_tokens)
        reach = max([hit_tokens, *(to for part in parts for _, to in part.spans)])
        waits = any(self.stores[part.tier].tier.overlap == "async" for part in parts)
        tokens = 0 if waits else min(self._threshold(job.length - reach), budget)
        whole = job.length if self.limits.reserve_full_prompt else reach + tokens
        spare = self.watermark_blocks if self.running else 0
        if self.pool.needed(hit, self.blocks_for(whole) - len(hit)) + spare > len(self.pool.free):
            return False
        self.pool.touch(hit)
        job.blocks, job.cached, job.computed = list(hit), len(hit), reach
        if job.r not in self.tier_hits:
            job.hit = hit_tokens
            self.tier_hits[job.r] = [0] * len(self.stores)
            for part in parts:
                self.tier_hits[job.r][part.tier] = part.tokens
        for t, store in enumerate(self.stores):
            store.hits.update(self.unit_names(job.r, t, hit_tokens))
        if waits:
            self.loading.add(job.r)
            job.blocks += [self.pool.take() for _ in range(self.blocks_for(reach) - len(hit))]
        if parts:
            self.moves[job.r] = [
                self.stores[part.tier].load(self.number, job.r, part.names, part.tokens, now)
                for part in parts
            ]
            self.settle(now)
        return True

    def _allocate(self, job: Job, tokens: int) -> bool:
        done = super()._allocate(job, tokens)
        self._note_units(job)
        return done

    def _note_units(self, job: Job) -> None:
        """Remember which blocks end a unit that may go back to a tier."""
        tokens = job.cached * self.limits.block_tokens
        for t, store in enumerate(self.stores):
            most = tokens if store.tier.write_decode else min(tokens, job.request.prompt)
            self.unit_ends[t].update(self.unit_names(job.r, t, most))

    # --- what ends

    def load_ended(self, move: Move, now: float) -> None:
        moves = self.moves[move.r]
        moves.remove(move)
        if moves:
            return
        del self.moves[move.r]
        self.load_s[move.r] += now - move.began
        if move.r in self.loading:
            self._make_ready(next(job for job in self.waiting if job.r == move.r), now)
        elif self.batch_moves and not any(math.isnan(m.ended) for m in self.batch_moves):
            self.batch_ends = self._batch_end()

    def _make_ready(self, job: Job, now: float) -> None:
        self.loading.remove(job.r)
        self.ready.add(job.r)
        events = len(self.pool.events)
        for j in range(job.cached, len(job.blocks)):
            self.pool.cache(job.blocks[j], self.names.name(job.r, j))
        job.cached = len(job.blocks)
        self._note_units(job)
        self.news += [(now, name, copies) for name, copies in self.pool.events[events:]]
        del self.pool.events[events:]

    def _batch_end(self) -> float:
        """Of a batch whose loads have ended."""
        start, layered, first_layer = self.batch_began, self.batch_began, 0.0
        for move in self.batch_moves:
            if next(s for s in self.stores if move in s.moves).tier.overlap == "none":
                start = max(start, move.ended)
            else:
                layered = max(layered, move.ended)
                first_layer = max(
                    first_layer, (move.ended - move.began) / self.layers if self.layers else 0.0
                )
        return max(start + self.duration(), layered) + first_layer

    def finish(self, now: float = 0.0) -> list[Job]:
        emitted = [(chunk, chunk.job.emitted) for chunk in self.batch]
        ended = super().finish(now)
        self.batch_moves = []
        for chunk, before in emitted:
            job = chunk.job
            is_prefilled = not chunk.is_decode and job.emitted > before
            for t, store in enumerate(self.stores):
                tier = store.tier
                if tier.write == "back" or not self.limits.prefix_caching:
                    continue
                if is_prefilled or (job in ended and tier.write_decode):
                    most = job.computed if tier.write_decode else min(job.computed, job.request.prompt)
                    names = self.unit_names(job.r, t, most)
                    if tier.write == "selective":
                        names = [name for name in names if store.hits[name] >= 2]
                    store.store(self.number, job.r, names, now)
        self.settle(now)
        return ended

    def _write_back(self, now: float) -> None:
        """What this scheduling has lost, in one store; what was lost last is nearest to the head."""
        lost, self.lost_names = self.lost_names, []
        lost = [name for name in reversed(lost) if name not in self.pool.found]
        for t, store in enumerate(self.stores):
            if store.tier.write == "back":
                store.store(self.number, -1, [name for name in lost if name in self.unit_ends[t]], now)
        self.settle(now)


# ------------------------------------------------------------------------------------------------ the cluster


class TieredCluster(Cluster):
    """`layers` of the model: for the first layer of a layer-wise load."""

    engine_type = TieredEngine
    engines: list[TieredEngine]

    def __init__(
        self,
        requests: list[Request],
        limits: list[Limits],
        choose: Callable,
        tiers: list[Tier],
        bytes_per_token: float = 1.0,
        layers: int | None = None,
        **options,
    ):
        super().__init__(requests, limits, choose, **options)
        shared = {t: Store(tier, bytes_per_token) for t, tier in enumerate(tiers) if tier.scope == "cluster"}
        self.stores: list[Store] = list(shared.values())
        for e, engine in enumerate(self.engines):
            stores = [shared.get(t) or Store(tier, bytes_per_token) for t, tier in enumerate(tiers)]
            self.stores += [store for store in stores if store not in self.stores]
            engine.connect(e, stores, layers, self._transfers_end)

    def _next_event(self) -> float:
        return min([super()._next_event(), *(store.link.next_due() for store in self.stores)])

    def _transfers_end(self, now: float) -> None:
        for store in self.stores:
            for move in store.advance(now):
                if move.kind == "load":
                    self.engines[move.engine].load_ended(move, now)

    def _is_idle(self, engine: Engine) -> bool:
        return not engine.batch

    def _end(self, job: Job, now: float) -> None:
        engine = self.engines[self.on_engine[job.r]]
        super()._end(job, now)
        result = self.results[job.r]
        result.tier_hits, result.load_s = tuple(engine.tier_hits[job.r]), engine.load_s[job.r]
