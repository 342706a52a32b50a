"""`agentctl validate`: how far the simulator is from what a log measured."""

from __future__ import annotations

from typing import Annotated

import typer

from agentctl.cli.options import ClusterFile, Force, Html, ProfileName, Run, Trace


def validate(
    ctx: typer.Context,
    trace: Trace,
    output: Run = None,
    profile: ProfileName = None,
    cluster: ClusterFile = None,
    engines: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of engines; default: those the log names.")
    ] = None,
    kv_blocks: Annotated[
        str | None,
        typer.Option(
            metavar="N|unlimited", help="KV blocks, if the profile does not say them; unlimited: never full."
        ),
    ] = None,
    current: Annotated[
        str | None,
        typer.Option(
            metavar="P[:KEY=VALUE,...]",
            help="The router's policy, for a log of several engines that does not say which served what.",
        ),
    ] = None,
    html: Html = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="End with code 3 also when it only warns or nothing can be compared."),
    ] = False,
    force: Force = False,
) -> int:
    """Simulate a log's own run, each request on the engine that served it, and say how far off it is.

    Needs measured TTFT or end-to-end times. Exit code 3: the simulator does not reproduce the log.
    """
    from agentctl.cli.inputs import announce_compilation, open_input
    from agentctl.cli.reports import check_free, finish, with_command, write_report
    from agentctl.cluster import load_cluster
    from agentctl.engine_meta import limits_of
    from agentctl.profile import load_profile
    from agentctl.result import RESULT_FILE
    from agentctl.validate import validate

    check_free(output, force, mark=RESULT_FILE)
    check_free(html, force)
    loaded = load_profile(profile) if profile else None
    limits = load_cluster(cluster) if cluster else None
    announce_compilation(ctx.obj)
    with open_input(trace, ctx.obj) as opened:
        result = validate(
            opened,
            profile=loaded,
            cluster=limits,
            engines=engines,
            kv_blocks=limits_of(kv_blocks),
            current=current,
            strict=strict,
        )
        if html:
            document = with_command(ctx, result.document, opened.name)
            write_report(html, document, result.sections, force)
    return finish(ctx, opened.name, result, output, force)
