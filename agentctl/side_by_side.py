"""Several policies, on one cluster or on variants of it, replayed once each over the same arrivals.

One run each says what would have happened, not which policy is better: `recommend` repeats and pairs runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from agentctl import __version__, inside
from agentctl.analyzers.words import count
from agentctl.engines import Engine, Serial, in_order
from agentctl.errors import UsageError
from agentctl.fleet import Asked, labelled
from agentctl.fleet_curves import fleet_comparison
from agentctl.inside.look import Look
from agentctl.present import Section, Table, Value
from agentctl.result import Progress, RunResult
from agentctl.simulate import look_at_policy, policy_of
from agentctl.slo import Slo, parse_slos
from agentctl.tier_picture import TierPoint, tier_picture, tiers_of
from agentctl.warm_up import compile_first
from agentctl.workload import Process, Workload, compile_arriving

if TYPE_CHECKING:
    from agentctl.cluster import Cluster
    from agentctl.policies.base import Policy
    from agentctl.trace import Trace

SCHEMA = "agentctl/simulate-policies/1"
MOST_DRAWN = 8  # more are told apart by nobody
SHARED = (
    "agentctl_version",
    "trace",
    "cluster",
    "replay",
    "arrivals",
    "concurrency",
    "seed",
    "requests",
    "counts",
)


def run_side_by_side(
    trace: Trace,
    variants: Sequence[tuple[Mapping[str, Any], Cluster]],
    policies: Sequence[tuple[str | None, Mapping[str, Any]]],
    *,
    wanted_hit: float | None = None,
    replay: str | None = None,
    concurrency: int | None = None,
    arrivals: Process | None = None,
    seed: int = 0,
    slos: Sequence[str] = (),
    models: Asked | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Replay `trace` under each of `policies`, (name, parameters), on each of `variants`, (what differs from
    the first, cluster).

    wanted_hit  share of prompt tokens that the least KV tier is looked for with (agentctl.tier_picture)
    engine      where runs are computed (agentctl.engines); default: here, one after the other. It changes
                no result

    The document has schema `agentctl/simulate-policies/1`: what the runs share, and under `runs` what
    `agentctl/simulate/1` has besides, in the order asked for, and `settings`, what differs. No outcome table:
    there is one per run. Raises as `run_simulation`, and UsageError for a policy that is asked for twice.
    """
    objectives = parse_slos(slos)
    chosen = [policy_of(variants[0][1], name, params) for name, params in policies]
    asked = [(policy.name, repr(policy.params)) for policy in chosen]
    for policy, what in zip(chosen, asked, strict=True):
        if asked.count(what) > 1:
            raise UsageError(f"{policy.name} is asked for twice", place="--policy")
    workload = compile_arriving(trace, replay, arrivals, seed)
    if models:
        workload = labelled(workload, trace, variants[0][1], models)
    cases = [
        (settings, cluster, policy_of(cluster, name, params))
        for name, params in policies
        for settings, cluster in variants
    ]
    engine = engine or Serial()
    if engine.workers > 1:
        compile_first(((policy, cluster) for _, cluster, policy in cases), workload)
    run_case = partial(_run_case, workload, objectives, concurrency, seed, models)
    results: list[RunResult] = []
    looks: list[Look] = []
    for case, (result, look) in zip(cases, in_order(run_case, cases, engine), strict=True):
        result.document["settings"] = dict(case[0])
        called = _called(chosen, len(results) // len(variants))
        looks.append(look._replace(name=", ".join([called, *_set(case[0])]), colour=len(results)))
        results.append(result)
        if progress:
            progress(len(results) / len(cases), f"{len(results)} of {len(cases)} runs")
    runs = [result.document for result in results]
    shared = SHARED if len(variants) == 1 else tuple(key for key in SHARED if key != "cluster")
    document = {
        "schema": SCHEMA,
        "agentctl_version": __version__,
        **{key: runs[0][key] for key in shared if key != "agentctl_version"},
        "runs": [{key: run[key] for key in run if key not in (*shared, "schema")} for run in runs],
    }
    engines = count(variants[0][1].n_engines, "engine")
    tried = f", with {len(variants)} settings" if len(variants) > 1 else ""
    tried += f", {workload.arriving.words()}" if workload.arriving else ""
    sentence = (
        f"{count(len(chosen), 'policy', 'policies')} on {engines}{tried}, one run each: small differences "
        "may be luck; `agentctl recommend` pairs repeated runs and gives intervals."
    )
    sections = (
        Section("policies", "What would have happened", sentence, tables=(_table(runs),)),
        *tier_picture(
            [_point(run, cluster) for run, (_, cluster, _) in zip(runs, cases, strict=True)], wanted_hit
        ),
        *fleet_comparison(runs, [_called(chosen, k // len(variants)) for k in range(len(runs))]),
        *(
            replace(one, sentence="", is_detail=True)
            for one in inside.sections(looks[:MOST_DRAWN], "one load")
        ),
        Section(
            "assumptions",
            "What was assumed",
            "The numbers hold under these assumptions.",
            assumptions=_assumptions(results),
        ),
    )
    return RunResult(document, sections)


def _called(chosen: Sequence[Policy], place: int) -> str:
    """A policy's name; with its parameters where it is there with others, too."""
    policy = chosen[place]
    if sum(other.name == policy.name for other in chosen) == 1:
        return policy.name
    told = (f"{key} {value:g}" for key, value in policy.params.items() if not math.isnan(value))
    return f"{policy.name} {', '.join(told)}"


def _assumptions(results: Sequence[RunResult]) -> tuple[str, ...]:
    """What all runs rest on, then what only some do (their router's settings), with the policy's name."""
    said = [result.sections[-1].assumptions for result in results]
    shared = [one for one in said[0] if all(one in others for others in said)]
    own = [
        f"{_label(result.document)}: {one}"
        for result, mine in zip(results, said, strict=True)
        for one in mine
        if one not in shared
    ]
    return (*shared, *own)


def _run_case(
    workload: Workload,
    objectives: tuple[Slo, ...],
    concurrency: int | None,
    seed: int,
    models: Asked | None,
    case: tuple[Mapping[str, Any], Cluster, Policy],
) -> tuple[RunResult, Look]:
    _, cluster, policy = case
    result, look = look_at_policy(workload, cluster, policy, objectives, concurrency, seed, models=models)
    return replace(result, outcome=None), look


def _table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """A column for every key that is varied."""
    keys = tuple(runs[0]["settings"])
    energies: tuple[tuple[str, str, str], ...] = (
        ("tokens, cached too", "tokens_per_j", "tokens_per_j"), ("a session", "j", "energy_per_session_j"),
    )  # fmt: skip
    if any(run["energy"]["tokens_per_j"] is None for run in runs):
        energies = ()
    columns = (
        ("policy", ""), *((key.replace("_", " ").replace(".", " "), "") for key in keys),
        ("TTFT p50", "s"), ("TTFT p95", "s"), ("TPOT p95", "s"), ("session p50", "s"), ("hit", "ratio"),
        ("within SLO", "ratio"), ("prefill, busiest over mean", "ratio"),
        *((label, unit) for label, unit, _ in energies),
    )  # fmt: skip
    rows: list[tuple[Value, ...]] = []
    for run in runs:
        metrics = run["metrics"]
        rows.append(
            (
                run["policy"] + _rejected(run), *(run["settings"][key] for key in keys),
                metrics["ttft_s"]["p50"], metrics["ttft_s"]["p95"], metrics["tpot_s"]["p95"],
                metrics["session_s"]["p50"], metrics["hit_ratio"]["value"], metrics["within_slo"]["value"],
                metrics["imbalance_prefill"]["value"],
                *(metrics[name]["value"] for _, _, name in energies),
            )
        )  # fmt: skip
    return Table(columns, tuple(rows))  # type: ignore[arg-type]


def _point(run: Mapping[str, Any], cluster: Cluster) -> TierPoint:
    metrics = run["metrics"]
    hit, host, shared = (metrics[f"hit{kind}_ratio"]["value"] for kind in ("", "_host", "_global"))
    tokens, speed = tiers_of(cluster)
    ttft = metrics["ttft_s"]["p95"]
    return TierPoint(run["policy"], tokens, speed, hit, host, shared, ttft_p95_s=ttft)


def _label(run: Mapping[str, Any]) -> str:
    return ", ".join([run["policy"], *_set(run["settings"])]) + _rejected(run)


def _rejected(run: Mapping[str, Any]) -> str:
    return f" ({run['rejected']:,} rejected)" if run["rejected"] else ""


def _set(settings: Mapping[str, Any]) -> list[str]:
    return [
        f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}" for key, value in settings.items()
    ]
