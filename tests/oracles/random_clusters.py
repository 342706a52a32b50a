"""Small random workloads on small random clusters, for the judge and for the simulator alike.

Half of the cases are crowded: everything arrives at about the same time on a pool with hardly any room.
Sessions are made of tokens, so that prefixes, partial blocks and outputs are what they would really be. Times
and coefficients are multiples of 2^-10: sums and closed forms are exact, and ties are real ties. Pools are
tiny, so that blocks are evicted and requests preempted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from oracles import reference_sglang
from oracles.reference_simulator import AFTER_END, AFTER_START, AT_ARRIVAL, BatchCoefficients, Limits, Request
from oracles.reference_view import IndexSettings, Settings
from oracles.tries import plant

from agentctl.cluster import Cluster, Pool, Router
from agentctl.estimators.batch_time import BatchTime
from agentctl.profile import Profile
from agentctl.trace import PrefixTree
from agentctl.workload import Requests, Workload

TICK = 2.0**-10


@dataclass
class Case:
    requests: list[Request]  # chains are node numbers
    tokens: list[tuple[int, ...]]  # of every request, outputs included
    trace_block: int | None
    workload: Workload
    limits: list[Limits]
    cluster: Cluster
    concurrency: int | None
    settings: Settings  # of the router
    seed: int


def ticks(low: int, high: int, scale: float = TICK) -> st.SearchStrategy[float]:
    return st.integers(low, high).map(lambda n: n * scale)


@st.composite
def cases(draw: st.DrawFn, exact_times: bool = True, sglang: bool = False) -> Case:
    block = draw(st.sampled_from([1, 2, 4]))
    trace_block = draw(st.sampled_from([None, block, block, block * 2, block * 4, max(block // 2, 1)]))
    crowded = draw(st.booleans())
    sizes = draw(st.sampled_from([(14, 16), (3, 40)])) if sglang else (14, 16)  # long outputs are retracted
    requests, tokens = draw(_sessions(trace_block, exact_times, crowded, *sizes))
    concurrency = draw(st.sampled_from([None, None, 1, 2]))
    longest = max(r.prompt + r.output for r in requests)
    limits = draw((_sglang_limits if sglang else _limits)(block, longest, exact_times, crowded))
    n_engines = 1 if crowded else draw(st.integers(1, 3))
    settings = draw(_settings(trace_block or block, exact_times))
    seed = draw(st.integers(0, 3))
    return make_case(requests, tokens, trace_block, [limits] * n_engines, concurrency, settings, seed)


def make_case(
    requests: list[Request],
    tokens: list[tuple[int, ...]],
    trace_block: int | None,
    limits: list[Limits],
    concurrency: int | None = None,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    seed: int = 0,
) -> Case:
    workload = workload_of(requests, trace_block, "thinktime" if concurrency is None else "closed-loop")
    cluster = cluster_of(limits, settings)
    return Case(requests, tokens, trace_block, workload, limits, cluster, concurrency, settings, seed)


@st.composite
def _sessions(
    draw: st.DrawFn,
    trace_block: int | None,
    exact_times: bool,
    crowded: bool,
    most_new: int,
    most_output: int,
) -> tuple[list[Request], list[tuple[int, ...]]]:
    """Sessions of a few turns over shared system prompts: they append, compact, retry, branch, overlap."""
    scale = 2.0**-6 if crowded else 0.25
    time = ticks(0, 40, scale) if exact_times else st.floats(0, 40 * scale)
    hashes_tails = draw(st.booleans())
    system = [tuple(range(100 * s, 100 * s + draw(st.integers(0, 12)))) for s in (1, 2)]
    fresh = iter(range(1000, 10**6))
    made: list[tuple[float, int, Request, tuple[int, ...]]] = []  # arrival, order, request, its tokens
    turns: list[list[int]] = []
    for session in range(draw(st.integers(1, 5))):
        mine: list[int] = []
        start = draw(st.sampled_from([0.0, 0.0, draw(time)]))
        for turn in range(draw(st.integers(1, 4))):
            before = made[draw(st.sampled_from(mine))] if turn else None
            kind = (
                draw(st.sampled_from(["append", "append", "append", "retry", "compact"])) if before else "new"
            )
            if before is None:
                base: tuple[int, ...] = draw(st.sampled_from(system))
            elif kind == "append":
                base = before[3]
            elif kind == "retry":
                base = before[3][: before[2].prompt]
            else:
                base = before[3][: draw(st.integers(0, before[2].prompt))]
            n_new = draw(st.integers(0 if base else 1, most_new))
            prompt = base + tuple(next(fresh) for _ in range(n_new))
            output = draw(st.integers(1, most_output))
            whole = prompt + tuple(next(fresh) for _ in range(output))
            release = draw(st.sampled_from([AT_ARRIVAL, AFTER_END, AFTER_END, AFTER_START])) if before else 0
            deps: tuple[int, ...] = ()
            if before is not None and (release != AT_ARRIVAL or draw(st.booleans())):
                deps = (before[1],)
                if release == AFTER_END and len(mine) > 1 and draw(st.booleans()):
                    deps = tuple(sorted({*deps, draw(st.sampled_from(mine))}))
            arrival = start + turn * draw(st.sampled_from([0, scale, 2 * scale]))
            request = Request(
                prompt=len(prompt),
                output=output,
                arrival=arrival,
                parent=before[1] if before and (kind != "compact" or draw(st.booleans())) else -1,
                session=session,
                release=release,
                gap=draw(time) / 4,
                deps=deps,
                priority=draw(st.integers(0, 2)),
            )
            mine.append(len(made))
            made.append((arrival, len(made), request, whole))
        turns.append(mine)
    return _in_order(made, trace_block, hashes_tails)


def _in_order(
    made: list[tuple[float, int, Request, tuple[int, ...]]], trace_block: int | None, hashes_tails: bool
) -> tuple[list[Request], list[tuple[int, ...]]]:
    """Number the requests by logged arrival and give them chains."""
    ordered = sorted(made, key=lambda entry: entry[:2])
    number = {old: new for new, (_, old, _, _) in enumerate(ordered)}
    requests = [entry[2] for entry in ordered]
    for request in requests:
        request.deps = tuple(number[dep] for dep in request.deps)
        if request.parent >= 0:
            request.parent = number[request.parent]
    tokens = [entry[3] for entry in ordered]
    if trace_block is not None:
        prompts = [whole[: request.prompt] for request, whole in zip(requests, tokens, strict=True)]
        give_chains(requests, prompts, trace_block, hashes_tails)
    return requests, tokens


def give_chains(
    requests: list[Request], prompts: list[tuple[int, ...]], trace_block: int, hashes_tails: bool
) -> None:
    ids: dict[tuple[int, ...], int] = {}
    chains = []
    for prompt in prompts:
        n = -(-len(prompt) // trace_block) if hashes_tails else len(prompt) // trace_block
        stops = [min((i + 1) * trace_block, len(prompt)) for i in range(n)]
        chains.append([ids.setdefault(prompt[:stop], len(ids)) for stop in stops])
    trie = plant(chains)
    for request, tip in zip(requests, trie.tip.tolist(), strict=True):
        path = []
        while tip:
            path.append(tip)
            tip = int(trie.parent[tip])
        request.chain = tuple(reversed(path))


@st.composite
def _limits(draw: st.DrawFn, block: int, longest: int, exact_times: bool, crowded: bool) -> Limits:
    needed = -(-longest // block)
    room = st.integers(needed, needed + 4) if crowded else st.integers(max(needed - 2, 1), 3 * needed)
    return Limits(
        kv_blocks=1 + draw(room),
        block_tokens=block,
        max_num_batched_tokens=draw(st.sampled_from([1000, 17, 8, 3, 1])),
        max_num_seqs=8 if crowded else draw(st.sampled_from([1, 2, 3, 8])),
        max_model_len=draw(st.sampled_from([None, None, None, longest, longest - 1])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 2, 5])),
        reserve_full_prompt=draw(st.booleans()),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.125, 0.3])),
        prefix_caching=draw(st.sampled_from([True, True, True, False])),
        scheduling_policy=draw(st.sampled_from(["fcfs", "priority"])),
        prefill_schedule_interval=draw(st.sampled_from([1, 1, 2, 3])),
        batch_time=draw(_coefficients(exact_times)),
    )


@st.composite
def _sglang_limits(
    draw: st.DrawFn, block: int, longest: int, exact_times: bool, crowded: bool
) -> reference_sglang.Limits:
    """A request is served when the pool holds a page more than it, and a token."""
    needed = -(-longest // block) + 2
    room = st.integers(needed, needed + 4) if crowded else st.integers(max(needed - 2, 2), 3 * needed)
    return reference_sglang.Limits(
        kv_blocks=draw(room),
        block_tokens=block,
        chunked_prefill_size=draw(st.sampled_from([None, 1000, 16, 8, 4])),
        max_prefill_tokens=draw(st.sampled_from([1000, 1000, 20, 5])),
        mixed_chunk=draw(st.booleans()),
        conservativeness=draw(st.sampled_from([1.0, 0.3, 0.1, 0.01, 2.0])),
        ignore_eos=draw(st.sampled_from([False, False, True])),
        max_num_seqs=8 if crowded else draw(st.sampled_from([1, 2, 3, 8])),
        max_model_len=draw(st.sampled_from([None, None, None, longest, longest - 1])),
        prefix_caching=draw(st.sampled_from([True, True, True, False])),
        batch_time=draw(_coefficients(exact_times)),
    )


@st.composite
def _coefficients(draw: st.DrawFn, exact_times: bool) -> BatchCoefficients:
    """Lockstep, so that steps end when requests arrive, or everything at once."""
    if exact_times and draw(st.booleans()):
        return BatchCoefficients(b0=draw(st.sampled_from([2.0**-6, 2.0**-4])))
    small = st.integers(0, 24) if exact_times else st.floats(0.01, 24)
    fixed = st.integers(1, 64) if exact_times else st.floats(1, 64)
    slopes = ("b_prefill", "b_decode", "b_context", "b_context_mixed", "b_attention", "b_past")
    with_host = draw(st.sampled_from([0, 0, 1]))
    return BatchCoefficients(
        b0=draw(fixed) * TICK,
        h0=with_host * draw(st.integers(0, 200)) * TICK,
        h_seq=with_host * draw(st.integers(0, 50)) * TICK,
        **{name: draw(small) * TICK for name in slopes},
    )


@st.composite
def _settings(draw: st.DrawFn, trace_block: int, exact_times: bool) -> Settings:
    """Metrics that are published at about the times at which steps end; news that is late, or none."""
    time = st.integers(1, 256).map(lambda n: n * TICK) if exact_times else st.floats(1e-3, 0.3)
    never_or = st.one_of(st.just(0.0), time)
    interval = draw(never_or)
    is_own = draw(st.booleans())
    size = draw(st.sampled_from([trace_block, trace_block * 2, max(trace_block // 2, 1)]))
    index = IndexSettings(
        block_tokens=size,
        capacity_tokens=draw(st.sampled_from([None, 5, 23, 60])),
        ttl_s=draw(st.one_of(st.none(), time.map(lambda s: 8 * s))),
        eviction=draw(st.sampled_from(["tail", "head"])),
        match=draw(st.sampled_from(["contiguous", "any_engine"])),
    )
    return Settings(
        gateways=draw(st.sampled_from([1, 1, 2, 3])),
        metrics_interval_s=interval,
        metrics_delay_s=draw(never_or) if interval else 0.0,
        index_delay_s=0.0 if is_own else draw(never_or),
        index=index if is_own else None,
    )


def cluster_of(limits: list[Limits], settings: Settings = Settings()) -> Cluster:  # noqa: B008 (frozen)
    """One pool of engines that are all alike."""
    first = limits[0]
    c = first.batch_time
    batch_time = BatchTime(
        "hinge", c.b0, c.b_prefill, c.b_decode, c.b_context, c.b_context_mixed, c.b_attention, c.b_past,
        c.h0, c.h_seq,
    )  # fmt: skip
    keys = {name: value for name, value in vars(first).items() if name != "batch_time"}
    if isinstance(first, reference_sglang.Limits):
        chunk = first.chunked_prefill_size
        keys |= {"scheduler": "sglang", "page_tokens": first.block_tokens,
                 "chunked_prefill_size": -1 if chunk is None else chunk}  # fmt: skip
    router = Router(**{name: value for name, value in vars(settings).items() if name != "index"})
    if settings.index:
        params = {key: value for key, value in vars(settings.index).items() if value is not None}
        router = replace(router, index="approximate", index_params=params)
    return Cluster((Pool(name="main", profile=Profile(batch_time), engines=len(limits), **keys),), router)


def workload_of(requests: list[Request], trace_block: int | None, replay: str = "thinktime") -> Workload:
    """The judge's requests, whose chains are node numbers, as the simulator takes them."""
    nodes = {node: above for r in requests for above, node in zip((0, *r.chain), r.chain, strict=False)}
    n_nodes = max(nodes, default=0) + 1
    parent, depth = np.zeros(n_nodes, np.uint32), np.zeros(n_nodes, np.int32)
    for node in sorted(nodes):
        parent[node], depth[node] = nodes[node], depth[nodes[node]] + 1
    n = len(requests)
    child = np.full(n, -1, np.int32)
    for r, request in reversed(list(enumerate(requests))):
        if request.parent >= 0:
            child[request.parent] = r
    deps = [request.deps for request in requests]
    turns: dict[int, int] = {}
    turn = [turns.setdefault(q.session, -1) for q in requests]
    for r, request in enumerate(requests):
        turns[request.session] += 1
        turn[r] = turns[request.session]
    arrays = Requests(
        arrival=np.array([q.arrival for q in requests], np.float64),
        prompt_tokens=np.array([q.prompt for q in requests], np.int64),
        output_tokens=np.array([q.output for q in requests], np.int64),
        session=np.array([q.session for q in requests], np.int32),
        turn=np.array(turn, np.int32),
        parent=np.array([q.parent for q in requests], np.int32),
        release=np.array([q.release for q in requests], np.int8),
        gap=np.array([q.gap for q in requests], np.float64),
        deps_start=np.cumsum([0] + [len(d) for d in deps]).astype(np.int64),
        deps=np.array([dep for d in deps for dep in d], np.int32),
        tip=np.array([q.chain[-1] if q.chain else 0 for q in requests], np.uint32),
        confirmed_child=child,
        priority=np.array([q.priority for q in requests], np.int32),
    )
    tree = PrefixTree(parent, depth, np.arange(n_nodes, dtype=np.uint64), np.zeros(n_nodes, np.int64))
    n_sessions = 1 + max((q.session for q in requests), default=-1)
    return Workload(
        requests=arrays,
        tree=tree,
        block_tokens=trace_block,
        request_ids=[f"r{r}" for r in range(n)],
        session_ids=[f"s{s}" for s in range(n_sessions)],
        replay=replay,
        counts={},
    )


def judge_requests(workload: Workload) -> list[Request]:
    """A workload as the judge takes it."""
    q, above = workload.requests, workload.tree.parent.tolist()

    def chain(tip: int) -> tuple[int, ...]:
        path = []
        while tip:
            path.append(tip)
            tip = above[tip]
        return tuple(reversed(path))

    return [
        Request(
            prompt=int(q.prompt_tokens[r]),
            output=int(q.output_tokens[r]),
            arrival=float(q.arrival[r]),
            chain=chain(int(q.tip[r])),
            parent=int(q.parent[r]),
            session=int(q.session[r]),
            release=int(q.release[r]),
            gap=float(q.gap[r]),
            deps=tuple(q.deps[q.deps_start[r] : q.deps_start[r + 1]].tolist()),
            priority=int(q.priority[r]),
        )
        for r in range(workload.n_requests)
    ]
