"""What a calibration of queue and power says, for the terminal and the HTML report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agentctl.analyzers.words import count, number, percent, seconds
from agentctl.estimators.lps import Estimate, Lps
from agentctl.estimators.lps_batch import MeanRequest
from agentctl.estimators.lps_fit import LpsFit
from agentctl.estimators.power import PowerFit
from agentctl.present import Curve, Fact, Figure, Section, Table, Value

FOREIGN = 1.5  # a step that many times as long in the log as by the coefficients: not this engine
MOST_DRAWN = 512  # in service, in the figure
EVIDENCE = {
    "steps": "joined with the engine's steps",
    "requests": "joined with the times at which requests were there",
    "phase": "by the phase that each sample names",
}


@dataclass(frozen=True)
class Queue:
    """source: log | profile; other: the same queue by the profile's coefficients, beside one from a log."""

    source: str
    fit: LpsFit | None
    model: Lps
    other: Lps | None
    rate_per_s: float
    load: Estimate
    n_engines: int
    placement_known: bool
    cached_known: bool
    request: MeanRequest
    table: dict[str, Any]


def queue_section(queue: Queue) -> Section:
    model, fit = queue.model, queue.fit
    origin = "From the log" if fit else "From the coefficients"
    where = "without a known limit" if model.limit is None else f"with {count(model.limit, 'place')}"
    sentence = (
        f"{origin}: one engine, {where}, completes {number(model.saturation_rate)} requests/s at most; the "
        f"log's {number(queue.rate_per_s)} are {percent(queue.load.utilisation)} of that."
    )
    facts = [
        Fact("saturation", model.saturation_rate, "per_s", "of one engine, when all places are taken"),
        Fact("arrivals", queue.rate_per_s, "per_s", "of the log, per engine"),
        Fact("size of a request", model.size, "count", "steps"),
        Fact("scv of sizes", model.scv, "", "1: exponential; more: a few long ones hold places"),
    ]  # fmt: skip
    if fit is not None:
        facts += [
            Fact("held-out MAPE", fit.mape, "ratio", "of times in service, blocks of time left out in turn"),
            Fact("held-out median", fit.median_ape, "ratio", "half of the requests are closer"),
            Fact("most in service", fit.peak, "count", "beyond is extrapolation"),
        ]
    facts += [
        Fact("mean wait at the log's rate", queue.load.wait, "s", "for Poisson arrivals"),
        Fact("mean response at the log's rate", queue.load.response, "s", "wait included"),
    ]
    tables = (_parameters(fit),) if fit else ()
    return Section(
        "queue", "One engine as a queue", sentence, facts=tuple(facts), tables=tables,
        figures=(_curve(queue),), assumptions=tuple(_assumed(queue)), warnings=tuple(_warnings(queue)),
    )  # fmt: skip


def _parameters(fit: LpsFit) -> Table:
    named = {
        "a step takes, ms": (fit.fixed_s, 1e3),
        "and per request in service, ms": (fit.each_s, 1e3),
        "output tokens": (fit.output_tokens, 1.0),
        "scv": (fit.scv, 1.0),
    }
    rows = tuple(
        (name, _digits(p.value * scale), _digits(p.low * scale), _digits(p.high * scale))
        for name, (p, scale) in named.items()
    )
    return Table((("parameter", ""), ("value", ""), ("low", ""), ("high", "")), rows)


def _digits(value: float) -> str:
    return f"{value:.4g}"


def _warnings(queue: Queue) -> list[str]:
    told = list(queue.fit.caveats) if queue.fit else []
    told += [text for text in queue.load.caveats if queue.fit is None or text not in told]
    if queue.other is not None:
        crowd = queue.load.in_system or (
            queue.fit.peak if queue.fit else 1
        )  # overloaded: as many as there were
        n = max(1, round(crowd))
        ratio = _step(queue.model, n) / _step(queue.other, n)
        if not 1 / FOREIGN < ratio < FOREIGN:
            told.append(
                f"with {count(n, 'request')} in service a step takes {number(ratio)} times as long in the "
                "log as by the profile's coefficients: the profile is of another engine, or the log counts "
                "time outside of it"
            )
    return told


def _step(model: Lps, n: int) -> float:
    n = min(n, len(model.capacity))
    return n / model.capacity[n - 1]


def _assumed(queue: Queue) -> list[str]:
    told = ["requests in service share the engine evenly, the others wait in order of arrival"]
    if not queue.placement_known:
        told.append("the log does not say which engine served a request: one engine is taken")
    if not queue.cached_known:
        told.append("cached tokens are not known of every request: there the whole prompt counts as computed")
    if queue.source == "profile":
        told.append("step times follow from the profile's coefficients and the log's mean request")
    return told


def _curve(queue: Queue) -> Figure:
    names = {"log": "from the log", "profile": "from the coefficients"}
    curves = [_capacity(names[queue.source], queue.model)]
    if queue.other is not None:
        curves.append(_capacity(names["profile"], queue.other))
    return Figure(
        name="calibrate-lps-capacity",
        question="How much does one engine get done with n requests in service?",
        x_label="requests in service",
        y_label="output tokens per second",
        curves=tuple(curves),
        conclusion="Where the curve flattens, more requests in service wait for each other and bring no more "
        "throughput. Two curves that part: profile and log are not about the same engine, or the requests "
        "in service are not alike. Beyond what the log had in service it is extrapolation.",
        y_unit="tokens_per_s",
    )


def _capacity(name: str, model: Lps) -> Curve:
    n = np.arange(1, min(len(model.capacity), MOST_DRAWN) + 1)
    return Curve(name, tuple(map(float, n)), tuple(model.capacity[: n.size]))


def power_section(fit: PowerFit) -> Section:
    known = {name: one for name, one in fit.by_phase.items() if one.watts is not None}
    words = ", ".join(f"{name} {one.watts:.0f} W" for name, one in known.items())
    sentence = (
        f"{words[:1].upper()}{words[1:]}." if known else "No phase's power can be told from the samples."
    )
    rows: list[tuple[Value, ...]] = []
    for name, one in fit.by_phase.items():
        watts = [_watts(value) for value in (one.watts, one.low, one.high)]
        rows.append((name, *watts, _watts(one.clock_mhz), one.seconds, one.why or "measured"))
    head = (
        ("phase", ""),
        ("W", ""),
        ("low", ""),
        ("high", ""),
        ("SM clock MHz", ""),
        ("sampled", "s"),
        ("status", ""),
    )
    outside = f"{count(fit.n_outside, 'sample')} before or after what the log covers set aside"
    return Section(
        "power", "Power by phase", sentence, tables=(Table(head, tuple(rows)),),  # type: ignore[arg-type]
        assumptions=(
            f"{count(fit.n_samples, 'sample')} of {count(fit.n_gpus, 'GPU')}, {EVIDENCE[fit.evidence]}; "
            f"each is the mean of the {seconds(fit.interval_s)} before it",
            outside,
            "at the clocks and caps of the samples: others were not measured, and none is derived",
        ),
    )  # fmt: skip


def _watts(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"
