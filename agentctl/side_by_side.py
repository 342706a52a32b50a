"""Several policies on one cluster, replayed once each over the same arrivals (`simulate` with many --policy).

One run each says what would have happened, not which policy is better: `recommend` repeats and pairs runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentctl import __version__, inside
from agentctl.analyzers.words import count
from agentctl.errors import UsageError
from agentctl.present import Section, Table, Value
from agentctl.result import Progress, RunResult
from agentctl.simulate import look_at_policy, policy_of
from agentctl.slo import parse_slos
from agentctl.workload import compile_workload

if TYPE_CHECKING:
    from agentctl.cluster import Cluster
    from agentctl.policies.base import Policy
    from agentctl.trace import Trace

SCHEMA = "agentctl/simulate-policies/1"
MOST_DRAWN = 8  # more are told apart by nobody
SHARED = ("agentctl_version", "trace", "cluster", "replay", "concurrency", "seed", "requests", "counts")


def run_side_by_side(
    trace: Trace,
    cluster: Cluster,
    policies: Sequence[tuple[str | None, Mapping[str, Any]]],
    *,
    replay: str | None = None,
    concurrency: int | None = None,
    seed: int = 0,
    slos: Sequence[str] = (),
    progress: Progress | None = None,
) -> RunResult:
    """Replay `trace` on `cluster` under each of `policies`, (name, parameters).

    The document has schema `agentctl/simulate-policies/1`: what the runs share, and under `runs` what
    `agentctl/simulate/1` has besides, in the order asked for. No outcome table: there is one per run. Raises
    as `run_simulation`, and UsageError for a policy that is asked for twice.
    """
    objectives = parse_slos(slos)
    chosen = [policy_of(cluster, name, params) for name, params in policies]
    asked = [(policy.name, repr(policy.params)) for policy in chosen]
    for policy, what in zip(chosen, asked, strict=True):
        if asked.count(what) > 1:
            raise UsageError(f"{policy.name} is asked for twice", place="--policy")
    workload = compile_workload(trace, replay=replay)
    results, looks = [], []
    for done, policy in enumerate(chosen):
        step = _part_of(progress, done, len(chosen))
        result, look = look_at_policy(workload, cluster, policy, objectives, concurrency, seed, step)
        results.append(result)
        looks.append(look._replace(name=_called(chosen, done), colour=done))
    runs = [result.document for result in results]
    document = {
        "schema": SCHEMA,
        "agentctl_version": __version__,
        **{key: runs[0][key] for key in SHARED if key != "agentctl_version"},
        "runs": [{key: run[key] for key in run if key not in (*SHARED, "schema")} for run in runs],
    }
    engines = count(document["cluster"]["engines"], "engine")
    sentence = (
        f"{count(len(runs), 'policy', 'policies')} on {engines}, one run each: small differences may be "
        "luck; `agentctl recommend` pairs repeated runs and gives intervals."
    )
    sections = (
        Section("policies", "What would have happened", sentence, tables=(_table(runs),)),
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
        f"{result.document['policy']}: {one}"
        for result, mine in zip(results, said, strict=True)
        for one in mine
        if one not in shared
    ]
    return (*shared, *own)


def _part_of(progress: Progress | None, done: int, n: int) -> Progress | None:
    if progress is None:
        return None
    whole = progress
    return lambda share, what: whole((done + share) / n, what)


def _table(runs: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        ("policy", ""), ("TTFT p50", "s"), ("TTFT p95", "s"), ("TPOT p95", "s"), ("session p50", "s"),
        ("hit", "ratio"), ("within SLO", "ratio"), ("prefill, busiest over mean", "ratio"),
    )  # fmt: skip
    rows: list[tuple[Value, ...]] = []
    for run in runs:
        metrics = run["metrics"]
        rows.append(
            (
                _label(run), metrics["ttft_s"]["p50"], metrics["ttft_s"]["p95"], metrics["tpot_s"]["p95"],
                metrics["session_s"]["p50"], metrics["hit_ratio"]["value"], metrics["within_slo"]["value"],
                metrics["imbalance_prefill"]["value"],
            )
        )  # fmt: skip
    return Table(columns, tuple(rows))  # type: ignore[arg-type]


def _label(run: Mapping[str, Any]) -> str:
    rejected = f" ({run['rejected']:,} rejected)" if run["rejected"] else ""
    return f"{run['policy']}{rejected}"
