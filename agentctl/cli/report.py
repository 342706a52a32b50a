"""`agentctl report`: a run folder, rendered again without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentctl.cli.options import Force, Html


def report(
    ctx: typer.Context,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, written with -o.")],
    html: Html = None,
    force: Force = False,
) -> int:
    """Render a run folder again: on the terminal, as JSON, or as an HTML file."""
    from agentctl.cli.reports import write_report
    from agentctl.result import read_result

    result = read_result(run)
    if html:
        write_report(html, result.document, result.sections, force)
    ctx.obj.result(result.document, result.sections)
    return result.exit_code
