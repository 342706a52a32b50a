"""`agentctl study conserve`: ConServe against its baselines, as its paper ran them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentctl.cli.options import Force, Html
from agentctl.errors import UsageError


def conserve(
    ctx: typer.Context,
    trace: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[TRACE]",
            help="A dataset or log files instead of the paper's conversations: sessions of five turns and "
            "more that only grow.",
        ),
    ] = None,
    rates: Annotated[
        str, typer.Option(metavar="A,B", help="Sessions per second; the paper's prefill engine serves 1.63.")
    ] = "0.5,1,1.5,2",
    errors: Annotated[
        str, typer.Option(metavar="A,B", help="Shares of later turns that are sent to the prefill engine.")
    ] = "0.05,0.1,0.2,0.5",
    draws: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Draws of arrivals; the first is the authors'.")
    ] = 5,
    honest: Annotated[
        bool,
        typer.Option("--honest", help="Also in the simulator of clusters, where every wait is counted."),
    ] = False,
    tool_time: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="With --honest: before every later turn; default: as logged, or 0.",
        ),
    ] = None,
    html: Html = None,
    force: Force = False,
) -> int:
    """ConServe against collocated and fully disaggregated serving and misplaced turns, as its paper ran them.

    One prefill engine and three decoders (A40, Qwen3-0.6B), five turns, no tools; what the paper left out of
    its latencies stands beside them.
    """
    from agentctl.cli.inputs import open_input
    from agentctl.cli.options import numbers
    from agentctl.cli.reports import check_free, finish, with_command, write_report
    from agentctl.conserve.conversations import conversations_of, published
    from agentctl.conserve.honest import honest as in_clusters
    from agentctl.conserve.honest_sections import honest_runs, honest_sections
    from agentctl.conserve.sections import sections
    from agentctl.conserve.study import document, study
    from agentctl.result import RunResult

    if tool_time is not None and not honest:
        raise UsageError("paper mode has no tools", place="--tool-time", expected="--honest beside it")
    check_free(html, force)
    all_rates, shares = numbers(rates, "--rates", 1e-3, 1e3), numbers(errors, "--errors", 0.0, 1.0)
    if trace:
        with open_input(trace, ctx.obj) as opened:
            tokens = conversations_of(opened)
    else:
        tokens = published()
    if tool_time is not None:
        tokens = tokens.with_tools(tool_time)
    with ctx.obj.progress() as progress:
        found = study(tokens, all_rates, shares, draws, progress=progress)
        rows = in_clusters(tokens, all_rates, shares, draws, progress=progress) if honest else ()
    result = RunResult(document(found), sections(found))
    if honest:
        told = {**result.document, "mode": "honest", "honest_runs": honest_runs(rows)}
        result = RunResult(told, (*honest_sections(found, rows), *result.sections))
    if html:
        write_report(html, with_command(ctx, result.document, tokens.name), result.sections, force)
    return finish(ctx, tokens.name, result, None, force)
