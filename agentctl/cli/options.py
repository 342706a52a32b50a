"""Options that several commands have, and how their values are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentctl.errors import UsageError

if TYPE_CHECKING:
    from agentctl.fleet import Asked

Force = Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")]
Seed = Annotated[
    int, typer.Option(min=0, metavar="N", help="Seed of everything random; the same seed, the same result.")
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Also write the report as one HTML file.")
]
Run = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="RUN/", help="Write a run folder: result, outcome, report."),
]
Trace = Annotated[
    list[Path], typer.Argument(metavar="TRACE", help="A dataset made by agentctl ingest, or log files.")
]
EngineName = Annotated[
    str | None,
    typer.Option("--engine", metavar="WHERE", help="Where it is computed: processes, serial or ray."),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, metavar="N", help="Runs at a time; default: one per core."),
]
Address = Annotated[
    str | None,
    typer.Option("--address", metavar="HOST:PORT", help="With --engine ray: a cluster that runs already."),
]
Slo = Annotated[
    list[str],
    typer.Option(
        "--slo", metavar="EXPR", help='Objective such as "ttft p95 < 2s" (repeatable); all must hold.'
    ),
]
ClusterFile = Annotated[
    Path | None, typer.Option("--cluster", metavar="C.toml", help="Cluster file: pools, router, network.")
]
ProfileName = Annotated[
    str | None, typer.Option("--profile", metavar="P", help="Engine profile: a preset's name or a TOML file.")
]
Vary = Annotated[
    list[str],
    typer.Option(
        "--vary",
        metavar="KEY=A,B",
        help="Settings of the cluster file to try, such as max_num_seqs=64..256 or "
        "kv_tier.capacity_tokens=0,1e6,5e7 (repeatable).",
    ),
]
LabelFiles = Annotated[
    list[Path],
    typer.Option(
        "--labels",
        metavar="FILE",
        help="How well each model of the pools answers: request_id, model, score (repeatable).",
    ),
]
Lambda = Annotated[
    float,
    typer.Option("--lambda", min=0.0, metavar="X", help="Utility is score less X per millionth of a dollar."),
]
Tau = Annotated[
    str,
    typer.Option(
        metavar="EXPR",
        help="When a first token is on time: paper, paper:KEY=NUMBER or a sum, 200ms + 30us*prompt_tokens.",
    ),
]
Outputs = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="Answer lengths that the router believes: predicted, true, or a factor such as x0.5.",
    ),
]
ReachHit = Annotated[
    float | None,
    typer.Option(
        "--reach-hit",
        min=0.0,
        max=1.0,
        metavar="SHARE",
        help="With --vary: the least KV tier that finds this share.",
    ),
]
Replay = Annotated[
    str | None,
    typer.Option(
        metavar="MODE", help="timestamps, causal, thinktime or closed-loop; default: thinktime if known."
    ),
]
Arrivals = Annotated[
    str | None,
    typer.Option(
        metavar="PROCESS",
        help="Make the starts instead of taking the log's: poisson, deterministic or "
        "mmpp[:ratio=4,high_share=0.2,correlation_s=2]; also order=shuffled.",
    ),
]
Rate = Annotated[
    str | None,
    typer.Option(
        metavar="R", help="With --arrivals: mean rate, such as 6/s or 360/min; default: the trace's."
    ),
]
ArrivalsOf = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT",
        help="With --arrivals: what starts, sessions (turns follow by --replay) or requests, each by itself.",
    ),
]


def check_reach(reach_hit: float | None, vary: list[str]) -> None:
    """Raises UsageError for a hit to reach with tiers that are not varied."""
    if reach_hit is not None and not vary:
        raise UsageError("nothing is varied", place="--reach-hit", expected="--vary kv_tier.capacity_tokens=")


def whole_numbers(text: str, option: str) -> list[int]:
    """`8`, `2,4,8` or `4..32` (doubling from the first, the last included) as numbers; raises UsageError."""
    from agentctl.cluster import MAX_ENGINES

    try:
        if ".." in text:
            first, last = (int(part) for part in text.split(".."))
            numbers = [first]
            while first > 0 and numbers[-1] * 2 < last:
                numbers.append(numbers[-1] * 2)
            numbers += [last] if last != numbers[-1] else []
        else:
            numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or numbers[0] < 1 or numbers != sorted(numbers):
        raise UsageError(f"cannot read {text!r}", place=option, expected="a number, 2,4,8 or 4..32")
    if numbers[-1] > MAX_ENGINES:
        raise UsageError(f"asks for {numbers[-1]} engines", place=option, expected=f"at most {MAX_ENGINES}")
    return numbers


def numbers(text: str, option: str, least: float, most: float) -> list[float]:
    """`0.5,1,2` as numbers within the limits, in order; raises UsageError."""
    try:
        found = sorted({float(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or not all(least <= one <= most for one in found):
        expected = f"numbers from {least:g} to {most:g}, such as 0.5,1"
        raise UsageError(f"cannot read {text!r}", place=option, expected=expected)
    return found


def policy_and_params(text: str | None) -> tuple[str | None, dict[str, float]]:
    """`smetric:slack=2,hit_ratio=0.5` as a name and its parameters; raises UsageError."""
    from agentctl.policies._names import parse_policy

    return (None, {}) if text is None else parse_policy(text, "--policy")


def models_asked(
    labels: list[Path], lam: float, tau: str, outputs: str, seed: int, audits: bool = False
) -> Asked | None:
    """What --labels and the options beside it ask for; None without."""
    from agentctl.fleet import Asked, Question

    if not labels:
        if audits or (lam, tau, outputs) != (5e-4, "paper", "predicted"):
            raise UsageError(
                "belong to --labels", place="--lambda, --tau, --outputs, --audit", expected="--labels FILE"
            )
        return None
    return Asked(tuple(labels), Question(lam, tau, outputs, seed), audits)
