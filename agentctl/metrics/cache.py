"""What caches saved, and what had to be computed again."""

from __future__ import annotations

import numpy as np

from agentctl.metrics.base import Counts, Floats, Run, Unknown, metric

NO_SHARING = Unknown("what requests share was not asked for in this run")
NO_TIER = Unknown("no such KV tier is simulated")
NOTHING_MOVES = Unknown("no KV tier is simulated, and no pool has a role")


@metric("ratio", "higher", "run")
def hit_ratio(run: Run) -> float | None:
    """Share of prompt tokens found in a cache at first admission, KV tiers included, over finished requests,
    token-weighted."""
    total = int(run.prompt_tokens[run.done].sum())
    return int(run.cached_tokens[run.done].sum()) / total if total else None


@metric("ratio", "higher", "run")
def hit_intra_session_ratio(run: Run) -> float | Unknown | None:
    """Share of prompt tokens found in a cache that an earlier request of the same session
    had, prompt or output; over finished requests. Whoever computed them."""
    return (
        NO_SHARING
        if run.session_tokens is None
        else _share(run, np.minimum(run.cached_tokens, run.session_tokens))
    )


@metric("ratio", "higher", "run")
def hit_inter_session_ratio(run: Run) -> float | Unknown | None:
    """Share of prompt tokens found in a cache that only requests of other sessions had; with
    hit_intra_session_ratio it adds up to hit_ratio."""
    if run.session_tokens is None:
        return NO_SHARING
    return _share(run, np.maximum(run.cached_tokens - run.session_tokens, 0))


@metric("ratio", "higher", "run")
def hit_host_ratio(run: Run) -> float | Unknown | None:
    """Share of prompt tokens found, beyond the engine's own KV, in tiers of that engine alone."""
    return NO_TIER if run.host_tokens is None else _share(run, run.host_tokens)


@metric("ratio", "higher", "run")
def hit_global_ratio(run: Run) -> float | Unknown | None:
    """Share of prompt tokens found, beyond the engine's own KV, in tiers that all engines share."""
    return NO_TIER if run.global_tokens is None else _share(run, run.global_tokens)


@metric("s", "lower", "request")
def transfer_s(run: Run) -> Floats | Unknown:
    """Time from the start of a request's loads from KV tiers, and of its hand-over to another engine, to
    their end, added up; of those for which KV moves."""
    if run.transfer_s is None:
        return NOTHING_MOVES
    return np.where(run.done & (run.transfer_s > 0), run.transfer_s, np.nan)


@metric("ratio", "lower", "run")
def session_miss_ratio(run: Run) -> float | Unknown | None:
    """Share of prompt tokens that an earlier request of the same session had and that were computed again:
    evicted, on another engine, or less than a block."""
    if run.session_tokens is None:
        return NO_SHARING
    return _share(run, np.maximum(run.session_tokens - run.cached_tokens, 0))


@metric("tokens", "lower", "request")
def recomputed_tokens(run: Run) -> Floats:
    """Prefill tokens beyond those that were missing at first admission: what a preemption cost."""
    again = run.computed_prefill_tokens - (run.prompt_tokens - run.cached_tokens)
    return np.where(run.done, np.maximum(again, 0), np.nan)


@metric("count", "lower", "request")
def preemptions(run: Run) -> Floats:
    """How often a request lost its KV to make room for others, and waited again."""
    return np.where(run.done, run.preemptions, np.nan)


@metric("count", "lower", "run")
def replication(run: Run) -> float | Unknown | None:
    """On how many engines a block of content was, on average: different blocks of the finished requests
    of every engine, added up, over different blocks of all; 1 when every block was on one engine only."""
    return NO_SHARING if run.copies is None else run.copies if run.copies > 0 else None


def _share(run: Run, tokens: Counts) -> float | None:
    total = int(run.prompt_tokens[run.done].sum())
    return int(tokens[run.done].sum()) / total if total else None
