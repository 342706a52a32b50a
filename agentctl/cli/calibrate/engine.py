"""`agentctl calibrate engine`: coefficients from an engine that is started here, and stepped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agentctl.cli.options import Force, Html, Seed
from agentctl.errors import UsageError


def engine(
    ctx: typer.Context,
    model: Annotated[
        Path,
        typer.Option(metavar="DIR-or-config.json", help="The model's configuration; weights are made up."),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PROFILE.toml", help="Write the profile.")
    ] = None,
    measured: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The step log; a run that was interrupted goes on from there."),
    ] = Path("engine.steps.jsonl"),
    budget: Annotated[str, typer.Option(metavar="SECONDS", help="Of stepping, at most.")] = "300",
    backend: Annotated[
        str, typer.Option(metavar="B", help="vllm; or torch: dense layers alone, attention from a prior.")
    ] = "vllm",
    eager: Annotated[
        bool, typer.Option("--eager", help="Without compilation and graphs; default: as the engine serves.")
    ] = False,
    arguments: Annotated[
        list[str],
        typer.Option(
            "--engine-arg", metavar="NAME=VALUE", help="Of the engine: max_num_seqs=64, dtype=float16."
        ),
    ] = [],  # noqa: B006  (typer copies it)
    tp: Annotated[int, typer.Option(min=1, metavar="N", help="GPUs of one engine.")] = 1,
    max_context: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Longest request, tokens; default: by the budget.")
    ] = None,
    form: Annotated[
        str, typer.Option("--form", metavar="M", help="Batch-time model: eq9, hinge or legacy (fitted only).")
    ] = "hinge",
    terms: Annotated[
        str | None,
        typer.Option(
            metavar="T,T",
            help="Optional terms of the hinge (b_context_mixed, b_past, h0, h_seq; none); default: by error.",
        ),
    ] = None,
    llm: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model's name, for the profile.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="GPU, such as h100-sxm; of torch also the prior's.")
    ] = None,
    prior: Annotated[
        str | None, typer.Option(metavar="P", help="Of torch: the profile with the terms of attention.")
    ] = None,
    seed: Seed = 0,
    html: Html = None,
    force: Force = False,
) -> None:
    """Start the vLLM installed beside agentctl, make it compute designed batches, and fit their times.

    Nothing is downloaded: the model's shape is enough. Ctrl-C keeps what was measured, and the same command
    goes on.
    """
    from agentctl.cli.inputs import announce_compilation
    from agentctl.cli.reports import check_free, finish_profile, stopped
    from agentctl.cli.streams import stdout_on_stderr
    from agentctl.inprocess.run import Asked, measure_engine, measure_torch, power_path
    from agentctl.inprocess.vllm_engine import VllmEngine

    check_free(output, force)
    check_free(html, force)
    given = values(arguments)
    check_backend(backend, given, gpu, prior, tp)
    asked = Asked(model, given, eager, tp, seconds(budget), max_context, seed)
    try:
        with ctx.obj.progress() as progress, stdout_on_stderr():
            if backend == "torch":
                dtype = str(given.get("dtype", "bfloat16"))
                file = measure_torch(asked, measured, dtype, ctx.obj.note, progress)
            else:
                file = measure_engine(asked, measured, VllmEngine, ctx.obj.note, progress)
    except KeyboardInterrupt:
        ctx.obj.note(stopped(measured, "and the same command goes on"))
        raise
    from agentctl.calibrate import Engine  # not before: see agentctl/inprocess/run.py
    from agentctl.calibrate_engine import calibrate_dense, calibrate_engine
    from agentctl.calibrate_prior import calibrate_prior
    from agentctl.profile import load_profile, parse_profile

    announce_compilation(ctx.obj)
    wanted = None if terms is None else [name for name in terms.split(",") if name and name != "none"]
    if backend == "vllm":
        found = calibrate_engine(file, form, wanted, Engine(llm, gpu), power_path(measured))
    else:
        physics = None if prior else calibrate_prior(model, str(gpu)).profile
        known = load_profile(str(prior)) if physics is None else parse_profile(physics, "prior", f"of {gpu}")
        found = calibrate_dense(file, known, form, Engine(llm, gpu))
    finish_profile(
        ctx, measured.name, found, output, html, force, f"agentctl recommend TRACE --profile {output}"
    )


def check_backend(backend: str, given: dict[str, Any], gpu: str | None, prior: str | None, tp: int) -> None:
    """Raise UsageError for a backend that is none, or for what it cannot do."""
    if backend not in ("vllm", "torch"):
        raise UsageError(f"is {backend!r}", place="--backend", expected="vllm or torch")
    if backend == "vllm" and prior is not None:
        raise UsageError("is for --backend torch: vllm is measured whole", place="--prior")
    if backend == "torch" and prior is None and gpu is None:
        raise UsageError("measures no attention, and its terms come from a prior", place="--backend torch",
                         hint="--gpu NAME (by its data sheet) or --prior PROFILE")  # fmt: skip
    if backend == "torch" and (tp > 1 or set(given) - {"dtype"}):
        raise UsageError("takes no argument but dtype, and measures one GPU", place="--backend torch",
                         hint="--backend vllm measures several")  # fmt: skip


def values(arguments: list[str]) -> dict[str, Any]:
    """`max_num_seqs=64` as {"max_num_seqs": 64}: numbers, true, false, null and JSON, else text."""
    import json

    found: dict[str, Any] = {}
    for text in arguments:
        name, equals, value = text.partition("=")
        name = name.lstrip("-").replace("-", "_")
        if not (equals and name.isidentifier()):
            raise UsageError(f"cannot read {text!r}", place="--engine-arg", expected="NAME=VALUE",
                             hint="such as max_num_seqs=64")  # fmt: skip
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def seconds(text: str) -> float:
    """`300` or `300s`; raises UsageError."""
    try:
        found = float(text.strip().removesuffix("s"))
    except ValueError:
        found = -1.0
    if not 0 < found <= 86400:
        raise UsageError(f"cannot read {text!r}", place="--budget", expected="seconds: 300 or 300s")
    return found
