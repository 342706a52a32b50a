"""The library behind `agentctl analyze`: run every analyzer over a trace.

analysis = analyze_trace(open_trace(Path("day.trace")))
analysis.document["phases"]["verdict"], analysis.sections[0].sentence
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agentctl import __version__
from agentctl.analyzers.base import AnalyzeOptions, Analyzer, analyzers, as_json
from agentctl.engines import Engine, in_order
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
    trace: Trace,
    options: AnalyzeOptions | None = None,
    parts: tuple[Analyzer, ...] | None = None,
    engine: Engine | None = None,
) -> Analysis:
    """Every analyzer's result (or those of `parts`) under its name, with what identifies the trace.

    engine  where analyzers work, `engine.workers` at a time; default: here, one after the other. Machines of
            a cluster must see the dataset under the same path
    """
    options = options or AnalyzeOptions()
    options = replace(options, objectives=options.objectives or parse_slos(options.slos))
    chosen = analyzers() if parts is None else parts
    if engine is None or engine.workers == 1:
        results = [(part, part.analyze(trace, options)) for part in chosen]
    else:
        ask = partial(_analyze_alone, Trace(trace.path.absolute(), trace.meta), options)
        names = [part.NAME for part in chosen]
        results = list(zip(chosen, in_order(ask, names, engine), strict=True))
    return Analysis(
        document={**_about(trace), **{part.NAME: as_json(result) for part, result in results}},
        sections=tuple(part.describe(result) for part, result in results),
    )


def _analyze_alone(trace: Trace, options: AnalyzeOptions, name: str) -> Any:
    """In a worker, which reads for itself what it needs of the dataset."""
    return next(part for part in analyzers() if name == part.NAME).analyze(trace, options)


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
