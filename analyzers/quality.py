"""Is the log fit to use? Every fault with its consequence and its cure, and a verdict over all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentctl.analyzers.base import AnalyzeOptions
from agentctl.analyzers.checks import clock, completeness, links, sessions
from agentctl.analyzers.checks.finding import Finding, Log
from agentctl.analyzers.words import count
from agentctl.present import Fact, Section, Table
from agentctl.trace import Trace

NAME = "quality"
ORDER = 60

CHECKS = (*clock.CHECKS, *links.CHECKS, *completeness.CHECKS, *sessions.CHECKS)
LEVELS = ("fail", "warn", "note")  # worst first


@dataclass(frozen=True)
class Result:
    verdict: str  # fit | fit with caveats | not fit
    findings: tuple[Finding, ...]  # worst first
    checks: int  # that were run
    coverage: dict[str, float]  # share of rows that know each column
    session_source: dict[str, int]  # rows by how their session was found
    session_band: tuple[dict[str, Any], ...]  # sessions by the guard of their derivation
    quarantined_ratio: float | None
    ingest_warnings: tuple[str, ...]


def analyze(trace: Trace, options: AnalyzeOptions) -> Result:
    log = Log(trace)
    found = [finding for check in CHECKS if (finding := check(log))]
    findings = tuple(sorted(found, key=lambda finding: LEVELS.index(finding.level)))
    worst = findings[0].level if findings else "note"
    records, meta = trace.meta["records"], trace.meta
    return Result(
        verdict={"fail": "not fit", "warn": "fit with caveats", "note": "fit"}[worst],
        findings=findings,
        checks=len(CHECKS),
        coverage=meta["coverage"],
        session_source=meta["sessions"]["source"],
        session_band=tuple(meta["sessions"]["band"]),
        quarantined_ratio=records["quarantined"] / records["read"] if records["read"] else None,
        ingest_warnings=tuple(meta["warnings"]),
    )


def describe(result: Result) -> Section:
    by_level = {level: [f for f in result.findings if f.level == level] for level in LEVELS}
    return Section(
        name=NAME,
        title="Fit for use",
        sentence=_sentence(result, by_level),
        facts=(
            Fact("Checks", result.checks, "count",
                 "each finding names what it spoils and how to mend it"),
            Fact("Records that could not be read", result.quarantined_ratio, "ratio",
                 "above 0.1 % the missing ones may change the answer"),
        ),
        tables=_tables(result),
        assumptions=tuple(_in_words(finding) for finding in by_level["note"]),
        warnings=(
            *(_in_words(finding) for level in ("fail", "warn") for finding in by_level[level]),
            *result.ingest_warnings,
        ),
    )  # fmt: skip


def _sentence(result: Result, by_level: dict[str, list[Finding]]) -> str:
    fails, warns = by_level["fail"], by_level["warn"]
    if fails:
        return f"The log is not fit for claims as it is: {'; '.join(f.fact for f in fails)}."
    if warns:
        names = ", ".join(f.check.replace("-", " ") for f in warns)
        return f"The log is fit for use with {count(len(warns), 'caveat')}: {names}."
    return f"The log is fit for use: {count(result.checks, 'check')} found nothing that changes an answer."


def _in_words(finding: Finding) -> str:
    fact = finding.fact[0].upper() + finding.fact[1:]
    return f"{fact}: {finding.consequence}. Cure: {finding.cure}."


def _tables(result: Result) -> tuple[Table, ...]:
    tables = (
        Table(
            (("level", ""), ("check", ""), ("count", "count"), ("share", "ratio")),
            tuple((f.level, f.check, f.count, f.share) for f in result.findings),
            "Findings, worst first",
        ),
        Table(
            (("guard F", "count"), ("sessions", "count"), ("of 2+ turns", "count")),
            tuple((b["max_fanout"], b["sessions"], b["multi_turn"]) for b in result.session_band),
            "How the number of sessions depends on the guard",
        ),
    )
    return tuple(table for table in tables if table.rows)
