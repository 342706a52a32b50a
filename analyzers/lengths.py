"""Lengths: prompt tokens, output tokens and their ratio, over all requests and by model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from agentctl.analyzers.base import AnalyzeOptions
from agentctl.analyzers.columns import floats, texts
from agentctl.analyzers.distribution import Distribution, cdf_curve, distribution, part
from agentctl.analyzers.words import percent
from agentctl.present import Curve, Fact, Figure, Section, Table, Value
from agentctl.trace import Trace

NAME = "lengths"
ORDER = 50


@dataclass(frozen=True)
class Lengths:
    """Of the requests of one model ('all': of every model; None: no model logged)."""

    model: str | None
    requests: int
    prompt_tokens: Distribution | None
    output_tokens: Distribution | None
    prompt_output_ratio: Distribution | None  # over requests with some output


@dataclass(frozen=True)
class Result:
    all: Lengths
    models: tuple[Lengths, ...]  # most requests first
    prompt_share_of_tokens: float | None  # prompt / (prompt + output), over requests with both known
    reason: str | None  # why lengths are unknown
    unknown_prompts: int
    unknown_outputs: int
    zero_outputs: int
    curves: tuple[Curve, ...]


def analyze(trace: Trace, options: AnalyzeOptions) -> Result:
    rows = trace.requests(["model", "prompt_tokens", "output_tokens"])
    prompt, output = floats(rows["prompt_tokens"]), floats(rows["output_tokens"])
    both = ~np.isnan(prompt) & ~np.isnan(output)
    total = float(prompt[both].sum() + output[both].sum())
    known = bool((~np.isnan(prompt)).any() or (~np.isnan(output)).any())
    return Result(
        all=_lengths("all", prompt, output),
        models=_by_model(rows["model"], prompt, output),
        prompt_share_of_tokens=float(prompt[both].sum()) / total if total else None,
        reason=None if known else "no request has a token count",
        unknown_prompts=int(np.isnan(prompt).sum()),
        unknown_outputs=int(np.isnan(output).sum()),
        zero_outputs=int((output == 0).sum()),
        curves=(
            cdf_curve("prompt", np.maximum(prompt, 1)), cdf_curve("output", np.maximum(output, 1)),
        ),
    )  # fmt: skip


def _by_model(
    model: pl.Series, prompt: NDArray[np.float64], output: NDArray[np.float64]
) -> tuple[Lengths, ...]:
    name = texts(model)
    names, counts = np.unique(name, return_counts=True)
    ordered = names[np.lexsort((names, -counts))]
    return tuple(_lengths(str(n) or None, prompt[name == n], output[name == n]) for n in ordered)


def _lengths(model: str | None, prompt: NDArray[np.float64], output: NDArray[np.float64]) -> Lengths:
    some = output > 0
    return Lengths(
        model,
        prompt.size,
        distribution(prompt),
        distribution(output),
        distribution(prompt[some] / output[some]),
    )


def describe(result: Result) -> Section:
    prompt, output = result.all.prompt_tokens, result.all.output_tokens
    return Section(
        name=NAME,
        title="Lengths",
        sentence=_sentence(result),
        facts=(
            Fact("Prompt, p50", prompt.p50 if prompt else None, "tokens", "what a cache saves per request"),
            Fact("Prompt, max", prompt.max if prompt else None, "tokens",
                 "max_model_len and the KV pool of one engine must hold it"),
            Fact("Output, p50", output.p50 if output else None, "tokens",
                 "steps that a request stays resident"),
            Fact("Prompts, share of all tokens", result.prompt_share_of_tokens, "ratio",
                 "near 1: prefill and cache policy decide; lower: decode and batch size do"),
        ),
        tables=(_table(result),) if prompt or output else (),
        figures=_figures(result) if prompt or output else (),
        assumptions=(
            "Prompt tokens are the whole prompt, cached part included; reasoning is part of the output.",
            "The ratio is per request and leaves out requests without output.",
        ),
        warnings=_warnings(result),
    )  # fmt: skip


def _sentence(result: Result) -> str:
    prompt, output = result.all.prompt_tokens, result.all.output_tokens
    if prompt is None or output is None:
        return f"Lengths cannot be told: {result.reason or 'prompts or outputs have no token counts'}."
    text = (
        f"A request has a median prompt of {prompt.p50:,.0f} tokens (p99 {prompt.p99:,.0f}) and a median "
        f"output of {output.p50:,.0f} (p99 {output.p99:,.0f})"
    )
    if result.prompt_share_of_tokens is None:
        return f"{text}."
    return f"{text}; prompts are {percent(result.prompt_share_of_tokens)} of all tokens."


def _table(result: Result) -> Table:
    def row(each: Lengths) -> tuple[Value, ...]:
        p, o, ratio = each.prompt_tokens, each.output_tokens, each.prompt_output_ratio
        return (
            each.model or "not logged", each.requests, part(p, "p50"), part(p, "p99"), part(p, "max"),
            part(o, "p50"), part(o, "p99"), part(ratio, "p50"),
        )  # fmt: skip

    shown = (result.all, *result.models) if len(result.models) > 1 else (result.all,)
    return Table(
        (
            ("model", ""), ("requests", "count"), ("prompt p50", "tokens"), ("p99", "tokens"),
            ("max", "tokens"), ("output p50", "tokens"), ("p99", "tokens"), ("prompt/output p50", ""),
        ),
        tuple(row(each) for each in shown),
        "Lengths by model",
    )  # fmt: skip


def _figures(result: Result) -> tuple[Figure, ...]:
    return (
        Figure(
            "lengths", "How long are prompts and outputs?", "tokens", "share of requests", result.curves,
            "The distance between the curves is how much more is read than written. Steps are prompts that "
            "many requests share, or a limit of the client.",
            x_log=True, y_unit="ratio",
        ),
    )  # fmt: skip


def _warnings(result: Result) -> tuple[str, ...]:
    unknown = (("prompt_tokens", result.unknown_prompts), ("output_tokens", result.unknown_outputs))
    return tuple(
        f"{n:,} of {result.all.requests:,} requests have no {name}: they cannot be simulated. "
        f"Ingest with --map {name}=FIELD if the log has it."
        for name, n in unknown
        if n
    )
