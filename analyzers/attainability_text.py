"""What `attainability` says to a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentctl.analyzers.words import percent
from agentctl.present import Fact, Section, Table

if TYPE_CHECKING:
    from agentctl.analyzers.attainability import Result, Unattainable


def describe(result: Result) -> Section:
    cold, best = result.ttft_cold_s, result.ttft_ideal_hit_s
    return Section(
        name="attainability",
        title="Attainable objectives",
        sentence=_sentence(result),
        facts=() if result.reason else (
            Fact("TTFT on an idle engine, empty cache, p95", cold.p95 if cold else None, "s",
                 "no first turn can be faster"),
            Fact("TTFT on an idle engine, ideal cache, p95", best.p95 if best else None, "s",
                 "what the best cache leaves to compute: a much tighter objective needs a faster engine"),
        ),
        tables=_tables(result),
        assumptions=() if result.reason else (
            f"One request alone on an engine ({result.engine or 'unnamed'}) that takes "
            f"{result.max_num_batched_tokens:,} tokens per batch; no queue, no transfer, no other sequence.",
            "Ideal cache: every whole block that an earlier request of the trace had, and the answer that a "
            "prompt goes on from, never evicted.",
        ),
        warnings=_warnings(result),
    )  # fmt: skip


def _sentence(result: Result) -> str:
    if result.reason:
        return f"Whether the objectives are attainable is not tested: {result.reason}."
    if not result.objectives:
        return f"No objective is about single requests: {', '.join(result.not_evaluated)}."
    parts = [f"{slo.slo}: {_shares(slo)}" for slo in result.objectives]
    return f"Requests that miss the objective even on an idle engine: {'; '.join(parts)}."


def _shares(slo: Unattainable) -> str:
    if slo.cold_ratio is None:
        return "counts no request"
    text = f"{percent(slo.cold_ratio)} with an empty cache"
    return (
        text if slo.ideal_hit_ratio is None else f"{text}, {percent(slo.ideal_hit_ratio)} with an ideal one"
    )


def _tables(result: Result) -> tuple[Table, ...]:
    tables = (
        Table(
            (
                ("objective", ""), ("requests", "count"), ("missed, empty cache", "ratio"),
                ("missed, ideal cache", "ratio"), ("may miss", "ratio"), ("out of reach", ""),
            ),
            tuple(
                (s.slo, s.requests, s.cold_ratio, s.ideal_hit_ratio, s.allowed_ratio, s.is_out_of_reach)
                for s in result.objectives
            ),
            "Misses on an idle engine",
        ),
        Table(
            (
                ("prompts from", "tokens"), ("requests", "count"), ("any missed, empty cache", "ratio"),
                ("any missed, ideal cache", "ratio"),
            ),
            tuple(
                (b.prompt_tokens_from, b.requests, b.cold_ratio, b.ideal_hit_ratio) for b in result.buckets
            ),
            "By prompt length",
        ),
    )  # fmt: skip
    return tuple(table for table in tables if table.rows)


def _warnings(result: Result) -> tuple[str, ...]:
    found = [
        f"{slo.slo} cannot be met by any policy on this engine: {percent(slo.ideal_hit_ratio or 0)} of the "
        f"requests miss it alone with an ideal cache, {percent(slo.allowed_ratio or 0)} may. Loosen it "
        "(--slo) or use a faster engine (--profile)."
        for slo in result.objectives
        if slo.is_out_of_reach
    ]
    if result.not_evaluated:
        found.append(f"Not tested, as one request alone has no such time: {', '.join(result.not_evaluated)}.")
    if result.skipped_requests and not result.reason:
        found.append(
            f"{result.skipped_requests:,} requests without token counts are left out "
            "(--map prompt_tokens=FIELD)."
        )
    return tuple(found)
