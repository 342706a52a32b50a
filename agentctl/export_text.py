"""What `agentctl export` says about the file that it wrote."""

from __future__ import annotations

from typing import Any

from agentctl.analyzers.words import count, seconds
from agentctl.present import Fact, Section

VISIBLE = (
    "the file still shows prompt and output lengths, which prompts begin alike, arrivals to the time "
    "resolution, and the number and size of sessions: who knows the lengths "
    "and the time of a request can find it again"
)
ABSENT = (
    "not in the file: statuses, durations and gaps (replay is by timestamps), attempts, sub-agent paths, "
    "tenants, models, engines, reported cache hits"
)


def describe(document: dict[str, Any]) -> tuple[Section, ...]:
    """Sections for people from the document of an export."""
    left_out, sessions = document["left_out"], document["sessions"]
    n_left_out = sum(left_out.values())
    grouped = f" in {count(sessions, 'session')}" if sessions else ""
    resolution = document["time_resolution_s"]
    sentence = (
        f"{count(document['requests'], 'request')}{grouped} written as {document['format']}, times to "
        f"{seconds(resolution)}; "
        + (f"{count(n_left_out, 'request')} left out" if n_left_out else "nothing was left out")
    )
    times = document["distinct_times"]
    facts = [
        Fact("left out", n_left_out, "count", ", ".join(f"{why} {n:,}" for why, n in left_out.items())),
        Fact("sessions of two or more requests", document["multi_turn"], "count"),
        Fact("distinct blocks", document["blocks"], "blocks"),
        Fact("block size", document["block_tokens"], "tokens", "not in the file: say it beside it"),
        Fact(
            "distinct arrivals", times["after"], "count", f"{times['before']:,} before; their order is kept"
        ),
        Fact("without block ids", document["unknown_blocks"], "count", "reuse is unknown there"),
        Fact("without output length", document["unknown_output"], "count", "null in the file"),
        Fact("of sub-agents", document["sub_agent_requests"], "count", "become requests of their session"),
        Fact("retries", document["retries"], "count", "become requests like others, at the same turn"),
        Fact(
            "linked only to keep a session together",
            document["linked_to_keep_the_session"],
            "count",
            "their prompts do not extend the request they name",
        ),
    ]
    return (
        Section(
            "export",
            "Export",
            sentence,
            facts=tuple(facts),
            assumptions=(VISIBLE, ABSENT),
            warnings=tuple(_warnings(document)),
        ),
    )


def _warnings(document: dict[str, Any]) -> list[str]:
    if document["hash_scope"] != "session":
        return []
    return [
        "block ids compare only within a session here, and the file cannot say so: read in again it shows no "
        "reuse across sessions, where it is unknown"
    ]
