"""The paper's comparison, run again: systems by rates by draws, as it was counted and with what was left out.

Behind `agentctl study conserve`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as t_distribution

from agentctl import __version__
from agentctl.conserve.conversations import Tokens, draw, order_of
from agentctl.conserve.costs import A40, Machine
from agentctl.conserve.measure import Measured, isolated_sessions, measure
from agentctl.conserve.run import COLLOCATED, CONSERVE, DISAGGREGATED, PER_TURN, QUANTILE, Rules, run
from agentctl.conserve.state import F64
from agentctl.metrics import Isolated
from agentctl.present import Unit

STUDY_SCHEMA = "agentctl/study/1"
RATES = (0.5, 1.0, 1.5, 2.0)
ERRORS = (0.05, 0.1, 0.2, 0.5)
UNITS: dict[str, Unit] = {"above_5": "ratio", "_s": "s", "_j": "", "max": "count"}


class System(NamedTuple):
    name: str
    label: str
    rules: Rules
    engines: int  # that decode
    errors: float = 0.0


class Row(NamedTuple):
    """Values by draw, [draw, metric]."""

    system: System
    rate: float
    values: F64

    def by_seed(self, metric: str) -> F64:
        return self.values[:, Measured._fields.index(metric)]

    def mean(self, metric: str) -> float:
        return float(self.by_seed(metric).mean())


class Study(NamedTuple):
    tokens: Tokens
    rates: tuple[float, ...]
    seeds: int
    rows: tuple[Row, ...]

    def row(self, name: str, rate: float) -> Row:
        return next(row for row in self.rows if (row.system.name, row.rate) == (name, rate))


def systems(errors: Sequence[float]) -> tuple[System, ...]:
    """One prefill engine and three decoders, or four of both kinds."""
    per_turn = Rules(CONSERVE, PER_TURN)
    wrong = [System(f"errors-{p:g}", f"{100 * p:g} % errors", per_turn, 3, p) for p in errors]
    return (
        System("conserve", "ConServe", Rules(CONSERVE), 3),
        System("conserve-per-turn", "ConServe, KV per turn", per_turn, 3),
        System("conserve-quantile", "ConServe, KV by quantile", Rules(CONSERVE, QUANTILE), 3),
        *wrong,
        System("collocated", "collocated", Rules(COLLOCATED), 4),
        System("disaggregated", "full disaggregation", Rules(DISAGGREGATED), 3),
    )


def study(
    tokens: Tokens,
    rates: Sequence[float] = RATES,
    errors: Sequence[float] = ERRORS,
    seeds: int = 5,
    machine: Machine = A40,
    progress: Callable[[float, str], None] | None = None,
) -> Study:
    """Run everything. All systems meet the same draws; the first are the authors' own."""
    alone = isolated_sessions(tokens.fresh, tokens.output, machine)
    orders = [order_of(tokens.fresh.shape[0], seed) for seed in range(seeds)]
    isolated = [Isolated(*(values[order] for values in alone)) for order in orders]
    cells = [(system, rate) for system in systems(errors) for rate in rates]
    rows = []
    for place, (system, rate) in enumerate(cells):
        values = []
        for seed in range(seeds):
            sessions = draw(tokens, rate, seed, system.errors)
            state = run(sessions, system.rules, system.engines, machine)
            values.append(measure(sessions, state, system.rules, machine, isolated[seed]))
        rows.append(Row(system, rate, np.array(values)))
        if progress:
            progress((place + 1) / len(cells), "simulating")
    return Study(tokens, tuple(rates), seeds, tuple(rows))


def gain(found: Study, rate: float, over: str, metric: str = "ttfet_x_p95") -> F64:
    """How much less ConServe takes than `over`, as a share, by draw."""
    return 1 - found.row("conserve", rate).by_seed(metric) / found.row(over, rate).by_seed(metric)


def interval(values: F64) -> tuple[float | None, float | None]:
    """95 % of the mean; None for one draw."""
    if values.size < 2 or np.isnan(values).any():
        return None, None
    half = float(t_distribution.ppf(0.975, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size))
    return float(values.mean()) - half, float(values.mean()) + half


def unit_of(metric: str) -> Unit:
    return next((unit for end, unit in UNITS.items() if metric.endswith(end)), "")


def document(found: Study, machine: Machine = A40) -> dict[str, Any]:
    n, turns = found.tokens.fresh.shape
    return {
        "schema": STUDY_SCHEMA,
        "agentctl_version": __version__,
        "study": "conserve",
        "mode": "paper",
        "conversations": {
            "name": found.tokens.name,
            "sessions": n,
            "turns": turns,
            "left_out": found.tokens.left_out,
            "full_context_tokens": found.tokens.full_context,
        },
        "machine": machine._asdict(),
        "rates_per_s": list(found.rates),
        "draws": found.seeds,
        "runs": [_run(row) for row in found.rows],
    }


def metric_facts(name: str, values: F64) -> dict[str, Any]:
    """One metric by draw, its mean and the interval of the mean."""
    low, high = interval(values)
    by_draw = [None if np.isnan(value) else float(value) for value in values]
    mean = None if None in by_draw else float(values.mean())
    return {"unit": unit_of(name), "mean": mean, "low": low, "high": high, "by_draw": by_draw}


def _run(row: Row) -> dict[str, Any]:
    metrics = {name: metric_facts(name, row.by_seed(name)) for name in Measured._fields}
    system = row.system
    return {
        "system": system.name,
        "rate_per_s": row.rate,
        "errors": system.errors,
        "decode_engines": system.engines,
        "metrics": metrics,
    }
