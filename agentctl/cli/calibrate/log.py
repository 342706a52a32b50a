"""`agentctl calibrate log`: coefficients with which a simulated run takes as long as the logged one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentctl.cli.options import Force, Html, Seed, Trace
from agentctl.errors import UsageError

MOST = 10**9  # as agentctl.profile.MOST, which is not imported for --help


def log(
    ctx: typer.Context,
    trace: Trace,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PROFILE.toml", help="Write the profile.")
    ] = None,
    max_num_seqs: Annotated[
        int | None, typer.Option(min=1, max=10**6, metavar="N", help="Sequences that the engine ran at once.")
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(min=1, max=MOST, metavar="N", help="Tokens of a batch, at most.")
    ] = None,
    kv_blocks: Annotated[
        str | None,
        typer.Option(
            metavar="N|unlimited", help="KV blocks, as the engine prints them; unlimited: never full."
        ),
    ] = None,
    block_tokens: Annotated[
        int | None, typer.Option(min=1, max=MOST, metavar="N", help="Tokens of a KV block; default: 16.")
    ] = None,
    meta: Annotated[
        Path | None, typer.Option(metavar="JSON", help="The engine's arguments: limits and names not given.")
    ] = None,
    engines: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Engines, if the log names none; default: 1.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="P", help="What placed requests, if the log does not say where.")
    ] = None,
    model: Annotated[str, typer.Option(metavar="M", help="eq9 or hinge.")] = "hinge",
    terms: Annotated[
        str | None,
        typer.Option(
            metavar="T,T",
            help="Optional terms (b_past, b_context_mixed, h0, h_seq; none); default: b_context_mixed.",
        ),
    ] = None,
    prior: Annotated[str | None, typer.Option(metavar="P", help="Profile that the fit is drawn to.")] = None,
    model_config: Annotated[
        Path | None,
        typer.Option(
            metavar="config.json", help="The model's configuration: a prior from physics, with --gpu."
        ),
    ] = None,
    gpu: Annotated[str | None, typer.Option(metavar="NAME", help="GPU, such as h100-sxm.")] = None,
    tp: Annotated[int | None, typer.Option(min=1, metavar="N", help="GPUs of one engine.")] = None,
    llm: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model's name, for the profile.")
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Of the trace's start; default: 1,000.")
    ] = None,
    share: Annotated[
        float,
        typer.Option(min=0.05, max=1, metavar="R", help="Of these, to be fitted; the others are judged."),
    ] = 1.0,
    seed: Seed = 0,
    html: Html = None,
    force: Force = False,
) -> None:
    """Fit the batch-time model to a request log alone: TTFT and durations, simulated against logged.

    Such coefficients reproduce the run together; they are not known one by one, and the profile says so.
    """
    from agentctl.calibrate import Engine
    from agentctl.calibrate_log import calibrate_log
    from agentctl.calibrate_prior import calibrate_prior
    from agentctl.cli.inputs import announce_compilation, open_input
    from agentctl.cli.reports import check_free, finish_profile
    from agentctl.engine_meta import Limits, limits_of, read_meta
    from agentctl.profile import load_profile, parse_profile

    check_free(output, force)
    check_free(html, force)
    if model_config is not None and gpu is None:
        raise UsageError("needs the GPU", place="--model-config", hint="--gpu NAME")
    if model_config is not None and prior is not None:
        raise UsageError("two priors are given", place="--model-config, --prior", expected="one of them")
    given = Limits(limits_of(kv_blocks), block_tokens, max_num_batched_tokens, max_num_seqs)
    limits, engine = read_meta(meta, given, Engine(llm, gpu, tp)) if meta else (given, Engine(llm, gpu, tp))
    known = load_profile(prior) if prior else None
    if model_config is not None and gpu is not None:
        tables = calibrate_prior(model_config, gpu, tp or 1).profile
        known = parse_profile(tables, "prior", f"physics of {gpu}")
        engine = Engine(engine.model or known.model, known.gpu, known.tensor_parallel,
                        kv_bytes_per_token=known.kv_bytes_per_token)  # fmt: skip
    with open_input(trace, ctx.obj) as opened:
        announce_compilation(ctx.obj)
        found = calibrate_log(
            opened,
            limits,
            model,
            None if terms is None else [name for name in terms.split(",") if name and name != "none"],
            engine,
            known,
            engines,
            policy,
            requests,
            share,
            seed,
            ctx.obj.note,
        )
        title = opened.name
    following = f"agentctl validate TRACE --profile {output}"
    finish_profile(ctx, title, found, output, html, force, following)
