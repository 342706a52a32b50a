"""`agentctl validate`: how far the simulator is from what a log measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentctl.cli.options import ClusterFile, Force, Html, ProfileName, Run
from agentctl.errors import UsageError


def validate(
    ctx: typer.Context,
    trace: Annotated[
        list[Path] | None,
        typer.Argument(metavar="TRACE", help="A dataset made by agentctl ingest, or log files."),
    ] = None,
    named: Annotated[
        list[Path] | None, typer.Option("--trace", metavar="TRACE", help="The same, by its name.")
    ] = None,
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
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Replay a part of the trace at this OpenAI-compatible server, and compare with it.",
        ),
    ] = None,
    requests: Annotated[
        int,
        typer.Option(min=1, max=10_000, metavar="N", help="Requests, at most; whole sessions."),
    ] = 200,
    seconds: Annotated[
        float,
        typer.Option(min=1, max=86400, metavar="S", help="Seconds in which requests are sent."),
    ] = 300.0,
    speed: Annotated[
        float,
        typer.Option(
            min=1e-3,
            max=1e3,
            metavar="X",
            help="Sessions start X times as fast as in the log; gaps between turns stay.",
        ),
    ] = 1.0,
    rate: Annotated[
        float,
        typer.Option(min=0.01, max=1000, metavar="R", help="Requests a second, at most."),
    ] = 10.0,
    owned: Annotated[
        bool,
        typer.Option("--i-own-this-endpoint", help="Allow another machine than this one."),
    ] = False,
    served_model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The model's name there, if it serves several."),
    ] = None,
    prompts: Annotated[
        str,
        typer.Option(
            metavar="P",
            help="auto: token ids, or text where none are taken; tokens; text.",
        ),
    ] = "auto",
    max_context: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Tokens of prompt and output that it takes; default: as it says.",
        ),
    ] = None,
    measured: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="What is measured goes there; if it is there, nothing is sent (--force: it is replaced).",
        ),
    ] = Path("endpoint.replay.jsonl"),
    html: Html = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="End with code 3 also when it only warns or nothing can be compared."),
    ] = False,
    force: Force = False,
) -> int:
    """Simulate a log's own run, each request on the engine that served it, and say how far off it is.

    Needs measured TTFT or end-to-end times. Exit code 3: the simulator does not reproduce the log. With
    --endpoint a part of the trace is replayed at a server and that run is simulated; only this machine is
    talked to unless --i-own-this-endpoint is given, and a key is read from AGENTCTL_API_KEY or
    OPENAI_API_KEY. Ctrl-C keeps what was measured.
    """
    from agentctl.cli.inputs import announce_compilation, open_input
    from agentctl.cli.reports import check_free, finish, stopped, with_command, write_report
    from agentctl.cluster import load_cluster
    from agentctl.endpoint.address import api_key, base_url
    from agentctl.engine_meta import limits_of
    from agentctl.profile import load_profile
    from agentctl.result import RESULT_FILE
    from agentctl.validate import validate

    paths = [*(trace or ()), *(named or ())]
    if not paths:
        raise UsageError("is missing", place="TRACE", expected="a dataset, or log files")
    base = base_url(endpoint, owned) if endpoint is not None else None
    if base is not None and (engines is not None or current is not None):
        raise UsageError("an endpoint is one engine", place="--engines, --current", expected="neither")
    check_free(output, force, mark=RESULT_FILE)
    check_free(html, force)
    loaded = load_profile(profile) if profile else None
    limits = load_cluster(cluster) if cluster else None
    with open_input(paths, ctx.obj) as opened:
        if base is not None:
            from agentctl.validate_endpoint import Asked, compare, measure

            asked = Asked(requests, seconds, speed, rate, served_model, prompts, max_context)
            check_engine(profile, cluster)
            try:
                with ctx.obj.progress() as progress:
                    rows = measure(base, opened, measured, asked, api_key(), ctx.obj.note, progress, force)
            except KeyboardInterrupt:
                following = "and the same command compares it; --force starts again"
                ctx.obj.note(stopped(measured, following))
                raise
            announce_compilation(ctx.obj)
            result = compare(opened, rows, asked, loaded, limits, limits_of(kv_blocks), strict)
        else:
            announce_compilation(ctx.obj)
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


def check_engine(profile: str | None, cluster: Path | None) -> None:
    """Before minutes of measuring: is there an engine to simulate?"""
    if profile is None and cluster is None:
        raise UsageError("neither is given", place="--profile, --cluster", expected="at least one of them")
