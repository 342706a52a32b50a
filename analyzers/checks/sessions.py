"""Are the sessions real, or inferred, and how far does the inference carry?"""

from __future__ import annotations

import polars as pl

from agentctl.analyzers.checks.finding import Check, Finding, Log
from agentctl.analyzers.words import percent

INFERRED = ("message_chain", "block_chain")
WIDE_BAND = 0.10  # spread of the session count over the guards, relative to the count in use


def inferred(log: Log) -> Finding | None:
    source = log.rows["session_source"].cast(pl.String)
    guessed = source.is_in(INFERRED)
    n = int(guessed.sum())
    if not n:
        return None
    conf = float(log.rows.filter(guessed)["session_conf"].mean() or 0.0)  # type: ignore[arg-type]
    spread = _spread(log)
    band = ", ".join(f"{b['sessions']:,} at F = {b['max_fanout']}" for b in log.meta["sessions"]["band"])
    return Finding(
        "inferred-sessions",
        "warn" if (source == "block_chain").any() or (spread or 0) > WIDE_BAND else "note",
        f"sessions of {percent(n / log.rows.height)} of the requests are inferred from what prompts share "
        f"(mean confidence {conf:.2f})" + (f"; sessions by guard: {band}" if band else ""),
        "whatever depends on turns (session routing, think times, intra-session reuse) depends on the guess",
        "log a session id (a header or a field), or run with --sessions none to see what changes",
        n,
        n / log.rows.height,
    )


def _spread(log: Log) -> float | None:
    counts = [b["sessions"] for b in log.meta["sessions"]["band"]]
    return (max(counts) - min(counts)) / max(log.meta["sessions"]["count"], 1) if counts else None


def rejected_ids(log: Log) -> Finding | None:
    test = log.meta["sessions"].get("id_test") or {}
    if test.get("accepted", True) or not test.get("reason"):
        return None
    return Finding(
        "rejected-session-ids",
        "warn",
        f"the session ids of the log are not used: {test['reason']}",
        "sessions are derived from prompts instead",
        "fix the ids at their source, or insist with --sessions explicit",
    )


def no_sessions(log: Log) -> Finding | None:
    if log.meta["sessions"]["multi_turn"] or not log.rows.height:
        return None
    return Finding(
        "no-sessions",
        "warn",
        "no session has two requests",
        "policies that keep a session's turns together have nothing to keep",
        "log a session id, or block hashes from which sessions can be derived",
    )


CHECKS: tuple[Check, ...] = (inferred, rejected_ids, no_sessions)
