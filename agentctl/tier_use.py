"""KV tiers of a simulated run: what they held and moved, and from which length on loading beats computing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agentctl.analyzers.words import count, percent
from agentctl.cluster import Cluster, KvTier
from agentctl.estimators.batch_time import BatchTime
from agentctl.metrics import Run
from agentctl.present import Section, Table
from agentctl.sim.outcome import TierUse

LONGEST = 1 << 21  # tokens; no prompt is longer


def break_even_tokens(tier: KvTier, batch_time: BatchTime, bytes_per_token: float) -> int | None:
    """The shortest beginning of a prompt, in whole units, that is loaded in less time than an engine takes
    to compute it; None: none up to LONGEST tokens.

    The load has the tier to itself and moves at the speed of one engine's link after its latency. Computing
    costs what these tokens add to a batch that the GPU limits: b_prefill x + b_attention x (x + 1) / 2
    - b_past x, for what is computed behind them in that batch has no past then.
    """
    units = np.arange(1, LONGEST // tier.unit_tokens + 1)
    tokens = units.astype(np.float64) * tier.unit_tokens
    speed = min(tier.engine_read_bytes_per_s or tier.read_bytes_per_s, tier.read_bytes_per_s)
    rounds = -(-units // tier.parallel) if tier.parallel else 1
    load = rounds * tier.latency_s + tokens * bytes_per_token / speed
    compute = batch_time.b_prefill * tokens + batch_time.b_attention * tokens * (tokens + 1) / 2
    compute -= batch_time.b_past * tokens
    shorter = np.flatnonzero(load < compute)
    return int(tokens[shorter[0]]) if shorter.size else None


def tier_facts(cluster: Cluster, used: Sequence[TierUse], run: Run) -> list[dict[str, Any]]:
    """One entry per tier of the cluster, in order."""
    prompt = int(run.prompt_tokens[run.done].sum())
    arrival, finish = run.arrival_s, run.finish_s
    span = float(np.nanmax(finish) - np.nanmin(arrival)) if run.done.any() else 0.0
    pool = cluster.pools[0]
    facts = []
    for tier, use in zip(cluster.kv_tiers, used, strict=True):
        size = pool.profile.kv_bytes_per_token
        facts.append(
            {
                "name": tier.name,
                "scope": tier.scope,
                "capacity_tokens": tier.capacity_tokens,
                "stores": use.stores,
                "hit_tokens": use.hit_tokens,
                "hit_ratio": use.hit_tokens / prompt if prompt else None,
                "loaded_bytes": use.loaded_bytes,
                "stored_bytes": use.stored_bytes,
                "read_share": _share(use.loaded_bytes, tier.read_bytes_per_s * use.stores * span),
                "write_share": _share(use.stored_bytes, tier.write_bytes_per_s * use.stores * span),
                "most_tokens": use.most_tokens,
                "occupancy": _share(use.most_tokens, tier.capacity_tokens),
                "replaced_tokens": use.replaced_tokens,
                "break_even_tokens": break_even_tokens(tier, pool.profile.batch_time, size) if size else None,
            }
        )
    return facts


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def tier_section(tiers: Sequence[dict[str, Any]]) -> Section:
    head = (
        ("tier", ""), ("of prompts found there", "ratio"), ("loaded, GB", ""), ("stored, GB", ""),
        ("of its read bandwidth", "ratio"), ("of its write bandwidth", "ratio"),
        ("most kept, of its capacity", "ratio"), ("replaced", "tokens"), ("break-even length", "tokens"),
    )  # fmt: skip
    keys = (
        "name", "hit_ratio", "loaded_bytes", "stored_bytes", "read_share", "write_share", "occupancy",
        "replaced_tokens", "break_even_tokens",
    )  # fmt: skip
    found = sum(one["hit_tokens"] for one in tiers)
    share = sum(one["hit_ratio"] or 0.0 for one in tiers)
    sentence = (
        f"{percent(share)} of prompt tokens ({count(found, 'token')}) were found in KV tiers and not in the "
        "engine's own cache. Shares of bandwidth are means over the run; the break-even length is the "
        "shortest beginning of a prompt that is loaded faster than computed, where nothing else moves."
    )
    warnings = tuple(
        f"{one['name']}: no prompt, however long, is loaded faster than an engine computes it"
        for one in tiers
        if one["break_even_tokens"] is None
    )
    scale = {"loaded_bytes": 1e-9, "stored_bytes": 1e-9}
    rows = tuple(tuple(one[key] * scale[key] if key in scale else one[key] for key in keys) for one in tiers)
    return Section("tiers", "KV tiers", sentence, tables=(Table(head, rows),), warnings=warnings)  # type: ignore[arg-type]


def tier_words(cluster: Cluster) -> str:
    """What an assumption says of them."""
    if not cluster.kv_tiers:
        return "no KV tier"
    return "KV tiers: " + ", ".join(
        f"{tier.name} ({'one per engine' if tier.scope == 'engine' else 'one for the cluster'}, "
        f"{tier.capacity_tokens:,} tokens, {tier.read_bytes_per_s / 1e9:g} GB/s read, {tier.overlap})"
        for tier in cluster.kv_tiers
    )
