"""`agentctl calibrate endpoint`: coefficients from timings of a client of the engine's API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentctl.cli.options import Force, Html, Seed
from agentctl.errors import UsageError


def endpoint(
    ctx: typer.Context,
    url: Annotated[
        str, typer.Argument(metavar="URL", help="OpenAI-compatible server, such as http://127.0.0.1:8000.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PROFILE.toml", help="Write the profile.")
    ] = None,
    measured: Annotated[
        Path, typer.Option(metavar="FILE", help="What is measured goes there, and a run goes on from there.")
    ] = Path("endpoint.probe.jsonl"),
    budget: Annotated[
        str, typer.Option(metavar="N,SECONDS", help="Requests and seconds, at most: 150, 120s or 150,120s.")
    ] = "200,300s",
    owned: Annotated[
        bool, typer.Option("--i-own-this-endpoint", help="Allow another machine than this one.")
    ] = False,
    served_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model's name there, if it serves several.")
    ] = None,
    prompts: Annotated[
        str, typer.Option(metavar="P", help="auto: token ids, or text where none are taken; tokens; text.")
    ] = "auto",
    max_context: Annotated[
        int | None, typer.Option(min=256, metavar="N", help="Longest request, tokens; default: as it says.")
    ] = None,
    max_width: Annotated[
        int, typer.Option(min=4, max=64, metavar="N", help="Decodes at once, at most.")
    ] = 16,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(min=1, max=10**9, metavar="N", help="Tokens of a batch, if known.")
    ] = None,
    kv_blocks: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="KV blocks; default: as the server says, if it does."),
    ] = None,
    block_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Tokens of a KV block; default: the same.")
    ] = None,
    llm: Annotated[str | None, typer.Option(metavar="NAME", help="The model, for the profile.")] = None,
    gpu: Annotated[str | None, typer.Option(metavar="NAME", help="The GPU, for the profile.")] = None,
    tp: Annotated[int | None, typer.Option(min=1, metavar="N", help="GPUs of one engine.")] = None,
    seed: Seed = 0,
    html: Html = None,
    force: Force = False,
) -> None:
    """Probe an engine through its API, on this machine, and fit the batch-time model to what a client sees.

    Sends random prompts for minutes; nothing else should use the engine. A key is read from AGENTCTL_API_KEY
    or OPENAI_API_KEY. Ctrl-C keeps what was measured, and the same command goes on.
    """
    from agentctl.calibrate import Engine
    from agentctl.calibrate_endpoint import Asked, calibrate_endpoint, measure
    from agentctl.cli.inputs import announce_compilation
    from agentctl.cli.reports import check_free, finish_profile, stopped
    from agentctl.endpoint.address import api_key, base_url

    check_free(output, force)
    check_free(html, force)
    requests, seconds = limits(budget)
    asked = Asked(requests, seconds, served_model, prompts, max_context, max_width, seed)
    base = base_url(url, owned)
    try:
        with ctx.obj.progress() as progress:
            found = measure(base, measured, asked, api_key(), ctx.obj.note, progress)
    except KeyboardInterrupt:
        ctx.obj.note(stopped(measured, "and the same command goes on"))
        raise
    announce_compilation(ctx.obj)
    engine = Engine(llm, gpu, tp, kv_blocks, block_tokens, max_num_batched_tokens=max_num_batched_tokens)
    calibrated = calibrate_endpoint(found, engine, seed)
    following = f"agentctl recommend TRACE --profile {output}"
    if calibrated.engine.kv_blocks is None or calibrated.engine.block_tokens is None:
        following = "a simulation needs the KV cache, too: again with --kv-blocks N --block-tokens N"
    finish_profile(ctx, measured.name, calibrated, output, html, force, following)


def limits(text: str) -> tuple[int, float]:
    """`150`, `120s` or `150,120s` as requests and seconds; raises UsageError."""
    requests, seconds = 200, 300.0
    parts = [part.strip() for part in text.split(",")]
    try:
        for part in parts:
            if part.endswith("s"):
                seconds = float(part[:-1])
            else:
                requests = int(part)
    except ValueError:
        seconds = -1.0
    if len({part.endswith("s") for part in parts}) < len(parts):  # 150,120: which are seconds?
        seconds = -1.0
    if not (0 < seconds <= 86400 and 0 < requests <= 100_000):
        raise UsageError(f"cannot read {text!r}", place="--budget", expected="150, 120s or 150,120s")
    return requests, seconds
