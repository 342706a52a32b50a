"""What `phases` says to a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentctl.analyzers.distribution import part
from agentctl.analyzers.words import count, percent
from agentctl.present import Fact, Figure, Section, Table

if TYPE_CHECKING:
    from agentctl.analyzers.phases import Result, SessionClass, TurnClass


def describe(result: Result) -> Section:
    everyone, turns = result.sessions[0], result.later_turns[0]
    return Section(
        name="phases",
        title="Two-phase structure",
        sentence=_sentence(result),
        facts=(
            Fact(
                "Turn 0, share of a session's uncached prefill, median", result.first_turn_share_p50, "ratio",
                f"from {percent(result.first_turn_share_threshold)} a separate first-turn prefill pool pays",
            ),
            Fact(
                "Later turn, share of its prompt already in the session, median",
                result.later_hit_ratio_p50, "ratio",
                f"from {percent(result.later_hit_ratio_threshold)} a turn belongs where its session's KV is",
            ),
            Fact(
                "First turns, share of the trace's uncached prefill",
                result.prefill_share["first_turns"] if result.prefill_share else None, "ratio",
                "the most that a first-turn prefill pool can take over",
            ),
            Fact(
                f"Later turns that append more than {result.long_append_tokens:,} tokens",
                turns.long_append_ratio, "ratio",
                "these disturb decodes like a first turn does; chunk size and placement decide how much",
            ),
        ),
        tables=(_sessions_table(result), _turns_table(result)) if everyone.sessions else (),
        figures=_figures(result) if turns.turns else (),
        assumptions=_assumptions(result),
        warnings=_warnings(result),
    )  # fmt: skip


def _sentence(result: Result) -> str:
    if result.first_turn_share_p50 is None or result.later_hit_ratio_p50 is None:
        return f"Whether sessions have two phases cannot be said: {result.reason}."
    lead = {
        "holds": "The two-phase structure holds",
        "per turn only": "The two-phase structure holds per turn, not per session",
        "per session only": "The two-phase structure holds per session, not per turn",
        "does not hold": "The two-phase structure does not hold",
    }[result.verdict or "does not hold"]
    return (
        f"{lead}: over {count(result.sessions_judged, 'session')} of two or more turns that start new, "
        f"turn 0 takes a median {percent(result.first_turn_share_p50)} of the uncached prefill "
        f"(threshold {percent(result.first_turn_share_threshold)}) and the median later turn finds "
        f"{percent(result.later_hit_ratio_p50)} of its prompt in its session "
        f"(threshold {percent(result.later_hit_ratio_threshold)})."
    )


def _sessions_table(result: Result) -> Table:
    def row(c: SessionClass) -> tuple[Any, ...]:
        prompt, share = c.first_prompt_tokens, c.first_turn_share
        return (
            c.origin, c.sessions, c.multi_turn, part(prompt, "p50"), part(prompt, "p90"),
            part(share, "p10"), part(share, "p50"), part(share, "p90"),
        )  # fmt: skip

    return Table(
        (
            ("sessions that start", ""), ("sessions", "count"), ("of 2+ turns", "count"),
            ("first prompt p50", "tokens"), ("p90", "tokens"),
            ("turn 0 share p10", "ratio"), ("p50", "ratio"), ("p90", "ratio"),
        ),
        tuple(row(c) for c in result.sessions),
        "First turns, by how the session starts",
    )  # fmt: skip


def _turns_table(result: Result) -> Table:
    def row(c: TurnClass) -> tuple[Any, ...]:
        size, hit = c.append_tokens, c.hit_ratio
        return (
            c.kind, c.turns, part(size, "p50"), part(size, "p90"), part(size, "p99"), c.long_append_ratio,
            part(hit, "p10"), part(hit, "p50"),
        )  # fmt: skip

    return Table(
        (
            ("later turns", ""), ("turns", "count"), ("appended p50", "tokens"), ("p90", "tokens"),
            ("p99", "tokens"), ("long", "ratio"), ("hit p10", "ratio"), ("hit p50", "ratio"),
        ),
        tuple(row(c) for c in result.later_turns if c.turns),
        "Later turns",
    )  # fmt: skip


def _figures(result: Result) -> tuple[Figure, ...]:
    return (
        Figure(
            "phases-share", "How much of a session's prefill is its first turn?",
            "share of uncached prefill in turn 0", "share of sessions", (result.share_curve,),
            "A curve that stays low until the right edge means prefill is paid up front. "
            "Sessions cut at the start of the log count their whole history as turn 0.",
            y_unit="ratio",
        ),
        Figure(
            "phases-append", "How much does a later turn add?",
            "uncached tokens of a later turn", "share of turns", (result.append_curve,),
            f"Appends left of {result.long_append_tokens:,} tokens are cheap where the session's KV lives; "
            "the tail to the right is prefill work that a router must place.",
            x_log=True, y_unit="ratio",
        ),
    )  # fmt: skip


def _assumptions(result: Result) -> tuple[str, ...]:
    rules = {
        "blocks": "Uncached prefill = prompt minus the tokens of its block chain that an earlier request of "
        "the same session had, as if nothing were evicted; the previous answer counts as appended.",
        "parent": "No block chains: uncached prefill = prompt minus its parent's prompt; the previous answer "
        "counts as appended, and a prompt shorter than its parent's counts as new whole.",
    }
    return (
        *((rules[result.rule],) if result.rule else ()),
        "Both thresholds are our convention (AnalyzeOptions: first_turn_share, later_hit_share).",
        "Sessions are judged by their main line; sub-agents are counted apart. A turn counts once, by its "
        "first attempt that reached an engine; another branch of a conversation is a turn of its own.",
    )


def _warnings(result: Result) -> tuple[str, ...]:
    starts = {c.origin: c.sessions for c in result.sessions}
    resumed = starts.get("resumed", 0)
    found = []
    if result.rule is None:
        found.append(
            "No reuse inside sessions can be seen: log block hashes, or ids that link a turn to its parent."
        )
    if resumed:
        found.append(
            f"{count(resumed, 'session')} of {starts['all']:,} began before the log did; "
            "they are kept out of the verdict. A longer log moves them in."
        )
    if result.unknown_requests:
        found.append(
            f"{count(result.unknown_requests, 'request')} left out: prompt length or prefix is unknown, "
            "theirs or that of their session's first turn; --map prompt_tokens=FIELD if the log has it."
        )
    return tuple(found)
