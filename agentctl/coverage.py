"""Are simulated batches like those that the profile was calibrated on?

A profile's [batch_time.fit.box] holds the ranges of the steps (or requests) that its coefficients were fitted
to. Outside of them they are an extrapolation. Batches are told from the outcome: how many requests decode at
an instant, and on how long contexts, follows from first and last tokens; a request's context grows evenly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentctl.analyzers.words import percent
from agentctl.present import Section, Table, Value
from agentctl.sim.outcome import Outcome

F64 = NDArray[np.float64]
MUCH = 0.05  # share outside from which the reader is warned: a guess
NAMES = {
    "n_decode": "decodes in a batch, of the time with any",
    "decode_context": "context tokens of a batch's decodes, of the same time",
    "prefill_context": "context before a prompt's chunk, of the tokens computed",
    "prompt_tokens": "prompt tokens, of the requests",
    "computed_tokens": "prompt tokens computed, of the requests",
    "output_tokens": "output tokens, of the requests",
}


@dataclass(frozen=True)
class Covered:
    """One quantity: the calibrated range, what was met, and the share of it above or below that range."""

    name: str  # a key of NAMES
    low: float
    high: float
    median: float
    most: float
    outside: float


def coverage(outcome: Outcome, fit: Mapping[str, Any]) -> tuple[Covered, ...]:
    """What `fit`, a profile's [batch_time.fit], has a range for and the outcome tells; empty: no ranges."""
    box = _box(fit)
    requests, done = outcome.workload.requests, outcome.done
    prompt, output = requests.prompt_tokens[done], requests.output_tokens[done]
    if not done.any():
        return ()
    ones = np.ones(len(prompt))
    met: dict[str, tuple[NDArray[Any], F64]] = {
        "prompt_tokens": (prompt, ones),
        "computed_tokens": (outcome.computed_prefill_tokens[done], ones),
        "output_tokens": (output, ones),
    }
    if box.keys() & {"n_decode", "decode_context"}:
        n, context, seconds = _decodes(outcome)
        met |= {"n_decode": (n, seconds), "decode_context": (context, seconds)}
    found = [_covered(name, *box[name], *met[name]) for name in NAMES if name in box and name in met]
    if "prefill_context" in box:
        found.append(_prefill(box, prompt, outcome.found_tokens[done]))
    return tuple(one for one in found if one is not None)


def _box(fit: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    ranges = fit.get("box")
    if not isinstance(ranges, Mapping):
        return {}
    return {
        name: (float(ends[0]), float(ends[1]))
        for name, ends in ranges.items()
        if isinstance(ends, list | tuple)
        and len(ends) == 2
        and all(isinstance(x, int | float) and math.isfinite(x) for x in ends)
    }


def _covered(name: str, low: float, high: float, values: NDArray[Any], weights: F64) -> Covered | None:
    if not weights.sum() > 0:
        return None
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    median = values[order][np.searchsorted(reached, 0.5)]
    outside = weights[(values > high) | (values < low)].sum() / weights.sum()
    return Covered(name, low, high, float(median), float(values.max()), float(outside))


def _decodes(outcome: Outcome) -> tuple[F64, F64, F64]:
    """(decodes, their context tokens, seconds) of each stretch of time between changes, on any engine."""
    requests, parts = outcome.workload.requests, []
    where, since = outcome.engine, outcome.first_token_s
    if outcome.decode_engine is not None and outcome.move_ended_s is not None:
        where = outcome.decode_engine
        since = np.where(np.isnan(outcome.move_ended_s), since, outcome.move_ended_s)
    for engine in range(outcome.n_engines):
        mine = outcome.done & (where == engine) & (outcome.finish_s > since)
        start, end = since[mine], outcome.finish_s[mine]
        if not start.size:
            continue
        origin = start.min()
        start, end = start - origin, end - origin
        rate = (requests.output_tokens[mine] - 1) / (end - start)
        level = requests.prompt_tokens[mine] - rate * start  # context at time t: level + rate * t
        when = np.concatenate([start, end])
        order = np.argsort(when, kind="stable")
        change = np.concatenate([np.ones(start.size), -np.ones(start.size)])[order]
        n, levels, rates = (
            np.cumsum(change * np.tile(one, 2)[order])[:-1] for one in (np.ones(start.size), level, rate)
        )
        middle, seconds = (when[order][1:] + when[order][:-1]) / 2, np.diff(when[order])
        used = (n > 0.5) & (seconds > 0)
        parts.append(np.array([n, levels + rates * middle, seconds])[:, used])
    if not parts:
        return np.empty(0), np.empty(0), np.empty(0)
    n, context, seconds = np.concatenate(parts, axis=1)
    return n, context, seconds


def _prefill(
    box: Mapping[str, tuple[float, float]], prompt: NDArray[np.int64], hit: NDArray[np.int64]
) -> Covered | None:
    """Prompt tokens behind the longest calibrated context, a chunk after it included."""
    low, high = box["prefill_context"]
    most = high + box.get("prefill_tokens", (0.0, 0.0))[1]
    computed = prompt - hit
    if not computed.sum() > 0:
        return None
    outside = np.maximum(prompt - np.maximum(hit, most), 0).sum() / computed.sum()
    return Covered(
        "prefill_context", low, most, float(np.median(prompt)), float(prompt.max()), float(outside)
    )


def section_of(found: tuple[Covered, ...]) -> Section:
    """The same for a reader."""
    worst = max(found, key=lambda one: one.outside)
    if worst.outside:
        sentence = f"{percent(worst.outside)} lie outside of what was calibrated: {NAMES[worst.name]}."
    else:
        sentence = "All that was simulated lies within what was calibrated."
    rows: list[tuple[Value, ...]] = [
        (NAMES[one.name], *(f"{x:,.0f}" for x in (one.low, one.high, one.median, one.most)), one.outside)
        for one in found
    ]
    head = (
        ("simulated", ""), ("calibrated from", ""), ("to", ""), ("median", ""), ("most", ""),
        ("outside", "ratio"),
    )  # fmt: skip
    warning = f"{sentence[:-1]}; calibrate with such steps, too" if worst.outside > MUCH else None
    return Section(
        "coverage", "Was it calibrated for this?", sentence,
        tables=(Table(head, tuple(rows)),), warnings=(warning,) if warning else (),  # type: ignore[arg-type]
    )  # fmt: skip
