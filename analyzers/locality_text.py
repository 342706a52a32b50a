"""What `locality` says to a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentctl.analyzers.words import percent, seconds
from agentctl.present import Curve, Fact, Figure, Section, Table

if TYPE_CHECKING:
    from agentctl.analyzers.locality import Result

NEARLY = 0.95  # of the ideal hit ratio: a timeout that reaches it is long enough


def describe(result: Result) -> Section:
    return Section(
        name="locality",
        title="Locality in time",
        sentence=_sentence(result),
        facts=_facts(result),
        tables=_tables(result),
        figures=_figures(result),
        assumptions=_assumptions(result),
        warnings=_warnings(result),
    )


def _sentence(result: Result) -> str:
    parts = []
    if result.reuse_within:
        shares = ", ".join(f"{percent(r.token_ratio)} within {r.within_s:g} s" for r in result.reuse_within)
        parts.append(f"of the reused tokens, {shares} of their last use")
    gap = result.gaps[0].gap_s if result.gaps else None
    if gap:
        parts.append(
            f"a session comes back after a median {seconds(gap.p50)} "
            f"(p90 {seconds(gap.p90)}, p99 {seconds(gap.p99)})"
        )
    if not parts:
        return f"Locality cannot be told: {result.reuse_reason}, and {result.gaps_reason}."
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _facts(result: Result) -> tuple[Fact, ...]:
    gap = result.gaps[0].gap_s if result.gaps else None
    enough = _long_enough(result)
    return (
        Fact("Gap before a turn, p50", gap.p50 if gap else None, "s",
             "half of the turns come back later: for them KV must live longer"),
        Fact("Gap before a turn, p90", gap.p90 if gap else None, "s",
             "a shorter affinity lifetime forgets more than one turn in ten"),
        Fact(f"Shortest tested idle timeout with {percent(NEARLY)} of the ideal hits", enough, "s",
             "longer keeps memory busy for little; shorter recomputes"),
        Fact("Hit ratio without a timeout", result.hit_token_ratio_forever, "ratio",
             "the most that any lifetime finds of prompts; KV of answers comes on top"),
    )  # fmt: skip


def _long_enough(result: Result) -> float | None:
    goal = NEARLY * (result.hit_token_ratio_forever or 0)
    return next((t.timeout_s for t in result.idle_timeouts if goal and t.hit_token_ratio >= goal), None)


def _tables(result: Result) -> tuple[Table, ...]:
    tables = (
        Table(
            (("gaps", ""), ("turns", "count"), ("p50", "s"), ("p90", "s"), ("p99", "s"), ("max", "s")),
            tuple(
                (g.kind, g.turns, g.gap_s.p50, g.gap_s.p90, g.gap_s.p99, g.gap_s.max)
                for g in result.gaps if g.gap_s
            ),
            "Gaps before a turn, by kind",
        ),
        Table(
            (("idle timeout", "s"), ("hit", "ratio"), ("idle KV, mean", "tokens")),
            tuple((t.timeout_s, t.hit_token_ratio, t.idle_tokens_mean) for t in result.idle_timeouts),
            "What an idle timeout keeps and costs",
        ),
    )  # fmt: skip
    return tuple(table for table in tables if table.rows)


def _figures(result: Result) -> tuple[Figure, ...]:
    figures = []
    if result.idle_timeouts:
        timeouts = tuple(t.timeout_s for t in result.idle_timeouts)
        hits = tuple(t.hit_token_ratio for t in result.idle_timeouts)
        curves = [Curve("dropped when idle for x", timeouts, hits)]
        if result.hit_token_ratio_forever is not None:
            level = (result.hit_token_ratio_forever,) * len(timeouts)
            curves.append(Curve("never dropped", timeouts, level))
        figures.append(
            Figure(
                "locality-timeout", "How long must KV be kept?",
                "idle timeout, s", "hit share of prompt tokens", tuple(curves),
                "Choose the knee. Memory is not limited here; where it binds first, the LRU curve decides.",
                x_log=True, y_unit="ratio",
            )
        )  # fmt: skip
    if result.gap_curves:
        figures.append(
            Figure(
                "locality-gaps", "How long until a session comes back?",
                "gap before a turn, s", "share of turns", result.gap_curves,
                "Steep and early: tools answer at once and KV on the engine is enough. A long tail is where "
                "a KV tier, or recomputing, comes in.",
                x_log=True, y_unit="ratio",
            )
        )  # fmt: skip
    return tuple(figures)


def _assumptions(result: Result) -> tuple[str, ...]:
    texts = [
        "Reuse is counted in prompt tokens; a block's last use is the latest earlier request of any session, "
        "and the time since then runs from arrival to arrival.",
        "Idle time runs from the end of that request (its arrival where the end is unknown); no size limit.",
        "Requests that an engine did not take in (errors, rejections) neither count nor keep KV alive.",
    ] if result.idle_timeouts else []  # fmt: skip
    if result.gaps:
        texts.append("A gap runs from the end of the request that a turn waited for to its arrival.")
    if result.starts == "synthesised":
        texts.append(
            "Session starts are synthesised: intervals between sessions are not real, those inside are."
        )
    return tuple(texts)


def _warnings(result: Result) -> tuple[str, ...]:
    found = []
    if result.reuse_reason:
        cure = " Log block hashes, or ingest a log with prompts." if result.known_end_ratio is None else ""
        found.append(f"No reuse: {result.reuse_reason}.{cure}")
    if result.gaps_reason:
        found.append(
            f"No gaps: {result.gaps_reason}. Log durations (--map e2e_s=FIELD) and session ids; without them "
            "a closed-loop replay must take the logged arrivals."
        )
    if result.known_end_ratio and result.known_end_ratio < 1:
        found.append(
            f"The end of {percent(1 - result.known_end_ratio)} of the requests is unknown: their KV counts "
            "as idle from the arrival, which lengthens timeouts. Log durations (--map e2e_s=FIELD)."
        )
    return tuple(found)
