"""How much of the prompts an infinite cache holds: in all, by holder, by turn, by block, by interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentctl.analyzers.counted import Counted
from agentctl.analyzers.elapsed import elapsed
from agentctl.analyzers.prefill import shared_in_session
from agentctl.analyzers.strands import Strands
from agentctl.analyzers.stretches import Stretches
from agentctl.trace import PrefixTree

TURN_GROUPS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 50, 100)  # first turn of each; the last is open
INTERVAL_SHARES = (0.5, 0.8, 0.9, 0.99)
N_CDF_POINTS = 200  # enough for the eye, small enough for a report


@dataclass(frozen=True)
class Ideal:
    """What an infinite cache holds of a set of requests; None where nothing can be divided by."""

    requests: int
    token_ratio: float | None  # an identical partial last block counts its tokens
    token_ratio_full_blocks: float | None  # as engines cache: whole blocks only
    request_mean: float | None  # mean of the requests' own ratios
    block_ratio: float | None


@dataclass(frozen=True)
class Holders:
    """Shares of the reused tokens, by whose earlier request had them.

    Most recent holder: the block's latest user is of the same session (what an LRU list would say).
    Any holder: some earlier request of the session had it, whoever used it since (what affinity can keep).
    """

    most_recent: float | None
    any: float | None


@dataclass(frozen=True)
class TurnGroup:
    first_turn: int
    last_turn: int | None  # None: open
    requests: int
    prompt_tokens: int
    ideal_token_ratio: float | None


@dataclass(frozen=True)
class IntervalPoint:
    interval_s: float
    token_share: float  # of the reused tokens, at or below


def hit_tokens(counted: Counted, reuse: Stretches) -> NDArray[np.int64]:
    """Prompt tokens of each request that an infinite cache holds; the last block may be partial."""
    return np.minimum(reuse.hit_blocks() * counted.block_tokens, counted.prompt_tokens)


def ideal_reuse(counted: Counted, reuse: Stretches, since: int = 0) -> Ideal:
    """The ideal ratios over the requests from `since` on; the earlier ones fill the cache."""
    prompt, block_tokens = counted.prompt_tokens[since:], counted.block_tokens
    hit, hit_blocks = hit_tokens(counted, reuse)[since:], reuse.hit_blocks()[since:]
    full = np.minimum(hit_blocks, prompt // block_tokens) * block_tokens
    some = prompt > 0
    return Ideal(
        requests=prompt.size,
        token_ratio=ratio(hit.sum(), prompt.sum()),
        token_ratio_full_blocks=ratio(full.sum(), prompt.sum()),
        request_mean=float((hit[some] / prompt[some]).mean()) if some.any() else None,
        block_ratio=ratio(hit_blocks.sum(), counted.n_blocks[since:].sum()),
    )


def stretch_tokens(counted: Counted, reuse: Stretches) -> NDArray[np.int64]:
    """Prompt tokens in each stretch; a request that is hit whole has its partial block in its last one."""
    tokens = reuse.blocks.astype(np.int64) * counted.block_tokens
    missing = counted.n_blocks * counted.block_tokens - counted.prompt_tokens
    whole = (reuse.hit_blocks() == counted.n_blocks) & (counted.n_blocks > 0) & (missing > 0)
    tokens[reuse.offset[1:][whole] - 1] -= missing[whole]
    return tokens


def intra_session(tree: PrefixTree, counted: Counted, reuse: Stretches) -> Holders:
    """Share of the reused tokens that came from the request's own session."""
    tokens = stretch_tokens(counted, reuse)
    own = counted.session[reuse.request()] == counted.session[reuse.previous]
    held = shared_in_session(tree, counted.tip, counted.session) * counted.block_tokens
    return Holders(
        ratio(tokens[own].sum(), tokens.sum()),
        ratio(np.minimum(held, counted.prompt_tokens).sum(), tokens.sum()),
    )


def reuse_by_turn(counted: Counted, reuse: Stretches) -> tuple[TurnGroup, ...]:
    """Ideal ratio by the turn's place in its agent line; empty groups are left out."""
    group = np.searchsorted(TURN_GROUPS, counted.turn, side="right") - 1
    n = len(TURN_GROUPS)
    requests = np.bincount(group, minlength=n)
    prompt = np.bincount(group, counted.prompt_tokens, n)
    hit = np.bincount(group, hit_tokens(counted, reuse), n)
    last = [*(following - 1 for following in TURN_GROUPS[1:]), None]
    return tuple(
        TurnGroup(TURN_GROUPS[g], last[g], int(requests[g]), int(prompt[g]), ratio(hit[g], prompt[g]))
        for g in np.flatnonzero(requests)
    )


def single_use_blocks(strands: Strands) -> float | None:
    """Share of the distinct blocks that one request used: caching them never pays."""
    uses = strands.uses[1:]
    return ratio(int((uses == 1).sum()), int((uses > 0).sum()))


def top_tenth_reuse(strands: Strands) -> float | None:
    """Share of all block reuses that fall on the tenth of the distinct blocks used most."""
    uses = strands.uses[1:][strands.uses[1:] > 0]
    again = np.sort(uses).astype(np.int64) - 1
    top = again[again.size - again.size // 10 :]
    return ratio(int(top.sum()), int(again.sum()))


def interval_curve(counted: Counted, reuse: Stretches) -> tuple[dict[str, float], tuple[IntervalPoint, ...]]:
    """Time from a block's last use to its next, arrival to arrival, over reused tokens: quantiles and CDF.

    A quantile is the smallest interval that at least this share of the tokens does not exceed.
    """
    interval = elapsed(counted.arrival[reuse.request()], counted.arrival[reuse.previous])
    order = np.argsort(interval)
    interval, tokens = interval[order], np.cumsum(stretch_tokens(counted, reuse)[order])
    if tokens.size == 0 or tokens[-1] == 0:
        return {}, ()
    share = tokens / tokens[-1]
    quantiles = {f"p{100 * q:.0f}": float(interval[np.searchsorted(share, q)]) for q in INTERVAL_SHARES}
    shown = np.flatnonzero(np.diff(interval, append=np.inf) > 0)  # a tie counts whole
    shown = shown[np.unique(np.linspace(0, shown.size - 1, min(shown.size, N_CDF_POINTS)).astype(np.int64))]
    return quantiles, tuple(IntervalPoint(float(interval[p]), float(share[p])) for p in shown)


def ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None
