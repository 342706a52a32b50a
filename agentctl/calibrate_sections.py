"""What a calibration from step logs says, for the terminal and the HTML report."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from agentctl.analyzers.words import count, percent
from agentctl.estimators.batch_model import BatchModel
from agentctl.estimators.batch_terms import MEANING
from agentctl.estimators.step_logs import StepLog
from agentctl.estimators.steps import KINDS
from agentctl.present import Curve, Fact, Figure, Section, Table, Value

MOST_POINTS = 700  # of a kind in the figure
POOR = 0.10  # held-out error from which the reader is warned
FOREIGN = 3.0  # a coefficient that many times its prior, or as much smaller, is another engine's
FOREIGN_HOST = 20.0  # of those that the host decides: of a small model 16 times what its data sheet says
SHAKY = 30.0  # condition from which coefficients trade off
FEW = 30  # steps of a kind below which its error says little
NANO = 1e9


def sections_of(fitted: BatchModel, log: StepLog, prior: Mapping[str, float]) -> tuple[Section, ...]:
    """`prior`: coefficients of the profile that the fit was drawn to."""
    return (_verdict(fitted, log, prior), _coefficients(fitted), _regions(fitted), _assumptions(fitted, log))


def _verdict(fitted: BatchModel, log: StepLog, prior: Mapping[str, float]) -> Section:
    held = fitted.held_out
    sentence = (
        f"On steps that it had not seen, {fitted.model} errs by {percent(held.mape)} "
        f"(median {percent(held.median_ape)}), fitted to {count(fitted.rows, 'step')}."
    )
    facts = (
        Fact("held-out MAPE", held.mape, "ratio", "mean relative error, every fifth block of time left out"),
        Fact("held-out median", held.median_ape, "ratio", "half of the steps are closer"),
        Fact("bias", held.bias, "ratio", "above 0: the model says too long"),
        Fact("R2", held.r2, "", "of seconds; long prefills decide it, so judge by the errors"),
        Fact("MAPE with stalls", fitted.held_out_with_stalls.mape, "ratio", "stalls counted as steps"),
        Fact("stalls", fitted.stalls, "count", "steps far longer than their kind, left out of the fit"),
        Fact("mean delay of a stall", fitted.stall_delay_s, "s", "not part of the profile's batch time"),
        Fact("condition", fitted.condition, "", f"above {SHAKY:.0f} coefficients trade off"),
    )
    return Section(
        "fit", "How long a step takes", sentence, facts=facts, figures=(_residuals(fitted),),
        warnings=(*_warnings(fitted, log), *_of_prior(fitted, prior)),
    )  # fmt: skip


def _warnings(fitted: BatchModel, log: StepLog) -> list[str]:
    warnings = []
    if fitted.held_out.mape > POOR:
        warnings.append(
            f"a held-out error of {percent(fitted.held_out.mape)} is large: compare --model and --terms, and "
            "record on a quiet machine"
        )
    if fitted.missing:
        warnings.append(
            f"no profile can be written: {', '.join(fitted.missing)} cannot be seen in these steps"
        )
    if fitted.condition > SHAKY:
        warnings.append(
            "coefficients trade off: their sum is known better than each; vary lengths and batch sizes"
        )
    free = [name for name in ("b_prefill", "b_token", "b_context") if fitted.values.get(name) == 0]
    if free:
        warnings.append(
            f"{', '.join(free)} came out 0: a simulation takes such work for free; check that the column of "
            "durations is the step's own"
        )
    few = [name for name, rows in fitted.kinds.items() if rows < FEW]
    if few and not fitted.missing:
        warnings.append(f"fewer than {FEW} steps are {' or '.join(few)}: errors there are not established")
    if log.set_aside["waited for a core"] > 0.1 * log.read:
        warnings.append(
            f"{count(log.set_aside['waited for a core'], 'step')} waited for a core and were set aside: the "
            "machine was busy"
        )
    return warnings


def foreign(fitted: BatchModel, prior: Mapping[str, float]) -> list[str]:
    """Coefficients by which the prior is of another engine, in words: found where the steps speak."""
    return [
        f"{name} ({known.value / prior[name]:.2g} times the prior's)"
        for name, known in fitted.coefficients.items()
        if known.status == "ok" and known.value and prior.get(name)
        if not 1 / FOREIGN < known.value / prior[name] < _most_times(name)
    ]


def _most_times(name: str) -> float:
    return FOREIGN_HOST if name in ("b_decode", "h0", "h_seq") else FOREIGN


def _of_prior(fitted: BatchModel, prior: Mapping[str, float]) -> list[str]:
    far = foreign(fitted, prior)
    return [f"the prior is of another kind of engine: {', '.join(far)}"] if far else []


def _coefficients(fitted: BatchModel) -> Section:
    rows: list[tuple[Value, ...]] = []
    for name, known in fitted.coefficients.items():
        value = None if known.value is None else known.value * NANO
        error = (
            None if known.standard_error is None or not known.value else known.standard_error / known.value
        )
        rows.append((name, MEANING[name], _short(value), error, known.separable, known.status))
    head = (
        ("coefficient", ""), ("per", ""), ("ns", ""), ("standard error", "ratio"), ("separable", "ratio"),
        ("status", ""),
    )  # fmt: skip
    sentence = (
        "Coefficients in nanoseconds. `weak`: the standard error is above half of the value; "
        "`zero`: at its bound; separable: what no other term explains."
    )
    return Section("coefficients", "Coefficients", sentence, tables=(Table(head, tuple(rows)),))  # type: ignore[arg-type]


def _short(value: float | None) -> str | None:
    """Four digits, without an exponent: from 0.2 to 11,400,000 in one column."""
    if value is None:
        return None
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _regions(fitted: BatchModel) -> Section:
    rows = tuple((name, e.rows, e.mape, e.median_ape, e.bias) for name, e in fitted.regions.items())
    head = (("steps", ""), ("number", "count"), ("MAPE", "ratio"), ("median", "ratio"), ("bias", "ratio"))
    sentence = "Held-out errors by kind and by size: a profile serves traffic whose steps err little."
    tables = [Table(head, rows)]  # type: ignore[arg-type]
    if fitted.tried:
        tried = tuple(sorted(fitted.tried.items(), key=lambda one: one[1]))
        tables.append(
            Table((("terms beside the base", ""), ("held-out error", "ratio")), tried, "Candidates")
        )
    return Section("regions", "Where it errs", sentence, tables=tuple(tables))


def _residuals(fitted: BatchModel) -> Figure:
    error = fitted.predicted / fitted.steps.seconds - 1
    curves = []
    for number, name in enumerate(KINDS):
        rows = np.flatnonzero(fitted.steps.kind == number)
        rows = rows[:: max(1, -(-len(rows) // MOST_POINTS))]
        if len(rows):
            x, y = fitted.steps.seconds[rows] * 1e3, error[rows]
            curves.append(Curve(name, tuple(map(float, x)), tuple(map(float, y)), "points"))
    return Figure(
        name="calibrate-residuals",
        question="Where is the model wrong?",
        x_label="measured step (ms)",
        y_label="held-out relative error",
        curves=tuple(curves),
        conclusion="A cloud around 0 without a trend means that the form fits; a band above or below 0 for "
        "one kind of step is a bias that a simulation inherits. At most some hundred of a kind are drawn.",
        x_log=True,
        y_unit="ratio",
    )


def _assumptions(fitted: BatchModel, log: StepLog) -> Section:
    told = [f"{count(number, 'step')} set aside: {why}" for why, number in log.set_aside.items() if number]
    box = [f"{name} {low:,.0f} to {high:,.0f}" for name, (low, high) in fitted.box.items()]
    if log.loop_s is not None:
        told.append(
            f"between two steps the engine's loop took {1e3 * log.loop_s:.2g} ms (median): no part of a "
            "step's time, though a client waits for it"
        )
    assumptions = (
        *log.notes,
        *told,
        "calibrated for steps with " + ", ".join(box),
        "errors relative to the measured time; kinds of steps weigh with the root of their number",
        "asynchronous scheduling is not modelled",
    )
    return Section("assumptions", "Assumptions", "", assumptions=assumptions)
