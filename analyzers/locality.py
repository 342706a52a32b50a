"""Locality in time: how long until a session comes back, and how soon cached tokens are used again.

How long must KV stay to be hit? The answer sets affinity lifetimes, idle timeouts and the need for a KV tier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from agentctl.analyzers.base import AnalyzeOptions
from agentctl.analyzers.columns import floats, texts
from agentctl.analyzers.counted import REACHED_AN_ENGINE
from agentctl.analyzers.distribution import Distribution, cdf_curve, distribution
from agentctl.analyzers.elapsed import DECIMALS, elapsed
from agentctl.analyzers.locality_text import describe as describe
from agentctl.analyzers.strands import weave
from agentctl.analyzers.stretches import stretches
from agentctl.present import Curve
from agentctl.trace import Trace

NAME = "locality"
ORDER = 20

COLUMNS = ["session_id", "agent_path", "arrival_s", "end_s", "gap_s", "gap_kind"]
COLUMNS += ["prompt_tokens", "tip_node", "n_blocks", "status"]


@dataclass(frozen=True)
class GapClass:
    """Gaps before a turn: from the end of the request that it waited for to its arrival.

    'overlap' turns arrived before that; their gap counts from its start, and they are not part of 'all'.
    """

    kind: str  # all or schema.GAP_KINDS
    turns: int
    gap_s: Distribution | None


@dataclass(frozen=True)
class ReuseWithin:
    """Share of the reused prompt tokens whose block was last used, by any request's arrival, so long ago."""

    within_s: float
    token_ratio: float


@dataclass(frozen=True)
class IdleTimeout:
    """A cache of any size that drops a block `timeout_s` after the end of the last request to come for it."""

    timeout_s: float
    hit_token_ratio: float  # of all prompt tokens
    idle_tokens_mean: (
        float | None
    )  # KV kept while no request uses it, mean over the trace; None: no time passes


@dataclass(frozen=True)
class Result:
    gaps: tuple[GapClass, ...]
    gaps_reason: str | None
    start_to_start_s: Distribution | None  # between the arrivals of successive turns of an agent line
    reuse_within: tuple[ReuseWithin, ...]
    idle_timeouts: tuple[IdleTimeout, ...]
    hit_token_ratio_forever: float | None  # without any timeout: the ideal
    reuse_reason: str | None  # why there is no reuse to tell
    known_end_ratio: (
        float | None
    )  # of the requests; idle time counts from the arrival where the end is unknown
    starts: str  # absolute | relative | synthesised
    gap_curves: tuple[Curve, ...]


class Reuse(NamedTuple):
    """One value per stretch of blocks that an earlier request had used."""

    tokens: NDArray[np.float64]
    since_arrival: NDArray[np.float64]  # s from the arrival of the latest request that used them
    since_end: NDArray[np.float64]  # s from its end, at least 0
    tokens_at_end: NDArray[np.float64]  # per request: tokens of the blocks that it was the last to use


def analyze(trace: Trace, options: AnalyzeOptions) -> Result:
    rows = trace.requests(COLUMNS)
    gaps, curves = _gaps(rows)
    within: tuple[ReuseWithin, ...] = ()
    timeouts: tuple[IdleTimeout, ...] = ()
    ideal: float | None = None
    known_end: float | None = None
    reason: str | None = "the trace has no block chains"
    chained = rows.filter(pl.col("status").cast(pl.String).is_in(REACHED_AN_ENGINE))
    chained = chained.filter(pl.col("tip_node").is_not_null() & pl.col("prompt_tokens").is_not_null())
    if trace.block_tokens and chained.height:
        reuse = _reuse(trace, chained, trace.block_tokens)
        within = _reuse_within(reuse, options.reuse_within_s)
        prompt = float(chained["prompt_tokens"].sum())
        ideal = float(reuse.tokens.sum()) / prompt if prompt else None
        timeouts = _idle_timeouts(reuse, chained, options.idle_timeouts_s) if prompt else ()
        known_end = 1 - chained["end_s"].null_count() / chained.height
        reason = None if within else "no token is used twice"
    return Result(
        gaps=gaps,
        gaps_reason=None if gaps else "no turn follows one whose end is known",
        start_to_start_s=distribution(floats(_start_to_start(rows))),
        reuse_within=within,
        idle_timeouts=timeouts,
        hit_token_ratio_forever=ideal,
        reuse_reason=reason,
        known_end_ratio=known_end,
        starts=trace.meta["time"]["origin"],
        gap_curves=curves,
    )


def _gaps(rows: pl.DataFrame) -> tuple[tuple[GapClass, ...], tuple[Curve, ...]]:
    known = rows.filter(pl.col("gap_s").is_not_null())
    gap, kind = floats(known["gap_s"]), texts(known["gap_kind"])
    if gap.size == 0:
        return (), ()
    classes = [("all", kind != "overlap")]
    classes += [(str(name or "unknown"), kind == name) for name in np.unique(kind)]
    found = tuple(GapClass(name, int(chosen.sum()), distribution(gap[chosen])) for name, chosen in classes)
    curves = tuple(
        cdf_curve(name, np.maximum(gap[chosen], 1e-3)) for name, chosen in classes[1:] if chosen.any()
    )
    return found, curves


def _start_to_start(rows: pl.DataFrame) -> pl.Series:
    step = pl.col("arrival_s").diff().over("session_id", "agent_path")
    return rows.select(step.alias("step_s"))["step_s"].drop_nulls().round(DECIMALS)


def _reuse(trace: Trace, rows: pl.DataFrame, block_tokens: int) -> Reuse:
    """Every reuse of the rows' chains, in arrival order."""
    tip, n_blocks = rows["tip_node"].to_numpy(), rows["n_blocks"].fill_null(0).to_numpy().astype(np.int64)
    arrival, prompt = rows["arrival_s"].to_numpy(), rows["prompt_tokens"].to_numpy()
    end = np.fmax(floats(rows["end_s"]), arrival)
    found = stretches(weave(trace.tree.parent, trace.tree.depth, tip), tip)
    request, blocks = found.request(), found.blocks.astype(np.int64)
    tokens = np.multiply(blocks, block_tokens, dtype=np.float64)
    # A request found whole, its partial last block included, hits its prompt and no more.
    whole = np.flatnonzero((found.hit_blocks() == n_blocks) & (n_blocks > 0))
    tokens[found.offset[whole + 1] - 1] -= np.maximum(n_blocks[whole] * block_tokens - prompt[whole], 0)
    later_used = np.bincount(found.previous, weights=blocks, minlength=n_blocks.size)
    return Reuse(
        tokens=tokens,
        since_arrival=elapsed(arrival[request], arrival[found.previous]),
        since_end=np.maximum(elapsed(arrival[request], end[found.previous]), 0.0),
        tokens_at_end=np.multiply(n_blocks - later_used, block_tokens, dtype=np.float64),
    )


def _reuse_within(reuse: Reuse, limits: tuple[float, ...]) -> tuple[ReuseWithin, ...]:
    total = reuse.tokens.sum()
    if total <= 0:
        return ()
    return tuple(ReuseWithin(s, float(reuse.tokens[reuse.since_arrival <= s].sum() / total)) for s in limits)


def _idle_timeouts(reuse: Reuse, rows: pl.DataFrame, timeouts: tuple[float, ...]) -> tuple[IdleTimeout, ...]:
    prompt = float(rows["prompt_tokens"].sum())
    arrival = rows["arrival_s"].to_numpy()
    end = np.fmax(floats(rows["end_s"]), arrival)
    lasts = float(end.max() - arrival.min())
    left = end.max() - end  # until the trace ends

    def measured(timeout: float) -> IdleTimeout:
        hit = reuse.tokens[reuse.since_end <= timeout].sum() / prompt
        kept = reuse.tokens @ np.minimum(reuse.since_end, timeout)
        kept += reuse.tokens_at_end @ np.minimum(left, timeout)
        return IdleTimeout(timeout, float(hit), float(kept / lasts) if lasts > 0 else None)

    return tuple(measured(timeout) for timeout in timeouts)
