"""`agentctl calibrate labels`: how well models answer, and how long, predicted request by request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentctl.cli.options import Force, Html, Seed, Trace


def labels(
    ctx: typer.Context,
    trace: Trace,
    tables: Annotated[
        list[Path],
        typer.Option(
            "--labels", metavar="FILE", help="request_id or task, model, score (CSV, JSON lines or Parquet)."
        ),
    ],
    models: Annotated[
        str | None, typer.Option(metavar="M,M", help="To predict; default: all that the labels name.")
    ] = None,
    folds: Annotated[
        int, typer.Option(min=3, max=100, metavar="N", help="Parts of the sessions left out in turn.")
    ] = 5,
    high: Annotated[
        float, typer.Option(min=0.51, max=0.999, metavar="Q", help="The high quantile of answer lengths.")
    ] = 0.9,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.parquet", help="Write the predictions."),
    ] = None,
    seed: Seed = 0,
    html: Html = None,
    force: Force = False,
) -> None:
    """Predict how well each model answers a request, and how long, from labels: with the errors of it.

    A row of labels names a request and a model with its score from 0 to 1, or a task and a model with the
    mean score; other columns are numbers known of the request beforehand.
    """
    from agentctl.calibrate_labels import calibrate_labels
    from agentctl.cli.inputs import open_input
    from agentctl.cli.reports import check_free, with_command, write_report
    from agentctl.labels import read_labels

    check_free(output, force)
    check_free(html, force)
    read = read_labels(*tables)
    names = [name.strip() for name in models.split(",")] if models else None
    with open_input(trace, ctx.obj) as opened:
        found = calibrate_labels(opened, read, names, seed=seed, folds=folds, high=high)
        document = with_command(ctx, found.document, opened.name)
    if output:
        found.write(output, force)
    if html:
        write_report(html, document, found.sections, force)
    ctx.obj.result(document, found.sections)
    if output:
        ctx.obj.note(f"written: {output}")
