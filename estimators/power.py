"""Watts of an engine by phase, from samples of its GPUs and what it did meanwhile.

A sample is the mean power since the one before. With the share of that time in each phase known, watts are
linear in the shares, and least squares give each phase's power, GPU by GPU, summed over them: samples that
lie in one phase are averaged, those across a border are split. Intervals: jackknife over blocks of time.
What the samples cannot tell is left out, with the reason: caps and clocks that were not set are not guessed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta
from scipy.stats import t as t_distribution

from agentctl.errors import InputError
from agentctl.estimators.power_samples import PHASES, PowerSamples
from agentctl.estimators.steps import Steps
from agentctl.toml import build

FEWEST_IN_PHASE = 10.0  # samples' worth of time
LEAST_SEPARABLE = 0.1  # of a phase's shares, that the other phases do not explain
WIDEST = 0.25  # half an interval over its value: beyond it nothing is told
BLOCKS = 20  # of time
OF_KIND = ("prefill", "decode", "mixed")  # phases of the kinds of steps (steps.KINDS)

Watts = Annotated[float, Meta(ge=0)] | None


@dataclass(frozen=True)
class PowerTable:
    """The keys of [power]: watts of one engine, all its GPUs together; None: not measured.

    busy is any time with work, where the log says no more. `fit` is the table beside them.
    source: of the watts, where they were not measured.
    """

    idle_w: Watts = None
    prefill_w: Watts = None
    decode_w: Watts = None
    mixed_w: Watts = None
    busy_w: Watts = None
    source: Literal["measured", "literature", "fitted"] = "measured"
    fit: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class PhasePower:
    """watts, low, high: the engine's, with a 95 % interval; clock_mhz: mean over its GPUs; None: not known.

    why  what the samples lack, where watts is None
    """

    watts: float | None
    low: float | None
    high: float | None
    clock_mhz: float | None
    seconds: float  # of the samples, one GPU's
    why: str | None = None


@dataclass(frozen=True)
class PowerFit:
    """`by_phase` has the phases that this kind of evidence can tell; `evidence`: steps, requests or phase."""

    by_phase: dict[str, PhasePower]
    evidence: str
    n_samples: int
    n_outside: int  # before the first or after the last step or request: nobody knows what the engine did
    n_gpus: int
    interval_s: float  # median time between samples


@dataclass(frozen=True)
class Spans:
    """When an engine was in which phase: seconds[m], in order, one after the other; idle in between."""

    start: np.ndarray
    end: np.ndarray
    phase: np.ndarray  # position in PHASES

    def seconds(self, phase: int, until: np.ndarray) -> np.ndarray:
        """Time spent in `phase` before each of `until`."""
        here = self.phase == phase
        if not here.any():
            return np.zeros(until.size)
        knots = np.column_stack((self.start[here], self.end[here])).ravel()
        spent = np.concatenate(([0.0], np.cumsum(np.diff(knots) * (np.arange(knots.size - 1) % 2 == 0))))
        return np.interp(until, knots, spent)


def spans_of_steps(steps: Steps) -> Spans:
    """A step is in the phase of its kind. Raises InputError for steps without times."""
    if not len(steps) or not np.isfinite(steps.time_s).all():
        raise InputError("the steps have no times to join power samples by", expected="a column time_s")
    order = np.argsort(steps.time_s, kind="stable")
    start = steps.time_s[order]
    end = start + steps.seconds[order]
    end[:-1] = np.minimum(end[:-1], start[1:])
    phase = np.array([PHASES.index(name) for name in OF_KIND])[steps.kind[order]]
    return Spans(start, end, phase)


def spans_of_requests(start: np.ndarray, end: np.ndarray) -> Spans:
    """Busy while any request is there."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    first = np.concatenate(([True], start[1:] > end[:-1]))
    last = np.concatenate((first[1:], [True]))
    return Spans(start[first], end[last], np.full(int(first.sum()), PHASES.index("busy")))


def phase_power(samples: PowerSamples, spans: Spans | None, evidence: str) -> PowerFit:
    """Watts by phase; without spans by the phase that the samples name.

    Raises InputError when samples and spans have no time in common, or no sample names a phase.
    """
    if spans is None:
        known = samples.phase >= 0
        shares = (samples.phase[:, None] == np.arange(len(PHASES))).astype(np.float64)
        if not known.any():
            raise InputError(
                "no power sample names its phase",
                expected="a column `phase`, or steps or requests to join with",
                hint="--steps FILE, or a TRACE",
            )
    else:
        known = (samples.since_s >= spans.start[0]) & (samples.time_s <= spans.end[-1])
        _check_overlap(samples, spans, known)
        shares = _shares(samples, spans)
    told = np.flatnonzero(shares[known].any(axis=0))
    able = {"steps": ("idle", *OF_KIND), "requests": ("idle", "busy")}.get(evidence, PHASES)
    found = {name: _unseen() for name in able}
    totals = [_of_gpu(samples, shares, known & (samples.gpu == gpu), told) for gpu in range(samples.n_gpus)]
    for place, phase in enumerate(told):
        found[PHASES[phase]] = _summed([parts[place] for parts in totals])
    width = float(np.median(samples.time_s - samples.since_s))
    outside = int((~known).sum())
    return PowerFit(found, evidence, int(known.sum()), outside, samples.n_gpus, width)


def power_table(fit: PowerFit, inputs: Mapping[str, str]) -> dict[str, Any]:
    """The [power] table of a profile; what was not measured is left out of it and named in [power.fit]."""
    known = {name: one for name, one in fit.by_phase.items() if one.watts is not None}
    clocks = {name: one.clock_mhz for name, one in known.items() if one.clock_mhz is not None}
    beside = {
        "evidence": fit.evidence,
        "samples": fit.n_samples,
        "gpus": fit.n_gpus,
        "interval_s": fit.interval_s,
        "inputs": dict(inputs),
        "interval": {f"{name}_w": [one.low, one.high] for name, one in known.items()},
        "seconds": {name: one.seconds for name, one in known.items()},
        "unmeasured": {name: one.why for name, one in fit.by_phase.items() if one.watts is None},
        **({"clock_mhz": clocks} if clocks else {}),
    }
    return {**{f"{name}_w": one.watts for name, one in known.items()}, "fit": beside}


def parse_power(table: Mapping[str, Any], place: str) -> PowerTable:
    """The [power] table of a profile (`profile.power`); raises ConfigError."""
    return build(PowerTable, table, place)


def _check_overlap(samples: PowerSamples, spans: Spans, known: np.ndarray) -> None:
    if not known.any():
        raise InputError(
            f"power samples from {samples.time_s.min():.0f} to {samples.time_s.max():.0f} s and a log from "
            f"{spans.start[0]:.0f} to {spans.end[-1]:.0f} s have no time in common",
            expected="one clock for both",
            hint="dates without a zone count as UTC; record unix seconds",
        )


def _shares(samples: PowerSamples, spans: Spans) -> np.ndarray:
    """Share of each sample's time in each of PHASES."""
    shares = np.zeros((samples.time_s.size, len(PHASES)))
    width = samples.time_s - samples.since_s
    for phase in range(1, len(PHASES)):
        spent = spans.seconds(phase, samples.time_s) - spans.seconds(phase, samples.since_s)
        shares[:, phase] = np.clip(spent / width, 0, 1)
    shares[:, 0] = np.clip(1 - shares.sum(axis=1), 0, 1)
    shares[shares < 1e-9] = 0.0
    return shares


def _unseen() -> PhasePower:
    return PhasePower(None, None, None, None, 0.0, "no sample was taken in it")


def _of_gpu(
    samples: PowerSamples, shares: np.ndarray, which: np.ndarray, told: np.ndarray
) -> list[PhasePower]:
    """Each of the phases `told`, of one GPU."""
    x, watts, clock = shares[which][:, told], samples.watts[which], samples.clock_mhz[which]
    width = (samples.time_s - samples.since_s)[which]
    n = watts.size
    if n == 0:
        return [_unseen() for _ in told]
    values = np.linalg.lstsq(x, watts, rcond=None)[0]
    block = np.arange(n) * BLOCKS // max(n, BLOCKS)
    left_out = np.array([np.linalg.lstsq(x[block != b], watts[block != b], rcond=None)[0]
                         for b in np.unique(block)])  # fmt: skip
    m = len(left_out)
    spread = np.sqrt(((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0) * (m - 1) / max(m, 1))
    half = t_distribution.ppf(0.975, max(m - 1, 1)) * spread
    result = []
    for place in range(len(told)):
        share, value, error = x[:, place], float(values[place]), float(half[place])
        seconds = float(share @ width)
        if why := _why_not(x, place, value, error):
            result.append(PhasePower(None, None, None, None, seconds, why))
            continue
        pure = np.isfinite(clock) & (share > 0.5)
        mhz = float(np.average(clock[pure], weights=share[pure])) if pure.any() else None
        result.append(PhasePower(value, max(0.0, value - error), value + error, mhz, seconds))
    return result


def _why_not(x: np.ndarray, place: int, value: float, error: float) -> str | None:
    """Why the power of a phase is not known; None where it is."""
    share, others = x[:, place], np.delete(x, place, axis=1)
    if share.sum() < FEWEST_IN_PHASE:
        return f"{share.sum():.1f} samples' worth of it, fewer than {FEWEST_IN_PHASE:g}"
    if others.size:
        rest = share - others @ np.linalg.lstsq(others, share, rcond=None)[0]
        if np.linalg.norm(rest) < LEAST_SEPARABLE * np.linalg.norm(share):
            return "always together with other phases in a sample: sample more often"
    if value <= 0 or error > WIDEST * value:
        return f"known to {100 * error / max(abs(value), 1e-9):.0f} % only"
    return None


def _summed(parts: list[PhasePower]) -> PhasePower:
    """Of all GPUs of the engine: errors as if independent."""
    unknown = [part for part in parts if part.watts is None]
    if unknown:
        return unknown[0]
    watts = sum(part.watts or 0.0 for part in parts)
    half = float(np.sqrt(sum(((part.high or 0.0) - (part.watts or 0.0)) ** 2 for part in parts)))
    clocks = [part.clock_mhz for part in parts if part.clock_mhz is not None]
    mhz = float(np.mean(clocks)) if clocks else None
    return PhasePower(watts, max(0.0, watts - half), watts + half, mhz, parts[0].seconds)
