"""`agentctl export`: a trace that can be shared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from agentctl.cli.options import Force, Trace


def export(
    ctx: typer.Context,
    trace: Trace,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE.jsonl", help="File to write; .gz and .zst compress it."),
    ],
    anonymize: Annotated[
        bool,
        typer.Option("--anonymize", help="Required: ids renumbered, times cut, names dropped."),
    ] = False,
    format: Annotated[
        Literal["bailian", "mooncake"] | None,
        typer.Option(
            metavar="bailian|mooncake", help="Layout; default: bailian (linked) if there are sessions."
        ),
    ] = None,
    time_resolution: Annotated[
        float,
        typer.Option(min=0.001, max=86400, metavar="SECONDS", help="Times are cut to multiples of it."),
    ] = 1.0,
    force: Force = False,
) -> None:
    """Write an anonymised trace in the layout of the public ones: lengths, times, sessions, block ids.

    Read in again it gives the same reuse, sessions and turns. What it still shows is said with the result.
    """
    from agentctl.cli.inputs import open_input
    from agentctl.errors import UsageError
    from agentctl.export import export_trace
    from agentctl.files import check_output

    if not anonymize:
        raise UsageError(
            "writes anonymised traces only",
            place="export",
            expected="--anonymize",
            hint="--anonymize renumbers ids, cuts times to --time-resolution and drops every name",
        )
    check_output(output, force=force, mark=None)
    with open_input(trace, ctx.obj) as opened:
        report = export_trace(opened, output, layout=format, time_resolution_s=time_resolution, force=force)
    ctx.obj.result(report.document, report.sections)
    ctx.obj.note(f"next: {_ingest_again(output, report.document)}")


def _ingest_again(output: Path, document: dict) -> str:
    """The command that reads the file as it is meant."""
    size = f" --block-tokens {document['block_tokens']}" if document["block_tokens"] else ""
    named = " --sessions explicit" if document["format"] == "mooncake" and document["sessions"] else ""
    return f"agentctl ingest {output}{size}{named} -o NAME.trace"
