"""`agentctl synth`: a workload to share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentctl.cli.options import Force, Seed


def synth(
    ctx: typer.Context,
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="agentic|model-routing|TRACE",
            help="A frozen workload (a file of that name: ./agentic), or a dataset or log files.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="NAME.trace", help="Trace dataset to write.")
    ],
    sessions: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Sessions; default: 4,000, 16,000, or as in TRACE."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(metavar="R", help="Session starts per minute; default: 85, 360, or as in TRACE."),
    ] = None,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Make a workload that can be shared: a frozen one, or one from the statistics of a trace.

    model-routing also writes NAME.labels.csv: what each of three models would make of every request. Of a
    trace nothing but statistics over at least 5 sessions each goes in; below 50 sessions it is refused.
    """
    from agentctl.cli.inputs import open_input
    from agentctl.files import check_output
    from agentctl.synth.agentic import agentic
    from agentctl.synth.dataset import synthesise
    from agentctl.synth.fit import statistics_of
    from agentctl.synth.labelled import synthesise_labelled
    from agentctl.trace import META_FILE

    check_output(output, force=force, mark=META_FILE)
    if source == ["model-routing"]:
        report = synthesise_labelled(output, requests=sessions, per_min=rate, seed=seed, force=force)
    else:
        if source == ["agentic"]:
            model = agentic()
        else:
            with open_input([Path(one) for one in source], ctx.obj) as opened:
                model = statistics_of(opened)
        report = synthesise(model, output, sessions=sessions, sessions_per_min=rate, seed=seed, force=force)
    ctx.obj.result(report.document, report.sections)
    ctx.obj.note(f"next: agentctl analyze {output}")
