"""What `agentctl ingest` says about a dataset: kept, set aside, dropped, and how sessions were found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentctl.analyzers.words import count
from agentctl.present import Fact, Section, Table


def describe(document: dict[str, Any]) -> tuple[Section, ...]:
    """Sections for people from dataset.json."""
    records, sessions = document["records"], document["sessions"]
    sources = ", ".join(f"{name} {rows:,}" for name, rows in sessions["source"].items())
    formats = " and ".join(sorted({file["format"] for file in document["files"]}))
    n_events = sum(file["events"] for file in document["files"])
    lost = records["quarantined"] + sum(records["dropped"].values())
    sentence = (
        f"{count(records['rows'], 'request')} in {count(sessions['count'], 'session')} "
        f"({sessions['multi_turn']:,} of two or more requests), read as {formats}; "
        + (f"{count(lost, 'record')} left out" if lost else "nothing was left out")
    )
    set_aside, dropped = _by_reason(records["quarantined_by_reason"]), _by_reason(records["dropped"])
    facts = (
        Fact("records read", records["read"], "count", "rows + set aside + dropped + joined"),
        Fact("rows", records["rows"], "count"),
        Fact("set aside as bad", records["quarantined"], "count", set_aside),
        Fact("dropped", sum(records["dropped"].values()), "count", dropped),
        Fact(
            "block size",
            document["block_tokens"],
            "tokens",
            "as the files say, as given, or from the lengths",
        ),
        Fact("session evidence", sources, "", "rows by what names their session"),
        *_session_facts(sessions),
        Fact("time", _time(document), "", ""),
        *([Fact("engine events", n_events, "count", "gauges, in events.parquet")] if n_events else []),
        *_joined(document),
    )
    files = Table(
        columns=(("file", ""), ("format", ""), ("lines", "count"), ("record lines", "count"),
                 ("blank", "count"), ("header", "count"), ("other", "count"), ("bad", "count"),
                 ("records", "count")),
        rows=tuple(
            (file["name"], file["format"], file["lines"], file["record_lines"], file["blank_lines"],
             file["header_lines"], file["other_lines"], file["quarantined_lines"], file["records"])
            for file in document["files"]
        ),
        title="lines = record lines + blank + header + other + bad",
    )  # fmt: skip
    return (
        Section(
            "ingest", "Ingest", sentence, facts=facts, tables=(files,), warnings=tuple(document["warnings"])
        ),
    )


def _joined(document: dict[str, Any]) -> tuple[Fact, ...]:
    if not document["join"]:
        return ()
    join, records = document["join"], document["records"]
    shared = f"requests in two logs or more, of {join['requests']:,}, by {join['key']}"
    only = _by_reason(join["only_in"])
    conflicts = _by_reason(join["conflicts"])
    return (
        Fact("joined", join["matched"], "count", shared),
        Fact("rows put into those of other logs", records["joined"], "count"),
        Fact("requests of one log alone", sum(join["only_in"].values()), "count", only),
        Fact("values that differ", sum(join["conflicts"].values()), "count", conflicts),
    )


def _session_facts(sessions: dict[str, Any]) -> Iterator[Fact]:
    """How the sessions were found and how far they can be trusted; only what applies."""
    if test := sessions.get("id_test"):
        says = "used" if test["accepted"] else f"not used: {test['reason']}"
        yield Fact("session ids of the log", says, "", "tested against the prompts and times")
    if links := sessions.get("message_links"):
        kinds = ", ".join(f"{kind} {n:,}" for kind, n in links.items() if n)
        yield Fact("message chains", kinds, "", "rows by how their messages continue earlier ones")
    if band := sessions.get("band"):
        counts = ", ".join(f"{row['sessions']:,} at F = {row['max_fanout']}" for row in band)
        yield Fact("block chains", counts, "", "sessions by the fan-out at which a prefix counts as shared")
    if indicator := sessions.get("turn_indicator"):
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in indicator["differ"].items())
        note = (
            f"of {indicator['rows']:,} requests; first turns agree on {indicator['first_turn_agreement']:.1%}"
        )
        note += f"; differ after: {reasons}" if reasons else ""
        yield Fact("turn = assistant messages", indicator["equal_turn"], "ratio", note)


def _by_reason(reasons: dict[str, int]) -> str:
    return ", ".join(f"{reason} {n:,}" for reason, n in sorted(reasons.items()))


def _time(document: dict[str, Any]) -> str:
    time = document["time"]
    if time["origin"] == "synthesised":
        return f"session starts synthesised, {time['session_rate_per_min']:g} per minute, seed {time['seed']}"
    assumed = f", zone assumed {time['tz_assumed']}" if time["tz_assumed"] else ""
    assumed += f", first year {time['year_assumed']}" if time["year_assumed"] else ""
    return f"{time['origin']}{assumed}"
