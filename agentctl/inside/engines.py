"""How even the load of engines is over time: requests on each, waiting ones included, as means of windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentctl.inside.look import Look, share
from agentctl.metrics import Counts, Floats, Run, Stays, busiest, over_mean, roles_of, stays
from agentctl.present import Curve, Figure, Section, Table, Unit, Value
from agentctl.sim.roles import ROLES

WINDOWS = 100
NOTHING = 1e-9  # requests: what is left of rounding
Column = tuple[str, Unit]


def engines(looks: Sequence[Look]) -> Section:
    """Uneven: in every window the busiest engine over the mean one (with roles: of its role, by load),
    windows weighed by their load."""
    head: tuple[Column, ...] = (
        ("policy", ""), ("requests on an engine", ""), ("at the busiest time", ""), ("busiest / mean", ""),
        ("prefill, busiest / mean", ""),
    )  # fmt: skip
    rows: list[tuple[Value, ...]] = []
    for look in looks:
        _, load = on_engines(look.run)
        mean = load.mean(axis=1)
        held_s = load[mean > 0]
        by_window = over_mean(look.run, held_s, busiest) * held_s.mean(axis=1)
        uneven = float(by_window.sum() / mean.sum()) if mean.sum() > 0 else None
        held = (float(mean.mean()), float(mean.max())) if mean.size else (None, None)
        rows.append((look.name, *held, uneven, share(look.run, "imbalance_prefill")))
    ratio, sentence = rows[0][3], "No request was served."
    if isinstance(ratio, float):
        sentence = (
            f"Under {looks[0].name} the engine that is busiest at a time holds {ratio:.2f} times the "
            f"requests of the mean one{' of its role' if looks[0].run.hand_overs else ''}."
        )
    figures = (load_figure(looks),) if any(look.run.done.any() for look in looks) else ()
    table = Table(head, tuple(rows))
    return Section("engines", "Load of the engines", sentence, tables=(table,), figures=figures)


def load_figure(looks: Sequence[Look]) -> Figure:
    curves = []
    for panel, look in enumerate(looks):
        edges, load = on_engines(look.run)
        if load.size:
            whole = np.concatenate([load, load[-1:]])  # a step holds until the next
            for kind, some in _kinds(look.run):
                mean, least, most = (
                    tuple(of(whole[:, some], axis=1).tolist()) for of in (np.mean, np.min, np.max)
                )
                name = f"mean of the {kind}, calmest to busiest"
                curves.append(Curve(name, tuple(edges.tolist()), mean, "step", least, most, panel=panel))
    return Figure(
        name="load",
        question="Are engines loaded evenly at every time?",
        x_label="time (s)",
        y_label="requests on an engine, waiting ones included, mean of a window",
        curves=tuple(curves),
        conclusion="The line is the mean engine, the band reaches from the calmest to the busiest one: a "
        "wide band is uneven load, a line that keeps rising is more than the cluster can do.",
        panels=tuple(look.name for look in looks) if len(looks) > 1 else (),
    )


def _kinds(run: Run) -> list[tuple[str, Counts]]:
    """Engines that one band is of: those of a role."""
    if run.hand_overs is None:
        return [("engines", some) for some in roles_of(run)]
    names = {
        code: "engines that do both" if name == "both" else f"{name} engines" for name, code in ROLES.items()
    }
    return [(names[int(run.hand_overs.role_of_engine[some[0]])], some) for some in roles_of(run)]


def on_engines(run: Run) -> tuple[Floats, Floats]:
    """(edges of WINDOWS windows, mean requests [window, engine]) from the first arrival to the last finish;
    none when nothing finished. Exact: what is seen does not depend on when one looks."""
    if not run.done.any():
        return np.empty(0), np.empty((0, run.n_engines))
    edges = np.linspace(run.arrival_s.min(), np.nanmax(run.finish_s), WINDOWS + 1)
    there = stays(run)
    held = np.stack([_held(there, edges, engine) for engine in range(run.n_engines)], axis=1)
    load = np.diff(held, axis=0) / np.diff(edges)[:, None]
    return edges, np.where(load > NOTHING, load, 0.0)


def _held(there: Stays, until: Floats, engine: int) -> Floats:
    """Seconds that requests spent on an engine until each of these instants, added up."""
    mine = there.engine == engine
    total = np.zeros(until.size)
    for instants, sign in ((there.since_s[mine], 1.0), (there.until_s[mine], -1.0)):
        ordered = np.sort(instants)
        before = np.searchsorted(ordered, until)
        total += sign * (until * before - np.concatenate([[0.0], np.cumsum(ordered)])[before])
    return total
