"""What is missing: fields, records, sessions cut at the edges, and what a filter took away."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from agentctl.analyzers.checks.finding import Check, Finding, Level, Log
from agentctl.analyzers.distribution import quantiles
from agentctl.analyzers.elapsed import DECIMALS, elapsed
from agentctl.analyzers.words import count, percent

MANY_TRUNCATED = 0.10  # of the sessions of two or more turns
MANY_QUARANTINED = 0.001  # of the records
MANY_DROPPED = 0.01  # of the records
PILE = 0.02  # of the prompts at a limit
AT_LIMIT, BELOW_LIMIT = (
    0.99,
    0.90,
)  # of the longest prompt: a tail has fewer above the first than between them
ENOUGH_ROWS = 100  # to speak of what is absent


class Field(NamedTuple):
    column: str
    level: Level
    enough: float  # share of rows that must have it
    consequence: str
    cure: str


FIELDS = (
    Field("prompt_tokens", "fail", 1.0, "they cannot be simulated", "--map prompt_tokens=FIELD"),
    Field("output_tokens", "fail", 1.0, "they cannot be simulated", "--map output_tokens=FIELD"),
    Field("tip_node", "warn", 1.0, "their reuse is unknown, not 0", "log block hashes, or ingest prompts"),
    Field(
        "end_s", "warn", 0.9, "think times and concurrency are unknown; replay takes the logged arrivals",
        "log durations (--map e2e_s=FIELD)",
    ),
    Field("ttft_s", "note", 0.9, "TTFT cannot be compared with the log", "log the first token's time"),
    Field("instance", "note", 0.99, "the logged placement cannot be replayed", "log which engine served"),
    Field("model", "note", 1.0, "several models would be taken for one", "--map model=FIELD"),
)  # fmt: skip


def field_check(field: Field) -> Check:
    def check(log: Log) -> Finding | None:
        rows = log.rows
        missing = rows[field.column].null_count()
        if not rows.height or missing <= (1 - field.enough) * rows.height:
            return None
        share = missing / rows.height
        return Finding(
            f"missing-{field.column}",
            field.level,
            f"{count(missing, 'request')} ({percent(share)}) have no {field.column}",
            field.consequence,
            field.cure,
            missing,
            share,
        )

    return check


def edges(log: Log) -> Finding | None:
    """Sessions that began before the log, or may go on after it.

    The end is taken as open when the log stops sooner after a session's last request than nine of ten turns
    take to follow. With synthesised starts only the beginning can be told.
    """
    several = log.sessions.filter(pl.col("requests") > 1)
    if not several.height:
        return None
    cut = several["origin"].is_in(["resumed", "orphan"]).to_numpy()
    began = int(cut.sum())
    if not log.is_synthesised:
        step = pl.col("arrival_s").diff().over("session_id", "agent_path")
        steps = log.rows.select(step.alias("step"))["step"].drop_nulls().round(DECIMALS).to_numpy()
        patience = quantiles(steps, (0.9,))[0] if steps.size else 0.0
        last = float(log.rows["arrival_s"][-1])
        cut |= elapsed(last, several["last_s"].to_numpy()) < patience
    truncated = int(cut.sum())
    if not truncated:
        return None
    share = truncated / several.height
    open_end = f", {truncated - began:,} may go on after it" if not log.is_synthesised else ""
    return Finding(
        "truncated-sessions",
        "warn" if share > MANY_TRUNCATED else "note",
        f"{count(truncated, 'session')} of {several.height:,} with two or more turns are cut: "
        f"{began:,} began before the log{open_end}",
        "first turns look too long, sessions too short, and first-turn figures are wrong for them",
        "use a longer log",
        truncated,
        share,
    )


def quarantine(log: Log) -> Finding | None:
    records = log.meta["records"]
    if not records["quarantined"]:
        return None
    share = records["quarantined"] / max(records["read"], 1)
    return Finding(
        "quarantined",
        "warn" if share > MANY_QUARANTINED else "note",
        f"{percent(share)} of the {count(records['read'], 'record')} could not be read",
        "load and reuse are understated, and turns after a lost one look new",
        "see NAME.quarantine.jsonl for places and reasons",
        int(records["quarantined"]),
        share,
    )


def dropped(log: Log) -> Finding | None:
    records = log.meta["records"]
    n = sum(records["dropped"].values())
    if not n:
        return None
    reasons = ", ".join(f"{reason} {k:,}" for reason, k in sorted(records["dropped"].items()))
    share = n / max(records["read"], 1)
    return Finding(
        "dropped",
        "warn" if share > MANY_DROPPED else "note",
        f"{count(n, 'record')} of {records['read']:,} were left out ({reasons})",
        "what a filter takes away changes reuse: one published corpus moved from 86 % to 66-70 %",
        "compare with a run that keeps them",
        n,
        share,
    )


def only_finished(log: Log) -> Finding | None:
    if log.rows.height < ENOUGH_ROWS or not bool((log.rows["status"] == "ok").all()):
        return None
    return Finding(
        "only-finished",
        "note",
        f"none of the {log.rows.height:,} requests is logged as failed",
        "if the log holds finished requests only, load and tail latency are understated",
        "make sure that errors, aborts and timeouts are logged too",
    )


def pile_at_the_limit(log: Log) -> Finding | None:
    """Many prompts right below the longest: a context limit or a filter, not a tail."""
    prompt = log.rows["prompt_tokens"].drop_nulls().to_numpy()
    if prompt.size < ENOUGH_ROWS:
        return None
    limit = int(prompt.max())
    n = int((prompt >= AT_LIMIT * limit).sum())
    n_below = int((prompt >= BELOW_LIMIT * limit).sum()) - n
    if n <= PILE * prompt.size or not 0 < n_below < n:  # none below: a log of a few fixed lengths
        return None
    return Finding(
        "prompts-at-limit",
        "warn",
        f"{count(n, 'prompt')} ({percent(n / prompt.size)}) lie within 1 % of the longest, {limit:,} tokens",
        "if a limit cut or filtered out longer ones, reuse is lower and the heaviest requests are hidden",
        "ingest without the limit if there was one, or say in every result that it was there",
        n,
        n / prompt.size,
    )


def estimated_tokens(log: Log) -> Finding | None:
    source = log.rows["token_source"].cast(pl.String)
    n = int((source == "estimated").sum())
    if not n:
        return None
    return Finding(
        "estimated-tokens",
        "warn",
        f"token counts of {count(n, 'request')} ({percent(n / log.rows.height)}) are estimates",
        "service times are off by the same factor",
        "log usage, or ingest with the model's tokenizer",
        n,
        n / log.rows.height,
    )


CHECKS: tuple[Check, ...] = (
    *(field_check(field) for field in FIELDS),
    edges,
    quarantine,
    dropped,
    only_finished,
    pile_at_the_limit,
    estimated_tokens,
)
