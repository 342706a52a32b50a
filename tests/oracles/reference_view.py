"""The judge's router: what each of its gateways knows when it places a request, written to be read.

Nothing here is shared with `agentctl`, nothing is fast and nothing is clever. Metrics are kept for every
publish there ever was, and indexes hold block by block. Reading order: Settings, View (what a policy is
told), Index (what a gateway believes an engine holds, where no engine tells it), Gateway, Router.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oracles.reference_simulator import Engine, Job, Names, Request

Block = Hashable  # its name: equal names hold equal tokens after equal prefixes


@dataclass(frozen=True)
class IndexSettings:
    """A gateway's own index of what it has sent, one per engine. None: no limit, no end."""

    block_tokens: int
    capacity_tokens: int | None = None
    ttl_s: float | None = None
    eviction: str = "tail"  # of a request's blocks goes first: tail the deepest, head the first
    match: str = "contiguous"  # or any_engine


@dataclass(frozen=True)
class Settings:
    """[router] of cluster.toml. `index` None: the precise one, fed by the engines."""

    gateways: int = 1
    metrics_interval_s: float = 0.0
    metrics_delay_s: float = 0.0
    index_delay_s: float = 0.0
    index: IndexSettings | None = None


@dataclass
class Metrics:
    """What engines publish; one value per engine."""

    waiting_requests: list[int]
    running_requests: list[int]
    pending_prefill_tokens: list[int]
    pending_prefill_pairs: list[float]
    context_tokens: list[int]
    kv_used_blocks: list[int]


@dataclass
class View(Metrics):
    """What the policy is told; lists have one value per engine."""

    now: float
    seed: int
    last_chosen: int
    kv_total_blocks: list[int]
    hit_tokens: list[int]
    inflight_requests: list[int]
    inflight_prefill_tokens: list[int]
    expected_hit: int
    unpublished_requests: list[int]
    unpublished_tokens: list[int]
    published_at: float
    active_blocks: list[int]
    step_ends_at: list[float]
    host_hit_tokens: list[int]
    global_hit_tokens: list[int]
    block_tokens: int


def metrics_of(engines: list[Engine]) -> Metrics:
    return Metrics(
        waiting_requests=[len(e.waiting) for e in engines],
        running_requests=[len(e.running) for e in engines],
        pending_prefill_tokens=[sum(n for n, _ in e.pending()) for e in engines],
        pending_prefill_pairs=[sum(n * (length - n / 2) for n, length in e.pending()) for e in engines],
        context_tokens=[sum(job.length for job in e.running + e.waiting) for e in engines],
        kv_used_blocks=[e.pool.usable - len(e.pool.free) for e in engines],
    )


def nothing(n_engines: int) -> Metrics:
    zeros = [0] * n_engines
    return Metrics(zeros, zeros, zeros, [0.0] * n_engines, zeros, zeros)


# ------------------------------------------------------------------------------------ a gateway's own index


class Index:
    """What a gateway believes that one engine holds: the blocks it sent there, least recently used first."""

    def __init__(self, settings: IndexSettings):
        self.settings = settings
        self.used: OrderedDict[Block, float] = OrderedDict()  # block -> when

    def expire(self, now: float) -> None:
        ttl = self.settings.ttl_s
        if ttl is not None:
            for block in [block for block, stamp in self.used.items() if stamp + ttl <= now]:
                del self.used[block]

    def insert(self, blocks: list[Block], now: float) -> None:
        """All are used now; then the least recently used go until the rest has room."""
        for block in blocks if self.settings.eviction == "head" else reversed(blocks):
            self.used[block] = now
            self.used.move_to_end(block)
        capacity = self.settings.capacity_tokens
        while capacity is not None and len(self.used) > capacity // self.settings.block_tokens:
            self.used.popitem(last=False)


def matched_blocks(indexes: list[Index], blocks: list[Block]) -> list[int]:
    """How many of the chain's blocks each engine is believed to hold.

    contiguous  the chain from its start, as far as the engine has it
    any_engine  along the chain as far as any engine has the block, those that the engine has
    """
    if indexes[0].settings.match == "any_engine":
        known = []
        for block in blocks:
            if not any(block in index.used for index in indexes):
                break
            known.append(block)
        return [sum(block in index.used for block in known) for index in indexes]
    matched = []
    for index in indexes:
        n = 0
        while n < len(blocks) and blocks[n] in index.used:
            n += 1
        matched.append(n)
    return matched


# ----------------------------------------------------------------------------------------------- the router


@dataclass
class Sent:
    engine: int
    tokens: int  # uncached, by the hit that the gateway believed
    n_published: int  # publishes that had been taken


class Gateway:
    """One of the router's processes: it knows its own requests only."""

    def __init__(self, n_engines: int, index: IndexSettings | None):
        self.last_chosen = -1
        self.in_flight: list[list[Job]] = [[] for _ in range(n_engines)]
        self.sent: list[Sent] = []
        self.indexes = [Index(index) for _ in range(n_engines)] if index else []


class Router:
    """`names` name engine blocks, `index_names` those of the gateways' own indexes."""

    def __init__(
        self,
        settings: Settings,
        engines: list[Engine],
        requests: list[Request],
        names: Names,
        index_names: Names | None,
        seed: int,
    ):
        self.settings, self.engines, self.requests, self.seed = settings, engines, requests, seed
        self.names, self.index_names = names, index_names
        self.gateways = [Gateway(len(engines), settings.index) for _ in range(settings.gateways)]
        self.published: list[Metrics] = []  # number k at k * interval

    def gateway_of(self, r: int) -> Gateway:
        return self.gateways[gateway_of(self.seed, r, len(self.gateways))]

    # --- time goes on

    def publish_before(self, now: float) -> None:
        """Take the publishes due before `now`; nothing has changed since the last event."""
        interval = self.settings.metrics_interval_s
        if interval and len(self.published) * interval < now:
            metrics = metrics_of(self.engines)
            while len(self.published) * interval < now:
                self.published.append(metrics)

    def publish_at(self, now: float) -> None:
        """Take the one due at `now`, if any: batches that end now have ended, nothing has arrived."""
        interval = self.settings.metrics_interval_s
        if interval and len(self.published) * interval == now:
            self.published.append(metrics_of(self.engines))

    def last_seen(self, now: float) -> int:
        """Number of the newest publish that has travelled for its delay; -1 before the first."""
        k = math.floor((now - self.settings.metrics_delay_s) / self.settings.metrics_interval_s)
        return max(min(k, len(self.published) - 1), -1)

    # --- a request

    def look(self, r: int, now: float) -> View:
        engines, gateway, request = self.engines, self.gateway_of(r), self.requests[r]
        n = len(engines)
        metrics, published_at, unpublished = metrics_of(engines), now, []
        if self.settings.metrics_interval_s:
            k = self.last_seen(now)
            metrics = self.published[k] if k >= 0 else nothing(n)
            published_at = k * self.settings.metrics_interval_s if k >= 0 else -math.inf
            unpublished = [sent for sent in gateway.sent if sent.n_published > k]
        uncached = [
            [job.request.prompt - job.hit_at_dispatch for job in jobs if not job.emitted]
            for jobs in gateway.in_flight
        ]
        hits = self.hit_tokens(r, now)
        in_tiers = (
            [(0, 0)] * n
            if gateway.indexes
            else [e.in_tiers(r, h) for e, h in zip(engines, hits, strict=True)]
        )
        return View(
            **vars(metrics),
            now=now,
            seed=self.seed,
            last_chosen=gateway.last_chosen,
            kv_total_blocks=[e.pool.usable for e in engines],
            hit_tokens=hits,
            host_hit_tokens=[host for host, _ in in_tiers],
            global_hit_tokens=[of_cluster for _, of_cluster in in_tiers],
            inflight_requests=[len(jobs) for jobs in gateway.in_flight],
            inflight_prefill_tokens=[sum(tokens) for tokens in uncached],
            expected_hit=self.expected_hit(request),
            unpublished_requests=[sum(sent.engine == e for sent in unpublished) for e in range(n)],
            unpublished_tokens=[
                sum(sent.tokens for sent in unpublished if sent.engine == e) for e in range(n)
            ],
            published_at=published_at,
            active_blocks=[
                len(set().union(*(self.prompt_blocks(q) for q in [r, *(job.r for job in jobs)])))
                for jobs in gateway.in_flight
            ],
            step_ends_at=[e.batch_ends for e in engines],
            block_tokens=self.names.B,
        )

    def hit_tokens(self, r: int, now: float) -> list[int]:
        """Prompt tokens of r that the gateway believes to be on each engine: whole blocks, never all."""
        request, settings = self.requests[r], self.settings.index
        if settings is None:
            for engine in self.engines:
                engine.announce(now, self.settings.index_delay_s)
            return [engine.index_hit(r, request) for engine in self.engines]
        indexes = self.gateway_of(r).indexes
        for index in indexes:
            index.expire(now)
        blocks = self.index_blocks(r, request.prompt - 1)
        return [n * settings.block_tokens for n in matched_blocks(indexes, blocks)]

    def index_blocks(self, r: int, tokens: int) -> list[Block]:
        assert self.index_names is not None
        return [self.index_names.name(r, j) for j in range(tokens // self.index_names.B)]

    def prompt_blocks(self, r: int) -> set[Block]:
        """Whole ones."""
        return {self.names.name(r, j) for j in range(self.requests[r].prompt // self.names.B)}

    def expected_hit(self, request: Request) -> int:
        if request.parent < 0:
            return 0
        parent, block = self.requests[request.parent], self.names.B
        return min((parent.prompt + parent.output) // block * block, request.prompt)

    def choose(self, r: int, engine: int, now: float) -> None:
        """The policy has decided."""
        gateway = self.gateway_of(r)
        gateway.last_chosen = engine
        if gateway.indexes:
            gateway.indexes[engine].insert(self.index_blocks(r, self.requests[r].prompt), now)

    def send(self, job: Job, engine: int) -> None:
        gateway = self.gateway_of(job.r)
        gateway.in_flight[engine].append(job)
        tokens = job.request.prompt - job.hit_at_dispatch
        gateway.sent.append(Sent(engine, tokens, len(self.published)))

    def end(self, job: Job, engine: int) -> None:
        self.gateway_of(job.r).in_flight[engine].remove(job)


def gateway_of(seed: int, r: int, n_gateways: int) -> int:
    """Independent of what policies draw by the hash of the seed and the request."""
    return spread(spread(seed, r), 1) % n_gateways


def spread(seed: int, r: int) -> int:
    """A well mixed number of 32 bits of the seed and the request's number."""

    def mix(x: int) -> int:
        x = ((x ^ x >> 16) * 0x21F0AAAD) % 2**32
        x = ((x ^ x >> 15) * 0x735A2D97) % 2**32
        return x ^ x >> 15

    return mix(mix(seed % 2**32) ^ r)
