"""`agentctl calibrate steps`: batch-time coefficients from what an engine logged of each of its steps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentctl.cli.options import Force, Html
from agentctl.errors import UsageError


def steps(
    ctx: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES", help="Step logs of one engine, or a folder of kernel tables."),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PROFILE.toml", help="Write the profile.")
    ] = None,
    model: Annotated[str, typer.Option(metavar="M", help="eq9, hinge or legacy (fitted only).")] = "hinge",
    terms: Annotated[
        str | None,
        typer.Option(
            metavar="T,T",
            help="Optional terms of the hinge (b_context_mixed, b_past, h0, h_seq; none); default: by error.",
        ),
    ] = None,
    prior: Annotated[
        str | None, typer.Option(metavar="P", help="Profile that fills in what the steps cannot show.")
    ] = None,
    kv_blocks: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="KV blocks, as the engine prints them at start.")
    ] = None,
    block_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Tokens of a KV block.")
    ] = None,
    llm: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model's name, for the profile.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(metavar="NAME", help="The GPU's name, for the profile.")] = None,
    tp: Annotated[int | None, typer.Option(min=1, metavar="N", help="GPUs of one engine.")] = None,
    columns: Annotated[
        list[str],
        typer.Option("--map", metavar="OURS=THEIRS", help="Name a column of the log, with its unit."),
    ] = [],  # noqa: B006  (typer copies it)
    layers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Layers of the model, for kernel tables.")
    ] = None,
    warm_up: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="First steps of a file to leave out; default: 20 of a timed log."
        ),
    ] = None,
    max_wait: Annotated[
        float, typer.Option(min=0, metavar="R", help="Most of a step spent waiting for a core, if logged.")
    ] = 0.05,
    html: Html = None,
    force: Force = False,
) -> None:
    """Fit the batch-time model to an engine's steps, and say how well it predicts steps it has not seen.

    Reads JSON lines of agentctl's recorders for vLLM, Dynamo's ForwardPassMetrics, SGLang's batch lines, and
    CSV or JSON lines with named columns.
    """
    from agentctl.calibrate import Engine, calibrate_steps
    from agentctl.cli.reports import check_free, finish_profile
    from agentctl.profile import load_profile

    check_free(output, force)
    check_free(html, force)
    found = calibrate_steps(
        files,
        model,
        None if terms is None else [name for name in terms.split(",") if name and name != "none"],
        Engine(llm, gpu, tp, kv_blocks, block_tokens),
        load_profile(prior) if prior else None,
        n_layers=layers,
        renamed=renamed(columns),
        warm_up=warm_up,
        max_wait=max_wait,
    )
    sizes = {"--kv-blocks N": kv_blocks, "--block-tokens N": block_tokens}
    unsaid = [flag for flag, value in sizes.items() if value is None]
    following = f"agentctl recommend TRACE --profile {output}"
    if unsaid:
        following = f"a simulation needs the KV cache, too: again with {' '.join(unsaid)}"
    finish_profile(ctx, files[0].name, found, output, html, force, following)


def renamed(columns: list[str]) -> dict[str, str]:
    """`seconds=dur` as {dur: seconds}; raises UsageError."""
    from agentctl.estimators.step_rows import known_names
    from agentctl.toml import suggestion

    pairs = [text.split("=", 1) for text in columns]
    for pair in pairs:
        if len(pair) != 2 or not all(pair):
            raise UsageError(
                f"cannot read {'='.join(pair)!r}", place="--map", expected="OURS=THEIRS",
                hint="such as duration_ms=YOUR_COLUMN",
            )  # fmt: skip
        if pair[0] not in known_names():
            raise UsageError(f"no column {pair[0]!r} is known", place="--map", expected="OURS=THEIRS",
                             hint=suggestion(pair[0], known_names()))  # fmt: skip
    return {theirs: ours for ours, theirs in pairs}
