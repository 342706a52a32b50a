"""`agentctl calibrate steps`: batch-time coefficients from what an engine logged of each of its steps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentctl.cli.options import Force, Html


def steps(
    ctx: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILES", help="Step logs of one engine.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PROFILE.toml", help="Write the profile.")
    ] = None,
    html: Html = None,
    force: Force = False,
) -> None:
    """Fit the batch-time model to an engine's steps, and say how well it predicts steps it has not seen."""
