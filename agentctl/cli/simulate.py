"""`agentctl simulate`: one policy on one cluster."""

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
    policy_and_params,
)
from agentctl.errors import UsageError


def simulate(
    ctx: typer.Context,
    trace: Trace,
    output: Run = None,
    cluster: ClusterFile = None,
    profile: ProfileName = None,
    engines: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of engines; default: the cluster's.")
    ] = None,
    policy: Annotated[
        list[str],
        typer.Option(
            metavar="P[:KEY=VALUE,...]",
            help="Routing policy, repeatable: several are shown side by side; default: the cluster's.",
        ),
    ] = [],  # noqa: B006  (typer copies it)
    vary: Vary = [],  # noqa: B006
    reach_hit: ReachHit = None,
    replay: Replay = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Sessions in flight, for --replay closed-loop.")
    ] = None,
    arrivals: Arrivals = None,
    rate: Rate = None,
    arrivals_of: ArrivalsOf = None,
    slo: Slo = [],  # noqa: B006  (typer copies it)
    explain: Annotated[
        list[str],
        typer.Option(
            metavar="REQUEST",
            help="Show why a request went where it did, and what the other engines would have given it "
            "(repeatable).",
        ),
    ] = [],  # noqa: B006
    regret: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Compare the engines of N requests, drawn, with the best; costs time."
        ),
    ] = 0,
    isolated: Annotated[
        bool,
        typer.Option("--isolated", help="Compare every session with the same one alone; one run more."),
    ] = False,
    labels: LabelFiles = [],  # noqa: B006
    lam: Lambda = 5e-4,
    tau: Tau = "paper",
    outputs: Outputs = "predicted",
    audit: Annotated[
        bool,
        typer.Option(
            "--audit", help="With --labels: ask every estimator, and compare with what was simulated."
        ),
    ] = False,
    engine: EngineName = None,
    workers: Workers = None,
    address: Address = None,
    seed: Seed = 0,
    force: Force = False,
) -> int:
    """Replay a trace on a cluster under a routing policy: latencies, hits, balance, and why.

    The cluster is a file (--cluster), or engines of one profile (--profile, --engines).
    """
    from agentctl.cli.inputs import announce_compilation, open_input, the_cluster
    from agentctl.cli.reports import check_free, finish
    from agentctl.engines import engine_of
    from agentctl.recommend.grid import axis
    from agentctl.recommend.variants import variants_of
    from agentctl.result import RESULT_FILE
    from agentctl.side_by_side import run_side_by_side
    from agentctl.simulate import run_simulation
    from agentctl.workload import parse_process

    if (len(policy) > 1 or vary) and (explain or regret or isolated):
        place = "--explain, --regret, --isolated"
        raise UsageError("several runs", place=place, expected="one --policy, no --vary")
    if len(policy) < 2 and not vary and (engine or workers or address):
        place = "--engine, --workers, --address"
        raise UsageError("a single run is not divided", place=place, expected="several --policy, or --vary")
    check_reach(reach_hit, vary)
    process = parse_process(arrivals, rate, arrivals_of)
    check_free(output, force, mark=RESULT_FILE)
    models = models_asked(labels, lam, tau, outputs, seed, audit)
    chosen = [policy_and_params(text) for text in policy] or [(None, {})]
    simulated = the_cluster(cluster, profile, engines)
    announce_compilation(ctx.obj)
    with open_input(trace, ctx.obj) as opened, ctx.obj.progress() as progress:
        how = {
            "replay": replay, "concurrency": concurrency, "arrivals": process, "seed": seed, "slos": slo,
            "progress": progress,
        }  # fmt: skip
        how["models"] = models
        if len(chosen) > 1 or vary:
            variants = variants_of(simulated, [axis(text) for text in vary])
            with closing(engine_of(engine, workers, address)) as computing:
                result = run_side_by_side(
                    opened, variants, chosen, wanted_hit=reach_hit, engine=computing, **how
                )
        else:
            name, params = chosen[0]
            result = run_simulation(
                opened, simulated, policy=name, params=params, explain=explain, regret=regret,
                alone=isolated, **how,
            )  # fmt: skip
    return finish(ctx, opened.name, result, output, force)
