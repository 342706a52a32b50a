"""`agentctl analyze`: what is in a trace."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated, Any

import typer

from agentctl.cli.options import Address, EngineName, Force, Html, Slo, Trace, whole_numbers


def analyze(
    ctx: typer.Context,
    trace: Trace,
    html: Html = None,
    engines: Annotated[
        str, typer.Option(metavar="N,N", help="Cluster sizes for the balance tests.")
    ] = "2,4,8,16,32",
    profile: Annotated[
        str | None,
        typer.Option(metavar="P", help="Engine profile: are the SLOs attainable, what does its KV hold."),
    ] = None,
    slo: Slo = [],  # noqa: B006  (typer copies it)
    first_turn_share: Annotated[
        float, typer.Option(min=0, max=1, metavar="R", help="Two-phase threshold: prefill spent in turn 0.")
    ] = 0.5,
    later_hit_share: Annotated[
        float, typer.Option(min=0, max=1, metavar="R", help="Two-phase threshold: what a later turn hits.")
    ] = 0.8,
    engine: EngineName = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Files read, then analyses made, at a time; default: 1."),
    ] = None,
    address: Address = None,
    force: Force = False,
) -> None:
    """Say what is in a trace: KV reuse, locality, two-phase structure, load, lengths, and its quality.

    Log files are ingested to a temporary dataset first, with the defaults of `agentctl ingest`.
    """
    from agentctl.analyze import analyze_trace
    from agentctl.analyzers.base import AnalyzeOptions
    from agentctl.cli.inputs import open_input, reading_engine
    from agentctl.cli.reports import check_free, with_command, write_report

    check_free(html, force)
    options = AnalyzeOptions(
        engines=tuple(whole_numbers(engines, "--engines")),
        first_turn_share=first_turn_share,
        later_hit_share=later_hit_share,
        slos=tuple(slo),
        **(engine_facts(profile) if profile else {}),
    )
    with (
        closing(reading_engine(engine, workers, address)) as working,
        open_input(trace, ctx.obj, working) as opened,
    ):
        analysis = analyze_trace(opened, options, engine=working)
    document = with_command(ctx, analysis.document, opened.name)
    if html:
        write_report(html, document, analysis.sections, force)
    ctx.obj.result(document, analysis.sections)


def engine_facts(name: str) -> dict[str, Any]:
    """What `attainability` tests, the batch time of a profile and its name; and the KV that `reuse` has."""
    from agentctl.profile import load_profile

    profile = load_profile(name)
    engine: dict[str, Any] = {"batch_time": profile.batch_time, "engine_name": profile.name}
    if profile.max_num_batched_tokens:
        engine["max_num_batched_tokens"] = profile.max_num_batched_tokens
    if profile.kv_blocks and profile.block_tokens:
        engine["kv_tokens_per_engine"] = (profile.kv_blocks - 1) * profile.block_tokens  # one is never usable
    return engine
