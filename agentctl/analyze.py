"""The library behind `agentctl analyze`: run every analyzer over a trace.

analysis = analyze_trace(open_trace(Path("day.trace")))
analysis.document["phases"]["verdict"], analysis.sections[0].sentence
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from agentctl import __version__
from agentctl.analyzers.base import AnalyzeOptions, Analyzer, analyzers, as_json
from agentctl.present import Section
from agentctl.slo import parse_slos
from agentctl.trace import Trace

ANALYZE_SCHEMA = "agentctl/analyze/1"


@dataclass(frozen=True)
class Analysis:
    """`document` is what `--json` prints; `sections` say the same to a reader, in report order."""

    document: dict[str, Any]
    sections: tuple[Section, ...]


def analyze_trace(
    trace: Trace, options: AnalyzeOptions | None = None, parts: tuple[Analyzer, ...] | None = None
) -> Analysis:
    """Every analyzer's result (or those of `parts`) under its name, with what identifies the trace."""
    options = options or AnalyzeOptions()
    options = replace(options, objectives=options.objectives or parse_slos(options.slos))
    results = [(part, part.analyze(trace, options)) for part in (analyzers() if parts is None else parts)]
    return Analysis(
        document={**_about(trace), **{part.NAME: as_json(result) for part, result in results}},
        sections=tuple(part.describe(result) for part, result in results),
    )


def _about(trace: Trace) -> dict[str, Any]:
    sessions = trace.meta["sessions"]
    return {
        "schema": ANALYZE_SCHEMA,
        "requests": trace.n_requests,
        "sessions": {key: sessions[key] for key in ("count", "multi_turn", "source")},
        "block_tokens": trace.block_tokens,
        "provenance": {
            "trace": trace.meta.get("name") or trace.name,
            "trace_digest": trace.digest,
            "agentctl_version": __version__,
        },
    }
