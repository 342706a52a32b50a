"""The judge: a cluster of vLLM engines simulated step by step and block by block, written to be read.

Nothing here is shared with `agentctl`, nothing is fast and nothing is clever. Where this file and the
simulator disagree, one of them is wrong; the rules are those of the vLLM V1 scheduler and of the design's
simulation contract. Times are seconds, the rest is tokens or blocks. Reading order: Request, Names (which
blocks hold the same content), Pool (one engine's blocks), Engine (one scheduler), Cluster (time). What the
router knows stands in reference_view.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from oracles.reference_view import Router, Settings, View

# ---------------------------------------------------------------------------------------------- what goes in

AT_ARRIVAL, AFTER_END, AFTER_START = 0, 1, 2


@dataclass
class Request:
    """One LLM call. `chain` has one id per trace block, which stands for the whole prefix up to its end."""

    prompt: int
    output: int
    arrival: float = 0.0  # as logged
    chain: tuple[Hashable, ...] = ()
    parent: int = -1  # the request whose prompt this one extends
    session: int = 0
    release: int = AT_ARRIVAL
    gap: float = 0.0
    deps: tuple[int, ...] = ()  # all must have ended (AFTER_START: arrived) before this one arrives
    priority: int = 0  # smaller goes first


@dataclass
class BatchCoefficients:
    b0: float = 1.0
    b_prefill: float = 0.0
    b_decode: float = 0.0
    b_context: float = 0.0
    b_context_mixed: float = 0.0
    b_attention: float = 0.0
    b_past: float = 0.0
    h0: float = 0.0
    h_seq: float = 0.0


@dataclass
class Limits:
    """What an engine was started with; names as in cluster.toml."""

    kv_blocks: int
    block_tokens: int = 16
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    max_model_len: int | None = None
    long_prefill_token_threshold: int = 0
    reserve_full_prompt: bool = True
    watermark: float = 0.0
    prefix_caching: bool = True
    scheduling_policy: str = "fcfs"
    prefill_schedule_interval: int = 1
    batch_time: BatchCoefficients = field(default_factory=BatchCoefficients)


# ------------------------------------------------------------------------------- which blocks are the same


class Names:
    """A name for every engine block of every request: equal names hold equal tokens after equal prefixes.

    A prompt is named by its chain. Outputs have no ids; they are named by the child, the first request whose
    parent this one is, as far as the child's prompt confirms them. What nobody names is the request's own.
    """

    def __init__(self, requests: list[Request], trace_block: int | None, engine_block: int):
        if trace_block and engine_block % trace_block and trace_block % engine_block:
            raise ValueError(f"trace blocks of {trace_block} and engine blocks of {engine_block} tokens")
        self.requests, self.T, self.B = requests, trace_block, engine_block
        self.child: dict[int, int] = {}
        for r, request in enumerate(requests):
            self.child.setdefault(request.parent, r)
        self.child.pop(-1, None)
        self.same: dict[Hashable, Hashable] = {}
        for r in range(len(requests)):
            self._merge_partial_tail(r)

    def name(self, r: int, j: int) -> Hashable:
        """Block j of request r, prompt or output."""
        own = self._by_chain(r, j)
        if own is not None:
            return self._first_name(own)
        if (j + 1) * self.B <= self.confirmed(r):
            return self.name(self.child[r], j)
        return ("own", r, j)

    def confirmed(self, r: int) -> int:
        """Tokens of r's KV whose content the child's prompt repeats; 0 without such a child."""
        if r not in self.child or not self.T:
            return 0
        request, child = self.requests[r], self.requests[self.child[r]]
        full = request.prompt // self.T
        if len(request.chain) < full or request.chain[:full] != child.chain[:full]:
            return 0
        if child.prompt >= request.prompt + request.output:
            return request.prompt + request.output - 1  # the last token sampled has no KV
        return min(request.prompt, child.prompt)

    def _by_chain(self, r: int, j: int) -> Hashable | None:
        request = self.requests[r]
        if not self.T or (j + 1) * self.B > request.prompt:
            return None
        last_token = (j + 1) * self.B - 1
        place = last_token // self.T
        if place >= len(request.chain):
            return None
        part = j % (self.T // self.B) if self.B < self.T else 0
        return (request.chain[place], part)

    def _merge_partial_tail(self, r: int) -> None:
        """The id of a partial last block is another name for the beginning of the child's block there."""
        if not self.confirmed(r):
            return
        request, child = self.requests[r], self.requests[self.child[r]]
        full = request.prompt // self.T
        if len(request.chain) > full and len(child.chain) > full:
            tail = min(request.prompt, child.prompt) - full * self.T
            for part in range(tail // self.B):
                a = self._first_name((request.chain[full], part))
                b = self._first_name((child.chain[full], part))
                if a != b:
                    self.same[b] = a

    def _first_name(self, name: Hashable) -> Hashable:
        while name in self.same:
            name = self.same[name]
        return name


# ------------------------------------------------------------------------------------- one engine's blocks


class Pool:
    """Blocks of one engine. A free block keeps its name, and can be found, until it is taken."""

    def __init__(self, usable: int):
        self.usable = usable
        self.free = list(range(usable))  # taken from the front
        self.users = [0] * usable
        self.name: list[Hashable | None] = [None] * usable
        self.found: dict[Hashable, list[int]] = {}  # name -> blocks, the one cached first in front
        self.events: list[tuple[Hashable, int]] = []  # +1 cached, -1 evicted; told to the router later

    def lookup(self, names: list[Hashable]) -> list[int]:
        blocks = []
        for name in names:
            if name not in self.found:
                break
            blocks.append(self.found[name][0])
        return blocks

    def needed(self, hit: list[int], new: int) -> int:
        """Free blocks that `new` blocks after `hit` would use up: hit blocks in use cost nothing."""
        return new + sum(1 for block in hit if self.users[block] == 0)

    def touch(self, hit: list[int]) -> None:
        for block in hit:
            if self.users[block] == 0:
                self.free.remove(block)
            self.users[block] += 1

    def take(self) -> int:
        block = self.free.pop(0)
        name = self.name[block]
        if name is not None:
            self.found[name].remove(block)
            if not self.found[name]:
                del self.found[name]
            self.events.append((name, -1))
        self.name[block] = None
        self.users[block] = 1
        return block

    def cache(self, block: int, name: Hashable) -> None:
        self.name[block] = name
        self.found.setdefault(name, []).append(block)
        self.events.append((name, +1))

    def release(self, blocks: list[int]) -> None:
        """The last block first, so that a sequence loses its tail before its head."""
        for block in reversed(blocks):
            self.users[block] -= 1
            if self.users[block] == 0:
                self.free.append(block)


# ---------------------------------------------------------------------------------- one engine's scheduler


@dataclass(eq=False)
class Job:
    """A request that was sent to an engine."""

    r: int
    request: Request
    arrival: float  # as simulated
    hit_at_dispatch: int  # tokens, by the router's index
    computed: int = 0  # tokens with KV
    emitted: int = 0  # output tokens so far
    blocks: list[int] = field(default_factory=list)
    cached: int = 0  # of `blocks`, how many carry their name
    scheduled: float = math.nan  # when first admitted
    first_token: float = math.nan
    hit: int = 0  # tokens, when first admitted
    prefilled: int = 0  # prefill tokens computed, recompute included
    preemptions: int = 0
    token_times: list[float] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens known: the prompt and what has been sampled."""
        return self.request.prompt + self.emitted

    @property
    def is_decode(self) -> bool:
        """Only the last sampled token is left to compute."""
        return self.emitted > 0 and self.computed == self.length - 1

    @property
    def rank(self) -> tuple[int, float, int]:
        return (self.request.priority, self.arrival, self.r)


@dataclass(eq=False)
class Chunk:
    job: Job
    tokens: int
    context: int
    is_decode: bool


class Engine:
    def __init__(self, limits: Limits, names: Names):
        self.limits, self.names = limits, names
        self.pool = Pool(limits.kv_blocks - 1)
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.batch: list[Chunk] = []
        self.batch_ends = math.inf
        self.batches = 0  # executed so far
        self.news: list[tuple[float, Hashable, int]] = []  # when, and events of the pool until then
        self.announced: dict[Hashable, int] = {}  # copies of each name, as the router's index knows them

    # --- deciding what runs

    def fits(self, request: Request) -> bool:
        """Whether the request can ever be served."""
        limits, blocks = self.limits, self.blocks_for
        if limits.max_model_len is not None and request.prompt + request.output > limits.max_model_len:
            return False
        usable = self.pool.usable
        if blocks(request.prompt) + self.watermark_blocks > usable:
            return False
        return blocks(request.prompt + request.output - 1) <= usable

    @property
    def watermark_blocks(self) -> int:
        return math.floor(self.limits.watermark * self.limits.kv_blocks)

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_tokens)

    def schedule(self, now: float = 0.0) -> dict[int, int]:
        """Plan the next batch; returns tokens by request, in batch order."""
        while True:
            throttled = self._prefills_wait()
            budget, preempted = self._schedule_running(throttled)
            if not preempted and not throttled:
                self._admit(budget, now)
            if self.batch or not preempted:
                break  # a plan that only preempted takes no time: plan again
        if self.batch:
            self.batch_ends = now + self.duration()
        return {chunk.job.r: chunk.tokens for chunk in self.batch}

    def _prefills_wait(self) -> bool:
        """Prefill runs in every k-th executed batch only, unless there is nothing else to run."""
        off_beat = self.batches % self.limits.prefill_schedule_interval != 0
        return off_beat and any(job.is_decode for job in self.running)

    def _threshold(self, tokens: int) -> int:
        limit = self.limits.long_prefill_token_threshold
        alone = len(self.running) + len(self.waiting) == 1
        return tokens if limit == 0 or alone else min(tokens, limit)

    def _schedule_running(self, throttled: bool) -> tuple[int, bool]:
        """Give every running request its tokens; returns the budget left and whether blocks ran out."""
        budget, preempted, place = self.limits.max_num_batched_tokens, False, 0
        while place < len(self.running) and budget > 0:
            job = self.running[place]
            if throttled and not job.is_decode:
                place += 1
                continue
            tokens = min(self._threshold(job.length - job.computed), budget)
            while not self._allocate(job, tokens):
                victim = self._victim()
                where = self.running.index(victim)
                self.running.remove(victim)
                if where < place:
                    place -= 1
                    budget += sum(chunk.tokens for chunk in self.batch if chunk.job is victim)
                    self.batch = [chunk for chunk in self.batch if chunk.job is not victim]
                self._preempt(victim)
                preempted = True
                if victim is job:
                    return budget, preempted
            self.batch.append(Chunk(job, tokens, job.computed, job.is_decode))
            budget -= tokens
            place += 1
        return budget, preempted

    def _victim(self) -> Job:
        if self.limits.scheduling_policy == "priority":
            return max(self.running, key=lambda job: job.rank[:2])  # the first such in the running list
        return self.running[-1]

    def _preempt(self, job: Job) -> None:
        self.pool.release(job.blocks)
        job.blocks, job.cached, job.computed = [], 0, 0
        job.preemptions += 1
        self.waiting.insert(0, job)
        self._sort_waiting()

    def enqueue(self, job: Job) -> None:
        self.waiting.append(job)
        self._sort_waiting()

    def _sort_waiting(self) -> None:
        if self.limits.scheduling_policy == "priority":
            self.waiting.sort(key=lambda job: job.rank)

    def _admit(self, budget: int, now: float) -> None:
        """Take waiting requests in order until one does not fit; nobody overtakes."""
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            job = self.waiting[0]
            hit = self._lookup(job)
            hit_tokens = len(hit) * self.limits.block_tokens
            tokens = min(self._threshold(job.length - hit_tokens), budget)
            spare = self.watermark_blocks if self.running else 0
            whole = job.length if self.limits.reserve_full_prompt else hit_tokens + tokens
            if self.pool.needed(hit, self.blocks_for(whole) - len(hit)) + spare > len(self.pool.free):
                return
            self.pool.touch(hit)
            job.blocks, job.cached, job.computed = list(hit), len(hit), hit_tokens
            self._allocate(job, tokens)  # cannot fail: just checked
            if math.isnan(job.scheduled):
                job.scheduled, job.hit = now, hit_tokens
            self.batch.append(Chunk(job, tokens, job.computed, job.is_decode))
            budget -= tokens
            self.waiting.pop(0)
            self.running.append(job)

    def _lookup(self, job: Job) -> list[int]:
        """Whole cached blocks from the start, never the whole sequence."""
        if not self.limits.prefix_caching:
            return []
        most = (job.length - 1) // self.limits.block_tokens
        return self.pool.lookup([self.names.name(job.r, j) for j in range(most)])

    def _allocate(self, job: Job, tokens: int) -> bool:
        """Blocks for the tokens of this step; a block that becomes full can be found from now on."""
        new = self.blocks_for(job.computed + tokens) - len(job.blocks)
        if new > len(self.pool.free):
            return False
        job.blocks += [self.pool.take() for _ in range(new)]
        if self.limits.prefix_caching:
            for j in range(job.cached, (job.computed + tokens) // self.limits.block_tokens):
                self.pool.cache(job.blocks[j], self.names.name(job.r, j))
                job.cached = j + 1
        return True

    # --- running it

    def duration(self) -> float:
        """max(gpu, host), linear in what is computed and read."""
        c = self.limits.batch_time
        chunks = [chunk for chunk in self.batch if not chunk.is_decode]
        decodes = [chunk for chunk in self.batch if chunk.is_decode]
        b_context = c.b_context_mixed if chunks else c.b_context
        gpu = (
            c.b0
            + c.b_prefill * sum(q.tokens for q in chunks)
            + c.b_decode * len(decodes)
            + b_context * sum(d.context for d in decodes)
            + c.b_attention * sum(q.tokens * q.context + q.tokens * (q.tokens + 1) / 2 for q in chunks)
            + c.b_past * sum(q.context for q in chunks)
        )
        return max(gpu, c.h0 + c.h_seq * len(self.batch))

    def finish(self, now: float = 0.0) -> list[Job]:
        """The batch has run: tokens exist, blocks are announced, requests end. Returns those that ended."""
        ended = []
        for chunk in self.batch:
            job = chunk.job
            job.computed += chunk.tokens
            if not chunk.is_decode:
                job.prefilled += chunk.tokens
            if job.computed < job.length:
                continue
            job.emitted += 1
            if job.emitted == 1:
                job.first_token = now
            job.token_times.append(now)
            if job.emitted == job.request.output:
                self.running.remove(job)
                self.pool.release(job.blocks)
                ended.append(job)
        self.news += [(now, name, copies) for name, copies in self.pool.events]
        self.pool.events = []
        self.batch, self.batch_ends = [], math.inf
        self.batches += 1
        return ended

    # --- what the router can see

    def announce(self, now: float, delay: float) -> None:
        """The router's index hears of what happened, `delay` after the batch ended."""
        while self.news and self.news[0][0] + delay <= now:
            _, name, copies = self.news.pop(0)
            self.announced[name] = self.announced.get(name, 0) + copies

    def index_hit(self, r: int, request: Request) -> int:
        """Prompt tokens of r that the router believes to be here: whole blocks, at most prompt - 1."""
        hit = 0
        if self.limits.prefix_caching:
            while hit < (request.prompt - 1) // self.limits.block_tokens:
                if not self.announced.get(self.names.name(r, hit)):
                    break
                hit += 1
        return hit * self.limits.block_tokens

    def in_tiers(self, r: int, hit: int) -> tuple[int, int]:
        """Prompt tokens of r behind its first `hit` ones in tiers of this engine, and of the cluster."""
        return 0, 0

    def pending(self) -> list[tuple[int, int]]:
        """(tokens of prefill left, length of the context they complete) of every request here."""
        pairs = []
        for job in self.running:
            if not job.is_decode:
                pairs.append((job.length - job.computed, job.length))
        for job in self.waiting:
            if job.preemptions:
                pairs.append((job.length, job.length))
            else:
                pairs.append((job.length - job.hit_at_dispatch, job.length))
        return pairs


# -------------------------------------------------------------------------------------------- the cluster


@dataclass
class Result:
    status: str
    engine: int
    arrival: float
    scheduled: float = math.nan
    first_token: float = math.nan
    finish: float = math.nan
    hit: int = 0
    prefilled: int = 0
    preemptions: int = 0
    token_times: list[float] = field(default_factory=list)
    tier_hits: tuple[int, ...] = ()  # tokens by tier, when first admitted
    load_s: float = 0.0  # from the start of its loads to their end

    @property
    def itl_max(self) -> float:
        """The longest gap between two tokens that follow each other."""
        gaps = [after - before for before, after in zip(self.token_times, self.token_times[1:], strict=False)]
        return max(gaps, default=math.nan)


Choose = Callable[[View, int], int]


class Cluster:
    """Engines, a router, and the clock. `concurrency` sessions at a time: closed loop; None: as released."""

    engine_type: type = Engine

    def __init__(
        self,
        requests: list[Request],
        limits: list[Limits],
        choose: Choose,
        trace_block: int | None = 16,
        seed: int = 0,
        concurrency: int | None = None,
        settings: Settings = Settings(),  # noqa: B008 (frozen)
    ):
        self.requests, self.choose, self.concurrency = requests, choose, concurrency
        names = Names(requests, trace_block, limits[0].block_tokens)
        self.engines = [self.engine_type(limit, names) for limit in limits]
        index_names = Names(requests, trace_block, settings.index.block_tokens) if settings.index else None
        self.router = Router(settings, self.engines, requests, names, index_names, seed)
        self.on_engine: dict[int, int] = {}  # request -> where it is, until it ends
        self.results: dict[int, Result] = {}
        self.arrived_at: dict[int, float] = {}
        self.ended_at: dict[int, float] = {}
        self.arrivals: list[tuple[float, int]] = []  # heap: who is on the way, by (time, request)
        self.session_shift: dict[int, float] = {}  # sessions that have started; s added to logged times
        self.unstarted: list[int] = []

    def run(self) -> list[Result]:
        self._start_sessions()
        while True:
            now = self._next_event()
            if now == math.inf:
                break
            self.router.publish_before(now)
            self._transfers_end(now)
            for engine in self.engines:  # (1) batches that end now
                if engine.batch_ends == now:
                    for job in engine.finish(now):
                        self._end(job, now)
            self.router.publish_at(now)
            while self.arrivals and self.arrivals[0][0] == now:  # (2) arrivals
                self._route(heapq.heappop(self.arrivals)[1], now)
            for engine in self.engines:  # (3) idle engines with work
                if self._is_idle(engine) and (engine.waiting or engine.running):
                    engine.schedule(now)
        assert len(self.results) == len(self.requests), "a request was never released"
        return [self.results[r] for r in range(len(self.requests))]

    # --- what reference_tiers adds to

    def _next_event(self) -> float:
        return min([e.batch_ends for e in self.engines] + [time for time, _ in self.arrivals[:1]])

    def _transfers_end(self, now: float) -> None:
        pass

    def _is_idle(self, engine: Engine) -> bool:
        return engine.batch_ends == math.inf

    # --- who arrives when

    def _start_sessions(self) -> None:
        sessions = list(dict.fromkeys(request.session for request in self.requests))
        if self.concurrency is None:
            for session in sessions:
                self.session_shift[session] = 0.0
            for r in range(len(self.requests)):
                self._release_if_ready(r)
        else:
            self.unstarted = sessions
            for _ in range(self.concurrency):
                self._start_next_session(0.0)

    def _start_next_session(self, now: float) -> None:
        if not self.unstarted:
            return
        session = self.unstarted.pop(0)
        members = [r for r, request in enumerate(self.requests) if request.session == session]
        self.session_shift[session] = now - min(self.requests[r].arrival for r in members)
        for r in members:
            self._release_if_ready(r)

    def _release_if_ready(self, r: int) -> None:
        """Put r on its way if everything that it waits for has happened (called when the last of it has)."""
        request = self.requests[r]
        if request.session not in self.session_shift:
            return
        happened = self.arrived_at if request.release == AFTER_START else self.ended_at
        if any(dep not in happened for dep in request.deps):
            return
        latest = max((happened[dep] for dep in request.deps), default=-math.inf)
        if request.release == AT_ARRIVAL:
            time = max(request.arrival + self.session_shift[request.session], latest)
        else:
            time = latest + request.gap
        heapq.heappush(self.arrivals, (time, r))

    def _release_followers(self, dep: int, release_by_start: bool) -> None:
        for r, request in enumerate(self.requests):
            if dep in request.deps and (request.release == AFTER_START) == release_by_start:
                self._release_if_ready(r)

    def _ended(self, r: int, now: float) -> None:
        self.ended_at[r] = now
        self._release_followers(r, release_by_start=False)
        session = self.requests[r].session
        if self.concurrency is not None:
            members = [m for m, request in enumerate(self.requests) if request.session == session]
            if all(m in self.ended_at for m in members):
                self._start_next_session(now)

    def _end(self, job: Job, now: float) -> None:
        engine = self.on_engine.pop(job.r)
        self.router.end(job, engine)
        self.results[job.r] = Result(
            "done", engine, job.arrival, job.scheduled, job.first_token, now, job.hit, job.prefilled,
            job.preemptions, job.token_times,
        )  # fmt: skip
        self._ended(job.r, now)

    # --- where it goes

    def _route(self, r: int, now: float) -> None:
        request = self.requests[r]
        self.arrived_at[r] = now
        engine = -1
        if any(e.fits(request) for e in self.engines):
            view = self.router.look(r, now)
            engine = self.choose(view, r)
            self.router.choose(r, engine, now)
        if engine < 0 or not self.engines[engine].fits(request):
            self.results[r] = Result("rejected", -1, now)
            self._release_followers(r, release_by_start=True)
            self._ended(r, now)
            return
        job = Job(r, request, now, hit_at_dispatch=view.hit_tokens[engine])
        self.on_engine[r] = engine
        self.router.send(job, engine)
        self.engines[engine].enqueue(job)
        self._release_followers(r, release_by_start=True)
