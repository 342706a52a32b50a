"""How much of the prompts a finite cache keeps: LRU at every size, the optimum, and pools of engines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentctl.analyzers.base import AnalyzeOptions
from agentctl.analyzers.belady import belady_hit_blocks, intervals
from agentctl.analyzers.counted import Counted
from agentctl.analyzers.lru_curve import lru_hit_tokens
from agentctl.analyzers.strands import Strands
from agentctl.analyzers.stretches import Stretches, stretches
from agentctl.analyzers.working_set import waiting_blocks

SHARES_OF_IDEAL = (0.8, 0.9, 0.95, 0.99)
N_OPTIMA = 10  # an optimum costs about 0.15 s per million requests


@dataclass(frozen=True)
class LruPoint:
    tokens: int  # capacity
    ratio: float
    ratio_last_half: float  # over the last half of the requests: the first half only warms the cache


@dataclass(frozen=True)
class BeladyPoint:
    tokens: int  # capacity
    block_ratio: float  # of all blocks: no replacement finds more
    token_ratio: float  # prompt tokens in those blocks


@dataclass(frozen=True)
class Needed:
    """The smallest LRU pool that reaches a share of the ideal ratio."""

    share_of_ideal: float
    tokens: int


@dataclass(frozen=True)
class PoolReuse:
    """What the KV of n engines keeps.

    One pool is LRU as if every request found every engine's blocks. Dealt sessions is LRU on each engine,
    with session k on engine k mod n whatever the load. Separate pools can find more than one pool: a session
    that floods its engine leaves the others alone. The bound holds for any routing and any replacement.
    """

    engines: int
    kv_tokens_per_engine: int
    bound_ratio: float  # Belady's blocks, all taken as full, but no more than the ideal
    one_pool_ratio: float
    dealt_sessions_ratio: float


def lru_curve(counted: Counted, hits: NDArray[np.int64], half: int) -> tuple[LruPoint, ...]:
    """Points at two capacities per octave and at the smallest that is as good as infinite.

    hits  of lru_hit_tokens: one column per block of capacity, rows split at request `half`
    """
    total = max(int(counted.prompt_tokens.sum()), 1)
    total_last = max(int(counted.prompt_tokens[half:].sum()), 1)
    return tuple(
        LruPoint(c * counted.block_tokens, float(hits[:, c].sum() / total), float(hits[1, c] / total_last))
        for c in capacities(hits.shape[1] - 1)
    )


def needed_for_ideal(hits: NDArray[np.int64], block_tokens: int) -> tuple[Needed, ...]:
    """The smallest LRU capacities that reach SHARES_OF_IDEAL of the ideal; none when nothing is reused."""
    curve = hits.sum(axis=0)
    if curve[-1] == 0:
        return ()
    enough = np.searchsorted(curve, np.array(SHARES_OF_IDEAL) * curve[-1])
    return tuple(
        Needed(share, int(c) * block_tokens) for share, c in zip(SHARES_OF_IDEAL, enough, strict=True)
    )


def belady_curve(counted: Counted, reuse: Stretches) -> tuple[BeladyPoint, ...]:
    """The optimum at powers of two: the largest N_OPTIMA up to the capacity at which it is the ideal."""
    to_carry = intervals(reuse)
    n_blocks = int(counted.n_blocks.sum())
    n_tokens = max(int(counted.prompt_tokens.sum()), 1)
    points = []
    least = int(waiting_blocks(reuse).max(initial=0))
    for capacity in capacities(least, per_octave=1)[-N_OPTIMA:]:
        hit = belady_hit_blocks(to_carry, capacity)
        tokens = np.minimum(hit * counted.block_tokens, counted.prompt_tokens).sum()
        points.append(
            BeladyPoint(
                capacity * counted.block_tokens, float(hit.sum() / n_blocks), float(tokens / n_tokens)
            )
        )
    return tuple(points)


def pool_reuse(
    counted: Counted, strands: Strands, reuse: Stretches, hits: NDArray[np.int64], options: AnalyzeOptions
) -> tuple[PoolReuse, ...]:
    """For each number of engines of the options; none when the KV of one engine is not known."""
    per_engine = options.kv_tokens_per_engine
    if per_engine is None:
        return ()
    capacity = per_engine // counted.block_tokens
    total = max(int(counted.prompt_tokens.sum()), 1)
    to_carry, ideal = intervals(reuse), _at(hits, hits.shape[1])
    pools = []
    for n in options.engines:
        bound = min(int(belady_hit_blocks(to_carry, n * capacity).sum()) * counted.block_tokens, ideal)
        dealt = sum(
            _engine_hits(counted, strands, counted.session % n == engine, capacity) for engine in range(n)
        )
        one_pool = _at(hits, n * capacity)
        pools.append(PoolReuse(n, per_engine, bound / total, one_pool / total, dealt / total))
    return tuple(pools)


def _engine_hits(counted: Counted, strands: Strands, here: NDArray[np.bool_], capacity: int) -> int:
    """Tokens hit on an engine that gets only these requests."""
    reuse = stretches(strands, counted.tip[here])
    hits = lru_hit_tokens(reuse, counted.n_blocks[here], counted.prompt_tokens[here], counted.block_tokens)
    return _at(hits, capacity)


def _at(hits: NDArray[np.int64], capacity: int) -> int:
    """The curve is flat beyond its last column."""
    return int(hits[:, min(capacity, hits.shape[1] - 1)].sum())


def capacities(largest: int, per_octave: int = 2) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ... (or powers of two) below `largest`, and `largest`; empty when that is 0."""
    powers = [1 << k for k in range(largest.bit_length())]
    between = [3 * power for power in powers] if per_octave == 2 else []
    return sorted({c for c in powers + between if c < largest} | {largest} - {0})
