"""KV reuse: how much of the prompts was computed before, and how large a cache must be to still have it.

A request reuses the longest beginning of its block chain that earlier requests had. "Ideal" is an infinite
cache, cold at the start. Counted are requests whose prompt an engine took in: status ok, aborted or timeout;
errors, rejections and a proxy's own cache hits neither count nor fill the cache. Ratios are over prompt
tokens unless their name says otherwise. Generated tokens carry no ids in a log: they are new when the next
turn sends them back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agentctl.analyzers.base import AnalyzeOptions
from agentctl.analyzers.counted import count_requests
from agentctl.analyzers.lru_curve import lru_hit_tokens
from agentctl.analyzers.reuse_capacity import (
    BeladyPoint,
    LruPoint,
    Needed,
    PoolReuse,
    belady_curve,
    lru_curve,
    needed_for_ideal,
    pool_reuse,
)
from agentctl.analyzers.reuse_ratios import (
    Holders,
    Ideal,
    IntervalPoint,
    TurnGroup,
    ideal_reuse,
    interval_curve,
    intra_session,
    reuse_by_turn,
    single_use_blocks,
    top_tenth_reuse,
)
from agentctl.analyzers.reuse_text import describe as describe
from agentctl.analyzers.strands import weave
from agentctl.analyzers.stretches import stretches
from agentctl.analyzers.working_set import WorkingSet, working_set
from agentctl.trace import Trace

NAME = "reuse"
ORDER = 10


@dataclass(frozen=True)
class Result:
    """None and empty: unknown, for the `reason`."""

    reason: str | None
    block_tokens: int | None
    hash_scope: str | None
    chain_conflicts: int
    excluded_requests: dict[str, int] = field(default_factory=dict)  # left out, by reason
    requests: int = 0
    prompt_tokens: int = 0
    blocks: int = 0  # block references
    distinct_blocks: int = 0
    ideal_token_ratio: float | None = None
    ideal_token_ratio_full_blocks: float | None = None
    ideal_request_mean: float | None = None
    ideal_block_ratio: float | None = None
    last_half: Ideal | None = None  # over the last half of the requests
    intra_session: float | None = None  # share of reused tokens, by most recent holder
    inter_session: float | None = None
    intra_session_any_holder: float | None = None
    inter_session_any_holder: float | None = None
    by_turn: tuple[TurnGroup, ...] = ()
    single_use_block_ratio: float | None = None
    top_tenth_reuse_ratio: float | None = None
    lru_curve: tuple[LruPoint, ...] = ()
    needed_for_ideal: tuple[Needed, ...] = ()
    belady_curve: tuple[BeladyPoint, ...] = ()
    pools: tuple[PoolReuse, ...] = ()
    reuse_interval_s: dict[str, float] = field(default_factory=dict)  # p50, p80, p90, p99 of reused tokens
    reuse_interval_cdf: tuple[IntervalPoint, ...] = ()
    working_set: WorkingSet | None = None


def analyze(trace: Trace, options: AnalyzeOptions) -> Result:
    scope = (trace.meta["hash"] or {}).get("scope")
    conflicts = int(trace.meta["chain_conflicts"])
    counted = count_requests(trace)
    if counted is None:
        return Result("the log carries no prompt blocks", None, scope, conflicts)
    if not counted.n_blocks.any():
        reason = "no request that counts has a prompt block"
        return Result(reason, counted.block_tokens, scope, conflicts, counted.excluded)
    strands = weave(trace.tree.parent, trace.tree.depth, counted.tip)
    reuse = stretches(strands, counted.tip)
    half = counted.tip.size // 2
    ideal = ideal_reuse(counted, reuse)
    hits = lru_hit_tokens(reuse, counted.n_blocks, counted.prompt_tokens, counted.block_tokens, half)
    # Ids that only compare within a session cannot tell what sessions share.
    own = Holders(None, None) if scope == "session" else intra_session(trace.tree, counted, reuse)
    interval, interval_cdf = interval_curve(counted, reuse)
    return Result(
        reason=None,
        block_tokens=counted.block_tokens,
        hash_scope=scope,
        chain_conflicts=conflicts,
        excluded_requests=counted.excluded,
        requests=counted.tip.size,
        prompt_tokens=int(counted.prompt_tokens.sum()),
        blocks=int(counted.n_blocks.sum()),
        distinct_blocks=int((counted.n_blocks - reuse.hit_blocks()).sum()),
        ideal_token_ratio=ideal.token_ratio,
        ideal_token_ratio_full_blocks=ideal.token_ratio_full_blocks,
        ideal_request_mean=ideal.request_mean,
        ideal_block_ratio=ideal.block_ratio,
        last_half=ideal_reuse(counted, reuse, half),
        intra_session=own.most_recent,
        inter_session=_rest(own.most_recent),
        intra_session_any_holder=own.any,
        inter_session_any_holder=_rest(own.any),
        by_turn=reuse_by_turn(counted, reuse),
        single_use_block_ratio=single_use_blocks(strands),
        top_tenth_reuse_ratio=top_tenth_reuse(strands),
        lru_curve=lru_curve(counted, hits, half),
        needed_for_ideal=needed_for_ideal(hits, counted.block_tokens),
        belady_curve=belady_curve(counted, reuse),
        pools=pool_reuse(counted, strands, reuse, hits, options),
        reuse_interval_s=interval,
        reuse_interval_cdf=interval_cdf,
        working_set=working_set(counted, reuse),
    )


def _rest(share: float | None) -> float | None:
    return None if share is None else 1 - share
