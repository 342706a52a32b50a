"""Which engine computed how much prefill when: maps of runs above each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentctl.analyzers.words import percent, seconds
from agentctl.inside.look import Look
from agentctl.present import Figure, Heat, Section, Table, Unit

Column = tuple[str, Unit]


def hot(looks: Sequence[Look]) -> Section:
    """The hottest windows of every run; what is behind them is in the document."""
    head: tuple[Column, ...] = (
        ("policy", ""), ("engine", "count"), ("window", ""), ("prefill, of the window", "ratio"),
        ("times the mean", ""),
    )  # fmt: skip
    hottest = [(look.name, look.spots["hot"][0]) for look in looks if look.spots["hot"]]
    rows = tuple(
        (name, one["engine"], _window(one), one["busy_ratio"], one["times_mean"]) for name, one in hottest
    )
    sentence = "No engine computed more prefill than another at any time."
    if looks[0].spots["hot"]:
        first = looks[0].spots["hot"][0]
        sentence = (
            f"Hottest under {looks[0].name} was engine {first['engine']} from {_window(first)}: prefill "
            f"took {percent(first['busy_ratio'])} of that time, {first['times_mean']:.2f} times the mean of "
            f"{looks[0].spots['mean_of']}."
        )
    tables = (Table(head, rows, "The hottest window of each"),) if rows else ()
    return Section("hot-spots", "Hot spots", sentence, tables=tables, figures=(hot_figure(looks),))


def _window(spot: dict[str, Any]) -> str:
    return f"{seconds(spot['from_s'])} to {seconds(spot['to_s'])}"


def hot_figure(looks: Sequence[Look]) -> Figure:
    return Figure(
        name="hot-spots",
        question="Which engine computes how much prefill, and when?",
        x_label="time (s)",
        y_label="engine",
        curves=(),
        conclusion="A dark cell among light ones is a hot spot: requests wait there while other engines "
        "have nothing to compute. A dark column is load that no router can move. All of a request's prefill "
        "counts where and when it was first admitted.",
        panels=tuple(look.name for look in looks) if len(looks) > 1 else (),
        heats=tuple(_heat(look.spots, panel) for panel, look in enumerate(looks)),
    )


def _heat(spots: dict[str, Any], panel: int) -> Heat:
    width, rows = spots["window_s"], spots["prefill_s"]
    edges = tuple(spots["start_s"] + width * n for n in range(len(rows[0]) + 1))
    z = tuple(tuple(value / width for value in row) for row in rows)
    return Heat(edges, z, "prefill, seconds per second", panel)
