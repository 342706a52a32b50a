"""`agentctl recommend`: many policies and sizes, one decision."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from agentctl.cli.options import (
    Address,
    Arrivals,
    ArrivalsOf,
    ClusterFile,
    EngineName,
    Force,
    LabelFiles,
    Lambda,
    Outputs,
    ProfileName,
    Rate,
    ReachHit,
    Replay,
    Run,
    Seed,
    Slo,
    Tau,
    Trace,
    Vary,
    Workers,
    check_reach,
    models_asked,
    whole_numbers,
)


def recommend(
    ctx: typer.Context,
    trace: Trace,
    output: Run = None,
    profile: ProfileName = None,
    cluster: ClusterFile = None,
    slo: Slo = [],  # noqa: B006  (typer copies it)
    engines: Annotated[
        str | None, typer.Option(metavar="4..32", help="Cluster sizes to try; default: the cluster's.")
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(
            metavar="A,B:KEY=1,2",
            help="Routing policies to compare, lists and ranges of parameters too; default: one of a kind.",
        ),
    ] = None,
    vary: Vary = [],  # noqa: B006  (typer copies it)
    roles: Annotated[
        str | None,
        typer.Option(
            metavar="all|1+7,...",
            help="Also try prefill and decode pools: all ways, or a list (1+7: one engine computes prompts; "
            "prefill+decode: of pools that differ, in their order).",
        ),
    ] = None,
    reach_hit: ReachHit = None,
    objective: Annotated[
        str,
        typer.Option(
            metavar="O,...",
            help="What is best: peak-load, peak-tps, goodput, gpus, ttfet, cost, tokens-per-joule, "
            "session-energy or on-time-utility; several: the Pareto set.",
        ),
    ] = "peak-load",
    current: Annotated[
        str | None,
        typer.Option(metavar="P[:KEY=VALUE,...]", help="The policy in use today, to compare with."),
    ] = None,
    router: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET[@VERSION]",
            help="The router to deploy on, such as llm-d or vllm-router: only what it can do is recommended.",
        ),
    ] = None,
    labels: LabelFiles = [],  # noqa: B006
    lam: Lambda = 5e-4,
    tau: Tau = "paper",
    outputs: Outputs = "predicted",
    replay: Replay = None,
    arrivals: Arrivals = None,
    rate: Rate = None,
    arrivals_of: ArrivalsOf = None,
    engine: EngineName = None,
    workers: Workers = None,
    address: Address = None,
    replicates: Annotated[
        int | None,
        typer.Option(
            min=2, metavar="N", help="Resampled workloads; more measure the error better. Default: 8 to 60."
        ),
    ] = None,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity/--no-sensitivity", help="Run the finalists again under changed assumptions."
        ),
    ] = True,
    seed: Seed = 0,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with code 3 when a validity check only warns.")
    ] = False,
    force: Force = False,
) -> int:
    """Compare routing policies and cluster sizes on a trace, and name one, with its uncertainty and reasons.

    The cluster is a file (--cluster), or engines of one profile (--profile). Exit code 3: nothing meets the
    SLOs, or the trace cannot decide.
    """
    from agentctl.cli.inputs import announce_compilation, open_input
    from agentctl.cli.reports import check_free, finish
    from agentctl.cluster import load_cluster
    from agentctl.engines import engine_of
    from agentctl.profile import load_profile
    from agentctl.recommend import recommend
    from agentctl.recommend.grid import axis
    from agentctl.recommend.runs import kept_runs
    from agentctl.result import RESULT_FILE
    from agentctl.workload import parse_process

    check_free(output, force, mark=RESULT_FILE)
    sizes = whole_numbers(engines, "--engines") if engines else ()
    check_reach(reach_hit, vary)
    process = parse_process(arrivals, rate, arrivals_of)
    axes = [axis(text) for text in vary]
    models = models_asked(labels, lam, tau, outputs, seed)
    announce_compilation(ctx.obj)
    with (
        open_input(trace, ctx.obj) as opened,
        kept_runs(output) as runs,
        closing(engine_of(engine, workers, address)) as computing,
        ctx.obj.progress() as progress,
    ):
        if runs.resumed:
            ctx.obj.note(f"{runs.resumed:,} runs are known from before")
        result = recommend(
            opened,
            profile=load_profile(profile) if profile else None,
            cluster=load_cluster(cluster) if cluster else None,
            policies=[policies] if policies is not None else (),
            engines=sizes,
            vary_settings=axes,
            roles=roles,
            wanted_hit=reach_hit,
            slos=slo,
            current=current,
            router=router,
            objective=objective,
            models=models,
            replay=replay,
            arrivals=process,
            replicates=replicates,
            sensitivity=sensitivity,
            seed=seed,
            strict=strict,
            runs=runs,
            engine=computing,
            progress=progress,
        )
        return finish(ctx, opened.name, result, output, force)
