"""`agentctl calibrate lps`: one engine as a queue, and its power by phase."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from agentctl.cli.options import Force, Html, ProfileName


def lps(
    ctx: typer.Context,
    trace: Annotated[
        list[Path],
        typer.Argument(metavar="[TRACE]", help="Request log of one engine, or of engines alike."),
    ] = [],  # noqa: B006  (typer copies it)
    profile: ProfileName = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="S", help="log (end-to-end times) or profile (its coefficients)."),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(min=1, max=10**6, metavar="N", help="Places in service; default: the profile's."),
    ] = None,
    power: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="Power samples (time, watts, clock, phase), CSV or JSON lines."),
    ] = [],  # noqa: B006
    steps: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="Step log of the time of the samples, to tell phases apart."),
    ] = [],  # noqa: B006
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="PROFILE.toml", help="Write the profile with the tables in it."
        ),
    ] = None,
    html: Html = None,
    force: Force = False,
) -> None:
    """Say how one engine acts as a queue, and what it draws: tables [lps] and [power] of its profile.

    The queue comes from a log's arrivals and ends, or from a profile's coefficients and the log's mean
    request; the power from samples, joined with steps or with the times at which requests were there.
    """
    from agentctl.calibrate_lps import calibrate_lps
    from agentctl.cli.inputs import open_input
    from agentctl.cli.reports import check_free, finish_profile
    from agentctl.profile import load_profile, profile_tables

    check_free(output, force)
    check_free(html, force)
    loaded, tables = (load_profile(profile), profile_tables(profile)) if profile else (None, None)
    with open_input(trace, ctx.obj) if trace else nullcontext() as opened:
        found = calibrate_lps(
            opened, loaded, tables, source=source, limit=max_num_seqs, power=power, steps=steps
        )
        title = opened.name if opened else power[0].name
    finish_profile(ctx, title, found, output, html, force)
