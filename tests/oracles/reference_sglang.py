"""The judge for SGLang engines: its scheduler step by step and its radix cache page by page, to be read.

The rules are those of SGLang 0.5 with overlap scheduling off, first come first served. Requests, names of
equal content, batch time and the cluster are the vLLM judge's; nothing is shared with `agentctl`. A block is
a page here and none is lost. Reading order: Limits, Node and Pool (one engine's pages), Engine (one
scheduler), Cluster. What an engine does in one iteration:

1. It plans a prefill batch: the one partly computed prompt first, then waiting requests in order. If there is
   one it runs alone (mixed_chunk: together with a decode of every running request); else all decode.
2. "Running" are those that decode. A request that ended in a decode step is counted as running until the
   next decode step is planned: only then does the scheduler look (`unnoticed`).
3. A request without a known maximum is charged its output tokens: the log knows nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

from oracles import reference_simulator as vllm
from oracles.reference_simulator import BatchCoefficients, Chunk, Job, Names, Request

MOST_CHARGED = 4096  # tokens of output that an admission looks ahead
FIRST_RATIO, LAST_SHARE, DECAY_STEPS = 0.7, 0.14, 600  # of the new-token ratio, before conservativeness
RETRACT_STEPS = 20  # decode steps that a retraction wants to leave room for

GO, NO_MEMORY, NO_BUDGET = "go", "no memory", "no budget"  # what an admission says about the next one


@dataclass
class Limits:
    """What an engine was started with; names as in cluster.toml, block_tokens is its page_tokens."""

    kv_blocks: int
    block_tokens: int = 1
    chunked_prefill_size: int | None = 8192  # None: prompts are never cut
    max_prefill_tokens: int = 16384
    mixed_chunk: bool = False
    conservativeness: float = 1.0
    ignore_eos: bool = False
    max_num_seqs: int = 256
    max_model_len: int | None = None
    prefix_caching: bool = True
    batch_time: BatchCoefficients = field(default_factory=BatchCoefficients)


# -------------------------------------------------------------------------------------- one engine's pages


@dataclass(eq=False)
class Node:
    """A run of pages between two branchings of the radix tree; evicted whole."""

    names: list[Hashable]
    pages: list[int]
    parent: Node | None
    locks: int = 0  # running requests that use it
    used: int = 0  # when last touched
    children: dict[Hashable, Node] = field(default_factory=dict)  # by the first name below


class Pool:
    """Pages of one engine: unused, in the tree, or held by a request outside the tree."""

    def __init__(self, usable: int):
        self.usable = usable
        self.unused = list(range(usable))
        self.root = Node([], [], None)
        self.clock = 0
        self.events: list[tuple[Hashable, int]] = []  # +1 cached, -1 evicted; told to the router later

    @property
    def free(self) -> list[int]:
        """Pages to be had: unused, or in a node that nobody runs on."""
        return self.unused + [page for node in self.nodes() if node.locks == 0 for page in node.pages]

    def nodes(self) -> list[Node]:
        found, todo = [], list(self.root.children.values())
        while todo:
            node = todo.pop()
            found.append(node)
            todo += node.children.values()
        return found

    def match(self, names: list[Hashable]) -> Node:
        """The node where the longest cached prefix ends; it is split if the prefix ends inside."""
        now, node = self._tick(), self.root
        while names and names[0] in node.children:
            node = node.children[names[0]]
            node.used = now
            same = 0
            while same < min(len(names), len(node.names)) and names[same] == node.names[same]:
                same += 1
            if same < len(node.names):
                return self._split(node, same)
            names = names[same:]
        return node

    def insert(self, names: list[Hashable], pages: list[int]) -> Node:
        """Give the tree what it lacks of these pages; returns the node where `names` end."""
        node = self.match(names)
        there = len(path(node))
        if there < len(names):
            leaf = Node(names[there:], pages[there:], node, used=self._tick())
            node.children[names[there]] = leaf
            self.events += [(name, +1) for name in leaf.names]
            node = leaf
        return node

    def _split(self, node: Node, at: int) -> Node:
        assert node.parent is not None
        head = Node(node.names[:at], node.pages[:at], node.parent, node.locks, self._tick())
        head.children[node.names[at]] = node
        node.parent.children[node.names[0]] = head
        node.names, node.pages, node.parent = node.names[at:], node.pages[at:], head
        return head

    def _tick(self) -> int:
        self.clock += 1
        return self.clock

    def lock(self, node: Node, by: int = 1) -> None:
        """A request starts (or, by -1, ceases) to use a node and all above it."""
        while node.parent is not None:
            node.locks += by
            assert node.locks >= 0
            node = node.parent

    def make_room(self, pages: int) -> bool:
        """Evict the leaves least recently used, whole, until so many pages are unused; False if in vain."""
        while len(self.unused) < pages:
            leaves = [node for node in self.nodes() if not node.children and node.locks == 0]
            if not leaves:
                return False
            leaf = min(leaves, key=lambda node: node.used)
            assert leaf.parent is not None
            del leaf.parent.children[leaf.names[0]]
            self.unused += leaf.pages
            self.events += [(name, -1) for name in leaf.names]
        return True

    def take(self, pages: int) -> list[int]:
        if pages > len(self.unused):
            raise RuntimeError("out of KV in the middle of a batch: SGLang would stop here")
        taken, self.unused = self.unused[:pages], self.unused[pages:]
        return taken


def path(node: Node) -> list[int]:
    """The pages from the root to the end of a node."""
    return [] if node.parent is None else path(node.parent) + node.pages


# ---------------------------------------------------------------------------------- one engine's scheduler


@dataclass
class Budget:
    """What one prefill batch may still take, in tokens."""

    chunk: float  # new tokens, inf without chunking
    input: int  # new tokens
    reserved: float  # of the pages to be had: promised to running requests and to those of this batch
    reserved_now: float  # of them, what this batch itself will take
    jobs: list[tuple[Job, int]] = field(default_factory=list)  # taken, with their tokens


class Engine(vllm.Engine):
    """Batch time and what the router sees are the vLLM judge's; everything else is SGLang's."""

    limits: Limits  # type: ignore[assignment]
    pool: Pool  # type: ignore[assignment]

    def __init__(self, limits: Limits, names: Names):
        self.limits, self.names = limits, names
        self.pool = Pool(limits.kv_blocks)
        self.waiting: list[Job] = []
        self.running: list[Job] = []  # everyone admitted, as the router counts them
        self.decoding: list[Job] = []  # those whose prompt is done: SGLang's running batch
        self.chunked: Job | None = None  # the one whose prompt is partly done
        self.prefilling: list[Job] = []  # in the batch, for its prompt
        self.unnoticed = 0
        self.full = False  # do not even try to admit
        self.node: dict[Job, Node] = {}  # the end of what a request uses of the tree
        self.ratio = self.first_ratio
        self.batch: list[Chunk] = []
        self.batch_ends, self.batch_ended = math.inf, -math.inf
        self.news: list[tuple[float, Hashable, int]] = []
        self.announced: dict[Hashable, int] = {}

    def fits(self, request: Request) -> bool:
        """Whether it can ever be served: alone, it must pass its admission, also after a retraction."""
        limit = self.limits.max_model_len
        if limit is not None and request.prompt + request.output > limit:
            return False
        page = self.limits.block_tokens
        return request.prompt + request.output + page < self.pool.usable * page

    def enqueue(self, job: Job) -> None:
        self.waiting.append(job)

    def schedule(self, now: float = 0.0) -> dict[int, int]:
        """Plan the next batch; returns tokens by request, in batch order."""
        if not self.running and now > self.batch_ended:
            self._idle()  # it looked for work since the last batch ended and found none
        for _ in range(2):  # the first look may only notice that all have left
            self._plan_prefill(now)
            if not self.batch:
                self._plan_decode()
            if self.batch:
                self.batch_ends = now + self.duration()
                break
            self._idle()
        else:
            if self.waiting:
                raise RuntimeError("requests wait and nothing runs")
        return {chunk.job.r: chunk.tokens for chunk in self.batch}

    def _idle(self) -> None:
        """An iteration that finds nothing to run starts the new-token ratio afresh."""
        self.unnoticed, self.full, self.ratio = 0, False, self.first_ratio

    # --- prefill

    def _plan_prefill(self, now: float) -> None:
        counted = len(self.decoding) + self.unnoticed
        if self.chunked is None:
            if counted >= self.limits.max_num_seqs:
                self.full = self.full or bool(self.waiting)
            if self.full or not self.waiting:
                return
        budget = self._budget(counted if self.limits.mixed_chunk else 0)
        if self.chunked is not None:
            self._continue(self.chunked, budget)
        for job in list(self.waiting):
            if len(budget.jobs) >= self.limits.max_num_seqs - counted:
                self.full = True
            if self.full:
                break
            verdict = self._admit(job, budget, now)
            if verdict == NO_MEMORY:
                self.full = True
            if verdict != GO:
                break
        if budget.jobs:
            self._start(budget)

    def _budget(self, decodes: int) -> Budget:
        """`decodes` tokens of the batch are not for prompts."""
        size = self.limits.chunked_prefill_size
        ratio = 1.0 if self.limits.ignore_eos else self.ratio
        charged = sum(min(job.request.output - job.emitted, MOST_CHARGED) for job in self.decoding)
        return Budget(
            chunk=math.inf if size is None else size - decodes,
            input=self.limits.max_prefill_tokens - decodes,
            reserved=decodes + charged * ratio,
            reserved_now=decodes,
        )

    def _left(self, budget: Budget) -> float:
        return len(self.pool.free) * self.limits.block_tokens - budget.reserved

    def _continue(self, job: Job, budget: Budget) -> None:
        """The partly computed prompt must go on, even if the reserve says no."""
        most = min(budget.chunk, math.floor(self._left(budget)))
        if most <= 0:
            most = budget.chunk
        rest = job.length - job.computed
        tokens = int(min(rest, most))
        if tokens > 0:
            self._charge(budget, job, tokens, whole=tokens == rest)
            if tokens == rest:
                self.chunked = None

    def _admit(self, job: Job, budget: Budget, now: float) -> str:
        """Take a waiting request if it fits; what it hits is locked before its cost is weighed."""
        page = self.limits.block_tokens
        node = self.pool.match(self._names(job, job.length - 1))
        hit = len(path(node)) * page
        self.pool.lock(node)
        uncached = job.length - hit
        ahead = min(job.request.output - job.emitted, MOST_CHARGED)
        if uncached + ahead + page >= self._left(budget):
            self.pool.lock(node, -1)
            return NO_MEMORY
        tokens = uncached
        if math.isinf(budget.chunk):  # a prompt too long for the input budget goes first or not at all
            fitting = self._whole_pages(uncached) < budget.input or not budget.jobs
        else:
            if self._whole_pages(uncached) > budget.chunk:
                tokens = int(budget.chunk) // page * page
            fitting = tokens > 0
        if not fitting:
            self.pool.lock(node, -1)
            return NO_BUDGET
        self.waiting.remove(job)
        self.running.append(job)
        self.node[job] = node
        job.blocks, job.computed = path(node), hit
        job.cached = len(job.blocks)
        if math.isnan(job.scheduled):
            job.scheduled, job.hit = now, hit
        if tokens < uncached:
            assert self.chunked is None
            self.chunked = job
        return self._charge(budget, job, tokens, whole=tokens == uncached)

    def _charge(self, budget: Budget, job: Job, tokens: int, whole: bool) -> str:
        """Whole pages and one more; all its output, unless the prompt goes on after this batch."""
        paged = self._whole_pages(tokens)
        budget.jobs.append((job, tokens))
        budget.chunk -= paged
        budget.input -= paged
        budget.reserved_now += paged + self.limits.block_tokens
        budget.reserved += paged + self.limits.block_tokens
        if whole:
            budget.reserved += min(job.request.output, MOST_CHARGED)
        to_be_had = len(self.pool.free) * self.limits.block_tokens
        if to_be_had <= budget.reserved or to_be_had <= budget.reserved_now:
            return NO_MEMORY
        return NO_BUDGET if budget.chunk <= 0 or budget.input <= 0 else GO

    def _start(self, budget: Budget) -> None:
        """Pages for the whole batch at once: identical prompts all compute, none finds the other."""
        page = self.limits.block_tokens
        wanted = sum(tokens for _, tokens in budget.jobs)
        if page > 1:
            wanted += page * len(budget.jobs)  # as if each needed one more
        self.pool.make_room(self.blocks_for(wanted))
        for job, tokens in budget.jobs:
            self._extend(job, tokens)
        self.prefilling = [job for job, _ in budget.jobs]
        if self.limits.mixed_chunk:
            self.pool.make_room(len(self.decoding))
            for job in self.decoding:
                self._extend(job, 1)
            self.decoding, self.unnoticed = [], 0  # until the batch ends they belong to it

    # --- decode

    def _plan_decode(self) -> None:
        if not self.decoding:
            return
        leavers, self.unnoticed = self.unnoticed, 0
        if self._can_decode(self.decoding):
            start = self.first_ratio
            self.ratio = max(self.ratio - (1 - LAST_SHARE) * start / DECAY_STEPS, LAST_SHARE * start)
        else:
            leavers += self._retract()
        if leavers:
            self.full = False
        self.pool.make_room(len(self.decoding))  # as if each needed a page
        for job in self.decoding:
            self._extend(job, 1)

    @property
    def first_ratio(self) -> float:
        return min(FIRST_RATIO * self.limits.conservativeness, 1.0)

    def _can_decode(self, jobs: list[Job]) -> bool:
        return self.pool.make_room(sum(job.computed % self.limits.block_tokens == 0 for job in jobs))

    def _retract(self) -> int:
        """Drop those with the fewest outputs, then the longest prompt; how many. One always stays."""
        order = sorted(self.decoding, key=lambda job: (job.emitted, -job.request.prompt), reverse=True)
        before = len(order)
        while len(order) > 1 and (len(order) == before or not self._can_decode(order)):
            job = order.pop()
            self._release(job)
            self.pool.make_room(self.blocks_for(RETRACT_STEPS * len(order)))
            self.running.remove(job)
            job.computed = 0
            job.preemptions += 1
            self.waiting.append(job)  # at the end
        if not self._can_decode(order):
            raise RuntimeError("not even one request can decode: SGLang would abort it")
        self.decoding = order
        outputs = sum(job.emitted for job in order) + RETRACT_STEPS * len(order)
        self.ratio = min(1.0, outputs / (sum(job.request.output for job in order) + 1))
        return before - len(order)

    # --- pages

    def _whole_pages(self, tokens: int) -> int:
        return self.blocks_for(tokens) * self.limits.block_tokens

    def _names(self, job: Job, tokens: int) -> list[Hashable]:
        pages = tokens // self.limits.block_tokens if self.limits.prefix_caching else 0
        return [self.names.name(job.r, j) for j in range(pages)]

    def _extend(self, job: Job, tokens: int) -> None:
        job.blocks += self.pool.take(self.blocks_for(job.computed + tokens) - len(job.blocks))
        self.batch.append(Chunk(job, tokens, job.computed, job.is_decode))

    def _remember(self, job: Job) -> None:
        """Put a request's full pages in the tree; what the tree had already takes the place of its own."""
        names = self._names(job, job.computed)
        mine = job.blocks[: len(names)]
        node = self.pool.insert(names, mine)
        theirs = path(node)
        self.pool.unused += [page for page, kept in zip(mine, theirs, strict=True) if page != kept]
        job.blocks[: len(names)] = theirs
        self.pool.lock(node)
        self.pool.lock(self.node[job], -1)
        self.node[job], job.cached = node, len(names)

    def _release(self, job: Job) -> None:
        """Give back the pages outside the tree and leave the rest to eviction."""
        self.pool.unused += job.blocks[job.cached :]
        self.pool.lock(self.node.pop(job), -1)
        job.blocks, job.cached = [], 0

    # --- running it

    def finish(self, now: float = 0.0) -> list[Job]:
        """The batch has run: tokens exist, prompts enter the tree, requests end. Returns those that ended."""
        ended, stay = [], []
        for chunk in self.batch:
            job = chunk.job
            job.computed += chunk.tokens
            if not chunk.is_decode:
                job.prefilled += chunk.tokens
            if job is self.chunked:
                continue
            job.emitted += 1
            if job.emitted == 1:
                job.first_token = now
            job.token_times.append(now)
            if job.emitted == job.request.output:
                self._remember(job)
                self._release(job)
                self.running.remove(job)
                ended.append(job)
            else:
                stay.append(job)
                if job in self.prefilling:
                    self._remember(job)
        if self.chunked is not None and self.chunked in self.prefilling:
            self._remember(self.chunked)
        self._settle(ended, stay)
        self.news += [(now, name, copies) for name, copies in self.pool.events]
        self.pool.events = []
        self.batch, self.prefilling = [], []
        self.batch_ends, self.batch_ended = math.inf, now
        return ended

    def _settle(self, ended: list[Job], stay: list[Job]) -> None:
        """Who decodes from now on, and whether the next iteration may admit."""
        if not self.prefilling:
            self.decoding = stay
            self.unnoticed += len(ended)
            return
        if len(stay) < len(self.batch) or not (self.decoding or self.unnoticed):
            self.full = False  # somebody left, a prompt is still partial, or the set that was full is gone
        self.decoding += stay


# --------------------------------------------------------------------------------------------- the cluster


class Cluster(vllm.Cluster):
    """The vLLM judge's cluster, holding SGLang engines."""

    engine_type = Engine
