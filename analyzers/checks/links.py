"""Are ids, links and block chains sound?"""

from __future__ import annotations

import numpy as np
import polars as pl

from agentctl.analyzers.checks.finding import Check, Finding, Log
from agentctl.analyzers.columns import numbered
from agentctl.analyzers.strands import weave
from agentctl.analyzers.stretches import stretches
from agentctl.analyzers.words import count, percent

MUCH_CROSSED = 0.01  # of the reused blocks


def duplicate_ids(log: Log) -> Finding | None:
    repeated = log.rows.height - log.rows["request_id"].n_unique()
    if not repeated:
        return None
    return Finding(
        "duplicate-ids",
        "fail",
        f"{count(repeated, 'request')} repeat the id of another",
        "links between turns are ambiguous and work is counted twice",
        "ingest each log once, not both x.jsonl and x.jsonl.gz",
        repeated,
        repeated / log.rows.height,
    )


def broken_links(log: Log) -> Finding | None:
    """Parents that the trace does not hold, or holds only later."""
    rows = log.rows.select("request_id", "parent_request_id").with_row_index("row")
    parents = rows.select(parent_request_id="request_id", parent_row="row").unique("parent_request_id")
    linked = rows.filter(pl.col("parent_request_id").is_not_null())
    linked = linked.join(parents, on="parent_request_id", how="left")
    broken = int(linked.select((pl.col("parent_row") < pl.col("row")).fill_null(False).not_().sum()).item())
    if not broken:
        return None
    return Finding(
        "broken-links",
        "warn",
        f"{count(broken, 'turn')} of {linked.height:,} point to a parent that is missing or later",
        "they are replayed as if they opened their session",
        "ingest the whole log: a sample of requests cuts sessions apart",
        broken,
        broken / linked.height,
    )


def chain_conflicts(log: Log) -> Finding | None:
    conflicts = int(log.meta["chain_conflicts"])
    if not conflicts:
        return None
    return Finding(
        "chain-conflicts",
        "fail",
        f"{count(conflicts, 'block id')} follow more than one predecessor",
        "ids do not name whole prefixes, so the reuse shown is a lower bound of unknown quality",
        "log chained hashes (each block's hash covers all before it)",
        conflicts,
    )


def chain_lengths(log: Log) -> Finding | None:
    """A chain has floor or ceil(prompt / block) blocks."""
    block = log.trace.block_tokens
    if not block:
        return None
    known = log.rows.filter(pl.col("n_blocks").is_not_null() & pl.col("prompt_tokens").is_not_null())
    missing = pl.col("prompt_tokens") - pl.col("n_blocks").cast(pl.Int64) * block
    wrong = int(known.select((missing.abs() >= block).sum()).item())
    if not wrong:
        return None
    return Finding(
        "chain-lengths",
        "warn",
        f"{count(wrong, 'request')} have more or fewer blocks of {block} tokens than their prompt",
        "their reuse is wrong by the difference",
        "check the block size (--block-tokens) and that prompt_tokens counts cached tokens too",
        wrong,
        wrong / known.height,
    )


def models(log: Log) -> Finding | None:
    """Models never share KV: a chain that crosses them promises hits that cannot be."""
    rows = log.rows.filter(pl.col("tip_node") > 0)
    n_models = rows["model"].n_unique()
    if n_models < 2:
        return None
    tip, model = rows["tip_node"].to_numpy(), numbered(rows["model"])
    found = stretches(weave(log.trace.tree.parent, log.trace.tree.depth, tip), tip)
    crossed = int(found.blocks[model[found.request()] != model[found.previous]].sum(dtype=np.int64))
    reused = int(found.blocks.sum(dtype=np.int64))
    if not crossed:
        return None
    share = crossed / reused
    return Finding(
        "models-share-blocks",
        "warn" if share > MUCH_CROSSED else "note",
        f"{percent(share)} of the reused blocks were last used by another of {n_models} models",
        "models never share KV: reuse is overstated by up to that share when they run on separate engines",
        "analyze the log of each model alone",
        crossed,
        share,
    )


CHECKS: tuple[Check, ...] = (duplicate_ids, broken_links, chain_conflicts, chain_lengths, models)
