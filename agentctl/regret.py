"""Regret: how much later first tokens came than on the best engine, over a sample of a run's requests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentctl.analyzers.words import count, percent, seconds
from agentctl.cluster import Cluster
from agentctl.explain import best_engine
from agentctl.metrics import nearest_rank
from agentctl.policies.base import Policy
from agentctl.present import Fact, Section, Table, Unit, Value
from agentctl.result import Progress
from agentctl.sim.explain import decisions
from agentctl.sim.outcome import Outcome

Floats = NDArray[np.float64]
Column = tuple[str, Unit]

BETTER_BY = (0.01, 0.1, 1.0)  # s of TTFT
N_WORST = 5


def sample_regret(
    outcome: Outcome,
    cluster: Cluster,
    policy: Policy,
    seed: int,
    concurrency: int | None,
    n: int,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The document of `regret`: over `n` requests drawn by the seed from those that were served, how much
    later the first token came than on the engine that was best for it.

    Best for this request alone: what its choice does to others is not counted.
    """
    done = np.flatnonzero(outcome.done)
    drawn = np.random.default_rng(seed).permutation(done.size)[:n]
    sample = decisions(
        outcome.workload, cluster, policy, outcome, done[drawn].tolist(),
        seed=seed, concurrency=concurrency, to_end=False,
    )  # fmt: skip
    rows: list[dict[str, Any]] = []
    for one in sample:
        if progress:
            progress(len(rows) / drawn.size, "comparing engines")
        best, first = best_engine(one), one.branches.first_token_s
        assert best is not None, "a request that was served has a first token"
        arrival = outcome.arrival_s[one.request]
        rows.append({
            "request_id": outcome.workload.request_ids[one.request],
            "engine": one.chosen, "best_engine": best,
            "ttft_s": float(first[one.chosen] - arrival), "best_ttft_s": float(first[best] - arrival),
            "ttft_regret_s": float(first[one.chosen] - first[best]),
        })  # fmt: skip
    lost = np.array([row["ttft_regret_s"] for row in rows])
    worst = sorted(rows, key=lambda row: (-row["ttft_regret_s"], row["request_id"]))
    return {
        "requests": len(rows),
        "of_requests": int(done.size),
        "ttft_regret_s": _summary(lost, done.size),
        "better_by": [
            {
                "than_s": by,
                "requests": int((lost > by).sum()),
                "share": float((lost > by).mean()) if rows else None,
            }
            for by in (0.0, *BETTER_BY)
        ],
        "worst": [row for row in worst[:N_WORST] if row["ttft_regret_s"] > 0],
    }


def _summary(lost: Floats, population: int) -> dict[str, float | None]:
    """Of the sample; `mean_error` is half the 95 % interval of the mean over the whole run."""
    if not lost.size:
        return dict.fromkeys(("mean", "mean_error", "p50", "p95", "p99", "max"))
    error = None
    if lost.size == population:
        error = 0.0
    elif lost.size > 1:
        rest = (population - lost.size) / (population - 1)  # drawn without replacement
        error = 1.96 * float(np.std(lost, ddof=1)) * math.sqrt(rest / lost.size)
    ordered = np.sort(lost)
    at = {f"p{p}": float(ordered[nearest_rank(lost.size, p) - 1]) for p in (50, 95, 99)}
    return {"mean": math.fsum(lost) / lost.size, "mean_error": error, **at, "max": float(ordered[-1])}


def regret_section(document: dict[str, Any]) -> Section:
    n, lost = document["requests"], document["ttft_regret_s"]
    if not n:
        return Section("regret", "Regret", "No request was served.")
    notable = next(row for row in document["better_by"] if row["than_s"] == 0.1)
    error = "" if lost["mean_error"] is None else f" ± {seconds(lost['mean_error'])}"
    sentence = (
        f"The first token came {seconds(lost['mean'])}{error} later on average than on the best engine for "
        f"the request; another engine was better by more than 0.1 s for {percent(notable['share'])} of "
        f"{count(n, 'request')}."
    )
    facts = (
        Fact("requests sampled", n, "count", f"of {document['of_requests']:,} that were served"),
        *(Fact(f"TTFT lost, {key}", lost[key], "s", meaning) for key, meaning in (
            ("p50", "half lose at most this"), ("p95", "one in 20 loses more"), ("max", "the worst"),
        )),
        *(Fact(f"another engine better by more than {row['than_s']:g} s", row["share"], "ratio",
               count(row["requests"], "request")) for row in document["better_by"]),
    )  # fmt: skip
    keys = ("request_id", "engine", "best_engine", "ttft_s", "best_ttft_s", "ttft_regret_s")
    rows: tuple[tuple[Value, ...], ...] = tuple(tuple(row[key] for key in keys) for row in document["worst"])
    head: tuple[Column, ...] = (
        ("request", ""), ("engine", ""), ("best engine", ""), ("ttft", "s"), ("best ttft", "s"),
        ("ttft lost", "s"),
    )  # fmt: skip
    tables = (Table(head, rows, title="Where the choice lost most (--explain shows one)"),) if rows else ()
    said = "regret: best for the request itself; what its choice does to others is not counted"
    return Section("regret", "Regret", sentence, facts=facts, tables=tables, assumptions=(said,))
