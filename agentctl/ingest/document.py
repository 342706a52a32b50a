"""dataset.json: everything that a reader of a dataset must know about its making."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from agentctl import __version__
from agentctl.ingest.assemble import Assembled
from agentctl.ingest.hashing import HashOptions
from agentctl.ingest.options import IngestOptions
from agentctl.ingest.read import FileReport
from agentctl.schema import TRACE_SCHEMA


def document_of(
    assembled: Assembled, options: IngestOptions, hashing: HashOptions, coverage: dict[str, float]
) -> dict[str, Any]:
    """The content of dataset.json."""
    reports = assembled.rows.reports
    dropped = sum((Counter(report.dropped) for report in reports), Counter[str]()) + Counter(
        assembled.dropped
    )
    is_synthesised = assembled.rows.time_origin == "session"
    return {
        "schema": TRACE_SCHEMA,
        "agentctl_version": __version__,
        "block_tokens": assembled.block_tokens,
        "time_origin_ns": assembled.time_origin_ns,
        "time": {
            "origin": "synthesised" if is_synthesised else assembled.rows.time_origin,
            "tz_assumed": next((report.tz_assumed for report in reports if report.tz_assumed), None),
            "year_assumed": next((report.year_assumed for report in reports if report.year_assumed), None),
            "session_rate_per_min": options.session_rate_per_min if is_synthesised else None,
            "seed": options.seed if is_synthesised else None,
        },
        "files": [
            {
                "name": report.name,
                "sha256": report.sha256,
                "bytes": report.n_bytes,
                "format": report.format,
                "lines": report.n_lines,
                "record_lines": report.n_record_lines,
                "blank_lines": report.n_blank_lines,
                "header_lines": report.n_header_lines,
                "other_lines": report.n_other_lines,
                "quarantined_lines": report.n_quarantined_lines,
                "records": report.n_records,
                "events": report.n_events,
            }
            for report in reports
        ],
        "join": assembled.joined and assembled.joined.document,
        "records": {
            "read": sum(report.n_records for report in reports),
            "rows": len(assembled.rows),
            "quarantined": sum(report.quarantine.count for report in reports),
            "quarantined_by_reason": dict(sum((r.quarantine.reasons for r in reports), Counter())),
            "dropped": dict(dropped),
            "joined": assembled.joined.n_joined if assembled.joined else 0,
        },
        "hash": _describe_hashes(reports, hashing),
        "names": {"hashed": hashing.names, "salt": hashing.salt_id if hashing.names else None},
        "sessions": assembled.sessions,
        "coverage": coverage,
        "chain_conflicts": assembled.chain_conflicts,
        "warnings": sorted(
            {
                *assembled.warnings,
                *(text for report in reports for text in report.warnings),
                *_needless(options, reports),
            }
        ),
    }


def _needless(options: IngestOptions, reports: list[FileReport]) -> Iterator[str]:
    """What the user said about times that say it themselves."""
    if options.timezone and not any(report.tz_assumed for report in reports):
        yield "--timezone changed nothing: all times say their zone, or count from the start of the log"
    if options.year and not any(report.year_assumed for report in reports):
        yield "--year changed nothing: no log is without years"


def _describe_hashes(reports: list[FileReport], hashing: HashOptions) -> dict[str, Any] | None:
    """Where block chains come from; a salt counts where this run made hashes."""
    for report in sorted(reports, key=lambda report: not report.has_ids):
        if report.has_ids or report.has_texts:
            own = {} if report.hash_kind == "engine" else hashing.describe()
            return {"kind": report.hash_kind, "scope": report.hash_scope, **own}
    return None
