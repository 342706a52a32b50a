"""What a router between models made of a run: quality, price and punctuality, by model and task; and how far
off its estimates were."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentctl.analyzers.words import count, percent
from agentctl.metrics import Run, measure_of, on_time
from agentctl.present import Section, Table, Value
from agentctl.sim.fleet_outcome import Served
from agentctl.sim.outcome import Outcome

F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]
OF_RUN = ("on_time_utility", "on_time_ratio", "false_feasible_ratio", "false_infeasible_ratio")
LOADS = 4  # parts of the requests, by how many were in the system when they came


def fleet_facts(outcome: Outcome, run: Run) -> dict[str, Any] | None:
    """Means over requests that were served; None without several models."""
    served = outcome.served
    if served is None:
        return None
    is_on_time = on_time(run)
    tasks: list[tuple[str | None, Mask]] = [(name, served.task == k) for k, name in enumerate(served.tasks)]
    if (served.task < 0).any():
        tasks.append((None, served.task < 0))
    everything = np.ones(run.done.size, dtype=bool)
    return {
        **{name: _number(measure_of(name, run)) for name in OF_RUN},
        "unjudged": int((run.done & np.isnan(served.score)).sum()),
        **_means(served, run, is_on_time, everything),
        "models": [
            {"model": model, **_means(served, run, is_on_time, served.pool == p)}
            for p, model in enumerate(served.models)
        ],
        "tasks": [
            {
                "task": name,
                **_means(served, run, is_on_time, which),
                "models": {
                    model: _over(int((which & (served.pool == p)).sum()), int((which & run.done).sum()))
                    for p, model in enumerate(served.models)
                },
            }
            for name, which in tasks
        ],
        "estimates": _estimates(served, run, tasks),
    }


def _number(value: Any) -> float | None:
    return value if isinstance(value, float) else None


def _over(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _means(served: Served, run: Run, is_on_time: Mask, which: Mask) -> dict[str, Any]:
    of = which & run.done
    return {
        "requests": int(which.sum()),
        "score_mean": _mean(served.score[of]),
        "cost_microdollars_mean": _mean(served.cost[of]),
        "utility_mean": _mean(served.utility[of]),
        "ttft_s_mean": _mean((run.first_token_s - run.arrival_s)[of]),
        "on_time_share": _over(int(is_on_time[which].sum()), int(which.sum())),
    }


def _mean(values: F64) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


# Estimates of the time to the first token against what the simulation made of it


def _estimates(served: Served, run: Run, tasks: list[tuple[str | None, Mask]]) -> list[dict[str, Any]]:
    """By estimator: errors of all requests, by load and by task."""
    ttft = run.first_token_s - run.arrival_s
    parts: list[tuple[dict[str, Any], Mask]] = [({"part": "all"}, run.done)]
    parts += [({"part": "load", "quarter": k + 1}, mask) for k, mask in enumerate(_by_load(run))]
    parts += [({"part": "task", "task": name}, mask & run.done) for name, mask in tasks]
    said = served.audits or {"router": served.believed_ttft_s}
    return [
        {"estimator": name, **what, **_errors(seconds[mask], ttft[mask])}
        for name, seconds in said.items()
        for what, mask in parts
        if not np.isnan(seconds).all()
    ]


def _by_load(run: Run) -> list[Mask]:
    """Quarters of the served requests by how many others were in the system when they arrived."""
    done = np.flatnonzero(run.done)
    begun = np.searchsorted(np.sort(run.arrival_s[done]), run.arrival_s[done], "left")
    ended = np.searchsorted(np.sort(run.finish_s[done]), run.arrival_s[done], "right")
    masks = []
    for part in np.array_split(np.argsort(begun - ended, kind="stable"), LOADS):
        mask = np.zeros(run.done.size, dtype=bool)
        mask[done[part]] = True
        masks.append(mask)
    return masks


def _errors(estimate: F64, actual: F64) -> dict[str, Any]:
    known = np.isfinite(estimate) & (actual > 0)
    if not known.any():
        return {"requests": 0, "mape": None, "median_ape": None, "bias": None}
    off = estimate[known] / actual[known] - 1
    return {
        "requests": int(known.sum()),
        "mape": float(np.abs(off).mean()),
        "median_ape": float(np.median(np.abs(off))),
        "bias": float(off.mean()),
    }


# For people


def fleet_section(facts: dict[str, Any]) -> Section:
    gained = facts["on_time_utility"]
    sentence = "No request was judged."
    if gained is not None:
        score = _said(facts["score_mean"], ".3f")
        cost = _said(facts["cost_microdollars_mean"], ".1f")
        sentence = (
            f"On-time utility {gained:.3f}: {percent(facts['on_time_ratio'])} of first tokens came in time; "
            f"answers score {score} and cost {cost} millionths of a dollar on average."
        )
    head = (
        ("requests", "count"), ("score", "ratio"), ("cost", "microdollar"), ("utility", "ratio"),
        ("TTFT", "s"), ("on time", "ratio"),
    )  # fmt: skip
    keys = (
        "requests",
        "score_mean",
        "cost_microdollars_mean",
        "utility_mean",
        "ttft_s_mean",
        "on_time_share",
    )
    models = facts["models"]
    tables = [
        Table((("model", ""), *head), tuple((one["model"], *(one[k] for k in keys)) for one in models))  # type: ignore[arg-type]
    ]
    if facts["tasks"]:
        shares = list(facts["tasks"][0]["models"])
        rows: tuple[tuple[Value, ...], ...] = tuple(
            (one["task"] or "unknown", *(one[k] for k in keys), *(one["models"][m] for m in shares))
            for one in facts["tasks"]
        )
        columns = (("task", ""), *head, *((f"to {model}", "ratio") for model in shares))
        tables.append(Table(columns, rows))  # type: ignore[arg-type]
    if facts["estimates"]:
        tables.append(_errors_table(facts["estimates"]))
    unjudged = facts["unjudged"]
    warnings = (
        (f"{count(unjudged, 'answer')} nobody has judged: they count in no score and no utility",)
        if unjudged
        else ()
    )
    return Section(
        "models",
        "Between models",
        sentence,
        tables=tuple(tables),
        warnings=warnings,
        assumptions=question_words(facts),
    )


def question_words(facts: dict[str, Any]) -> tuple[str, ...]:
    """What was asked of the router (agentctl.fleet.Question), where the document has it."""
    if "lam" not in facts:
        return ()
    lengths = {"predicted": "are predicted", "true": "are known"}.get(
        facts["outputs"], f"are {facts['outputs']} of the true ones"
    )
    return (
        f"utility is score - {facts['lam']:g} per millionth of a dollar; a first token is on time within "
        f"{facts['tau']}; lengths of answers {lengths} for the router",
    )


def _said(value: float | None, form: str) -> str:
    return "unknown" if value is None or math.isnan(value) else format(value, form)


def _errors_table(estimates: list[dict[str, Any]]) -> Table:
    head = (
        ("estimate of TTFT", ""), ("of", ""), ("requests", "count"), ("MAPE", "ratio"), ("median", "ratio"),
        ("bias", "ratio"),
    )  # fmt: skip
    rows: list[tuple[Value, ...]] = []
    for one in estimates:
        part = {"all": "all", "load": f"load, quarter {one.get('quarter')}"}.get(
            one["part"], f"task {one.get('task') or 'unknown'}"
        )
        rows.append((one["estimator"], part, one["requests"], one["mape"], one["median_ape"], one["bias"]))
    return Table(head, tuple(rows))  # type: ignore[arg-type]
