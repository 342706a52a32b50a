"""What a calibration from a request log says, for the terminal and the HTML report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agentctl.analyzers.words import count, percent
from agentctl.estimators.batch_terms import MEANING
from agentctl.estimators.simulated_fit import LEVEL, Box, SimulatedFit
from agentctl.present import Curve, Fact, Figure, Section, Table, Value
from agentctl.simulate import COUNTED

if TYPE_CHECKING:
    from agentctl.estimators.batch_time import BatchTime
    from agentctl.logged import LoggedRun
    from agentctl.profile import Profile
    from agentctl.sim.outcome import Outcome

NANO = 1e9
POOR = 0.10  # mean error of durations from which the reader is warned
FOREIGN = 3.0  # a coefficient that many times its prior, or as much smaller, is another engine's
WIDE = 3.0  # upper end over lower end of an interval from which a coefficient is poorly known
MOST_POINTS = 700
PARTS = {
    "fitted": "fitted",
    "held_out": "second half, after a fit to the first half",
    "later": "later requests, not fitted",
}


NAMES = {
    "prompt_tokens": "prompt tokens",
    "computed_tokens": "prompt tokens computed",
    "output_tokens": "output tokens",
    "in_service": "requests in service on an engine",
}


@dataclass(frozen=True)
class Told:
    """What was found, before it is put in words. `judged`: Errors by the keys of PARTS."""

    in_trace: int  # requests
    fit: SimulatedFit
    boxes: Mapping[str, Box]
    batch_time: BatchTime
    judged: Mapping[str, Any]
    run: LoggedRun
    outcome: Outcome
    floor_s: float
    fitted_rows: NDArray[np.bool_]
    peak_tokens: int
    prior: Profile | None
    unlimited: bool

    def status(self, name: str) -> str:
        """ok | rugged | poorly known | from above only | from below only | not seen | prior"""
        low, high = self.fit.interval[name]
        if low is None and high is None:
            return "prior" if self.boxes[name].prior else "not seen"
        if low is None:
            return "from above only"
        if high is None:
            return "from below only"
        if high / low > WIDE:
            return "poorly known"
        return "rugged" if self.fit.is_rugged else "ok"


def sections_of(told: Told) -> tuple[Section, ...]:
    return (_verdict(told), _errors(told), _coefficients(told), _coverage(told), _assumptions(told))


def _verdict(told: Told) -> Section:
    fitted, held = told.judged["fitted"], told.judged["held_out"]
    sentence = (
        f"Simulated with these coefficients, the run's {count(fitted.requests, 'request')} take as long as "
        f"logged within {percent(fitted.e2e_mape)} on average; fitted to the first half alone, the second "
        f"half within {percent(held.e2e_mape)}."
    )
    facts = (
        Fact("TTFT, mean error", fitted.ttft_mape, "ratio", "of the requests that were fitted"),
        Fact("TTFT, median error", fitted.ttft_median, "ratio", "half of the requests are closer"),
        Fact("TTFT, bias of the mean", fitted.ttft_bias, "ratio", "above 0: simulated too long"),
        Fact("TTFT, bias of p90", fitted.ttft_p90_bias, "ratio"),
        Fact("duration, mean error", fitted.e2e_mape, "ratio"),
        Fact("duration, bias of the mean", fitted.e2e_bias, "ratio"),
        Fact("condition", told.fit.condition, "", "coefficients trade off the more the larger it is"),
        Fact("KV tokens in use at most", told.peak_tokens, "tokens", "simulated, in one engine"),
    )
    return Section("verdict", "How well the run is reproduced", sentence, facts=facts,
                   figures=(_residuals(told),), warnings=tuple(_warnings(told)))  # fmt: skip


def _warnings(told: Told) -> list[str]:
    fit, fitted = told.fit, told.judged["fitted"]
    warnings = []
    if fitted.e2e_mape is None or fitted.e2e_mape > POOR:
        warnings.append(
            "the run is not reproduced: are the limits the engine's, did other traffic run beside, is the "
            "placement the logged one?"
        )
    if fit.is_rugged:
        warnings.append(
            "the errors jump between neighbouring coefficients by more than the intervals allow: the run is "
            "reproduced, but its intervals are too narrow and say little of single coefficients"
        )
    unseen = [name for name in fit.values if told.status(name) == "not seen"]
    if unseen:
        warnings.append(f"no profile can be written: the log does not show {', '.join(unseen)}")
    far = [
        f"{name} ({fit.values[name] / box.prior:.2g} times)"
        for name, box in told.boxes.items()
        if box.prior and not 1 / FOREIGN < fit.values[name] / box.prior < FOREIGN
        if told.status(name) in ("ok", "rugged")
    ]
    if far:
        warnings.append(f"the prior is of another kind of engine: {', '.join(far)}")
    rejected = int((~told.outcome.done).sum())
    if rejected:
        warnings.append(
            f"{count(rejected, 'request')} can never fit the engine: its limits are not the log's"
        )
    return warnings


def _errors(told: Told) -> Section:
    rows: list[tuple[Value, ...]] = [
        (
            PARTS[name], one.requests, one.ttft_mape, one.ttft_median, one.ttft_bias, one.e2e_mape,
            one.e2e_median, one.e2e_bias,
        )
        for name, one in told.judged.items()
    ]  # fmt: skip
    head = (
        ("requests", ""), ("number", "count"), ("TTFT MAPE", "ratio"), ("median", "ratio"), ("bias", "ratio"),
        ("duration MAPE", "ratio"), ("median", "ratio"), ("bias", "ratio"),
    )  # fmt: skip
    sentence = (
        "Simulated against logged; what a fit says of requests that it has not seen is what it is worth."
    )
    by_wait = Table(
        (("logged TTFT", ""), ("number", "count"), ("TTFT MAPE", "ratio"), ("bias", "ratio")),
        tuple(_by_wait(told)),
        "By how long the first token took",
    )
    return Section(
        "errors", "Where it errs", sentence,
        tables=(Table(head, tuple(rows)), by_wait),  # type: ignore[arg-type]
    )  # fmt: skip


def _by_wait(told: Told) -> list[tuple[Value, ...]]:
    logged = told.run.logged.ttft_s
    simulated = told.outcome.first_token_s - told.outcome.arrival_s
    known = np.isfinite(logged) & np.isfinite(simulated) & (logged > 0) & told.fitted_rows
    if not known.any():
        return []
    edges = np.quantile(logged[known], [0, 0.25, 0.5, 0.75, 1])
    rows: list[tuple[Value, ...]] = []
    for low, high in pairwise(edges):
        here = known & (logged >= low) & ((logged < high) | (high == edges[-1]))
        if here.any():
            error = simulated[here] / logged[here] - 1
            rows.append((f"{low:.3g} to {high:.3g} s", int(here.sum()), float(np.abs(error).mean()),
                         float(error.mean())))  # fmt: skip
    return rows


def _coefficients(told: Told) -> Section:
    rows: list[tuple[Value, ...]] = []
    for name, value in told.fit.values.items():
        low, high = told.fit.interval[name]
        rows.append((name, MEANING[name], *map(_short, (value, low, high, told.boxes[name].prior)),
                     told.status(name)))  # fmt: skip
    head = (
        ("coefficient", ""), ("per", ""), ("ns", ""), ("low", ""), ("high", ""), ("prior", ""), ("known", ""),
    )  # fmt: skip
    sentence = (
        f"Coefficients in nanoseconds with {LEVEL:.0%} profile-likelihood intervals, each alone. They hold "
        "together, not one by one: no router is configured from a single one of them."
    )
    return Section("coefficients", "Coefficients", sentence, tables=(Table(head, tuple(rows)),))  # type: ignore[arg-type]


def _short(value: float | None) -> str | None:
    """Four digits of nanoseconds, without an exponent."""
    if value is None:
        return None
    nano = value * NANO
    return f"{nano:,.0f}" if nano >= 1000 else f"{nano:.4g}"


def _coverage(told: Told) -> Section:
    rows: list[tuple[Value, ...]] = [
        (NAMES[name], *(f"{value:,.0f}" for value in ends)) for name, ends in box_of(told).items()
    ]
    sentence = (
        "What the run shows. Beyond these ranges the coefficients were never tried: that they hold together "
        "inside says little of the outside."
    )
    table = Table((("simulated", ""), ("least", ""), ("median", ""), ("most", "")), tuple(rows))
    return Section("coverage", "What it covers", sentence, tables=(table,))


def box_of(told: Told) -> dict[str, tuple[float, float, float]]:
    """Least, median and most of what engines met in the simulated run, over its requests."""
    outcome, requests = told.outcome, told.run.workload.requests
    done = outcome.done
    values = {
        "prompt_tokens": requests.prompt_tokens[done],
        "computed_tokens": outcome.computed_prefill_tokens[done],
        "output_tokens": requests.output_tokens[done],
        "in_service": _in_service(outcome),
    }
    return {
        name: (float(some.min()), float(np.median(some)), float(some.max()))
        for name, some in values.items()
        if some.size
    }


def _in_service(outcome: Outcome) -> NDArray[np.int64]:
    """Requests in service on its engine when each one was admitted, itself included."""
    counts = []
    for engine in range(outcome.n_engines):
        here = outcome.done & (outcome.engine == engine)
        begin, end = np.sort(outcome.scheduled_s[here]), np.sort(outcome.finish_s[here])
        counts.append(np.arange(1, begin.size + 1) - np.searchsorted(end, begin, side="right"))
    return np.concatenate(counts)


def _residuals(told: Told) -> Figure:
    run, outcome = told.run, told.outcome
    since = outcome.arrival_s - np.nanmin(outcome.arrival_s)
    curves = []
    for name, simulated, logged in (
        ("TTFT", outcome.first_token_s - outcome.arrival_s, run.logged.ttft_s),
        ("duration", outcome.finish_s - outcome.arrival_s, run.logged.e2e_s),
    ):
        rows = np.flatnonzero(np.isfinite(simulated) & np.isfinite(logged) & (logged > 0))
        rows = rows[:: max(1, -(-len(rows) // MOST_POINTS))]
        if len(rows):
            error = simulated[rows] / logged[rows] - 1
            curves.append(Curve(name, tuple(map(float, since[rows])), tuple(map(float, error)), "points"))
    return Figure(
        name="calibrate-residuals",
        question="When is the simulation wrong?",
        x_label="arrival (s)",
        y_label="relative error",
        curves=tuple(curves),
        conclusion="A cloud around 0 means that the form fits at every load of the run. A drift means that "
        "something else changed: a warm-up, other traffic, another limit.",
        y_unit="ratio",
    )


def _assumptions(told: Told) -> Section:
    run, fit = told.run, told.fit
    pool = run.cluster.pools[0]
    placed = "as logged" if run.placement else f"by {run.policy_name}, for the log does not say where"
    if run.placement and not run.placement.names:
        placed = "all to one engine, for the log names none"
    said = [
        f"{count(run.cluster.n_engines, 'engine')} with at most {pool.max_num_seqs:,} sequences and "
        f"{pool.max_num_batched_tokens:,} tokens a batch; requests placed {placed}",
        f"replay {run.workload.replay}",
        *_taken(told),
        "KV without limit"
        if told.unlimited
        else f"{pool.kv_blocks:,} KV blocks of {pool.block_tokens} tokens",
        _hits(told),
        f"errors of times below {1e3 * told.floor_s:.0f} ms are relative to that: logs differ in whether "
        "they count the wait for the batch in flight",
        f"{fit.n_errors:,} latencies count as {fit.n_independent:,.0f}, since requests in one batch err "
        f"together; {fit.n_runs:,} simulated runs",
        "asynchronous scheduling is not simulated",
    ]
    if run.placement and run.placement.n_guessed:
        said.append(f"{count(run.placement.n_guessed, 'request')} without an engine follow their session")
    said += [
        f"{COUNTED.get(key, key.replace('_', ' '))}: {n:,}" for key, n in sorted(run.workload.counts.items())
    ]
    return Section("assumptions", "Assumptions", "", assumptions=tuple(said))


def _taken(told: Told) -> list[str]:
    n = told.run.workload.n_requests
    return [f"{n:,} of the trace's {told.in_trace:,} requests"] if n < told.in_trace else []


def _hits(told: Told) -> str:
    run = told.run
    if run.workload.block_tokens is None:
        is_said = np.isfinite(run.logged.cached_tokens).any()
        return "no prefix hits: the log " + (
            "says that nothing was cached" if is_said else "has neither blocks nor cached tokens"
        )
    logged = float(np.nansum(run.logged.cached_tokens))
    simulated = int(told.outcome.hit_tokens.sum())
    if run.hits_as_logged:
        return f"prefix hits as logged: {simulated:,} of {logged:,.0f} cached tokens"
    return f"prefix hits by the log's blocks: {simulated:,} tokens" + (
        f", {logged:,.0f} as logged" if logged else ""
    )
