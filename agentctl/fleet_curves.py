"""Routers between models side by side: what quality costs in money and in waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentctl.present import Curve, Figure, Section, Table, Value

COLUMNS = (
    ("on-time utility", "ratio", "on_time_utility"), ("utility", "ratio", "utility_mean"),
    ("score", "ratio", "score_mean"), ("cost", "microdollar", "cost_microdollars_mean"),
    ("TTFT", "s", "ttft_s_mean"), ("on time", "ratio", "on_time_ratio"),
    ("wrongly on time", "ratio", "false_feasible_ratio"), ("wrongly late", "ratio", "false_infeasible_ratio"),
)  # fmt: skip


def fleet_comparison(runs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> tuple[Section, ...]:
    """Of documents of `agentctl/simulate/1`; nothing without several models. Runs of one policy with other
    parameters are a curve, in the order in which they were asked for."""
    found = [
        (name, run["policy"], run["models"]) for name, run in zip(names, runs, strict=True) if run["models"]
    ]
    if not found:
        return ()
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (name, *(models[key] for _, _, key in COLUMNS)) for name, _, models in found
    )
    best = max(range(len(found)), key=lambda k: found[k][2]["on_time_utility"] or float("-inf"))
    sentence = "Nobody has judged an answer."
    if found[best][2]["on_time_utility"] is not None:
        sentence = f"{found[best][0]} has the most on-time utility: {found[best][2]['on_time_utility']:.3f}."
    table = Table((("policy", ""), *((title, unit) for title, unit, _ in COLUMNS)), rows, best={1: best})  # type: ignore[arg-type]
    figures = (
        _trade_off(
            found, "utility-latency", "What does waiting less cost in utility?", "ttft_s_mean",
            "utility_mean", "mean time to the first token", "mean utility", "s",
            "Up and to the left is better. Points of one policy differ in a parameter, such as soft's delta.",
        ),
        _trade_off(
            found, "accuracy-cost", "What do better answers cost?", "cost_microdollars_mean", "score_mean",
            "mean cost of a request, millionths of a dollar", "mean score", "microdollar",
            "Up and to the left is better. Points of one policy differ in a parameter, such as lam.",
        ),
    )  # fmt: skip
    return (Section("models", "Between models", sentence, tables=(table,), figures=figures),)


def _trade_off(
    found: Sequence[tuple[str, str, Mapping[str, Any]]],
    name: str,
    question: str,
    x: str,
    y: str,
    x_label: str,
    y_label: str,
    x_unit: Any,
    conclusion: str,
) -> Figure:
    curves = []
    for policy in dict.fromkeys(policy for _, policy, _ in found):
        points = [(m[x], m[y]) for _, p, m in found if p == policy and None not in (m[x], m[y])]
        if points:
            xs, ys = zip(*points, strict=True)
            shape: Any = "line" if len(points) > 1 else "points"
            curves.append(Curve(policy, xs, ys, shape=shape))
    return Figure(
        name, question, x_label, y_label, tuple(curves), conclusion, x_log=True, y_unit="ratio", x_unit=x_unit
    )
