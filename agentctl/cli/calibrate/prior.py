"""`agentctl calibrate prior`: a profile from a model's configuration and a GPU's data sheet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentctl.cli.options import Force, Html


def prior(
    ctx: typer.Context,
    model: Annotated[
        Path, typer.Option(metavar="config.json", help="Configuration of the model, as Hugging Face has it.")
    ],
    gpu: Annotated[str, typer.Option(metavar="NAME", help="GPU, such as h100-sxm.")],
    tp: Annotated[int, typer.Option(min=1, metavar="N", help="GPUs of one engine (tensor parallel).")] = 1,
    dtype: Annotated[
        str | None,
        typer.Option(metavar="D", help="Weights: bf16, fp16, fp8, int8, int4, fp4; default: as configured."),
    ] = None,
    kv_dtype: Annotated[
        str | None, typer.Option(metavar="D", help="KV cache: bf16, fp16, fp8 or int8; default: bf16.")
    ] = None,
    memory_utilization: Annotated[
        float, typer.Option(min=0.01, max=1, metavar="R", help="Share of the GPU's memory for the engine.")
    ] = 0.9,
    block_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens of a KV block.")] = 16,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PROFILE.toml", help="Write the profile.")
    ] = None,
    html: Html = None,
    force: Force = False,
) -> None:
    """Predict from physics alone how fast an engine is, with an honest interval, before there is one.

    From the model's shape and the GPU's data sheet; nothing is measured, and the profile says so.
    """
    from agentctl.calibrate_prior import calibrate_prior
    from agentctl.cli.reports import check_free, finish_profile

    check_free(output, force)
    check_free(html, force)
    found = calibrate_prior(model, gpu, tp, dtype, kv_dtype, memory_utilization, block_tokens)
    following = f"agentctl recommend TRACE --profile {output}"
    finish_profile(ctx, model.name, found, output, html, force, following)
