"""One engine as a queue, and its power by phase: tables for a profile (behind `agentctl calibrate lps`)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from agentctl import __version__
from agentctl.calibrate import ABSOLUTE_S, CALIBRATE_SCHEMA
from agentctl.calibrate_lps_log import Log, read_log
from agentctl.calibrate_lps_sections import Queue, power_section, queue_section
from agentctl.errors import InputError, UsageError
from agentctl.estimators.lps import Lps, estimate
from agentctl.estimators.lps_batch import from_profile
from agentctl.estimators.lps_fit import LpsFit, fit_lps
from agentctl.estimators.lps_table import curve_table, lps_table
from agentctl.estimators.power import (
    PowerFit,
    Spans,
    phase_power,
    power_table,
    spans_of_requests,
    spans_of_steps,
)
from agentctl.estimators.power_samples import PowerSamples, read_power
from agentctl.estimators.step_logs import read_step_logs
from agentctl.present import Section
from agentctl.profile import PROFILE_SCHEMA, Profile, parse_profile
from agentctl.profile_file import toml_text
from agentctl.trace import Trace

SOURCES = ("log", "profile")


@dataclass(frozen=True)
class LpsCalibration:
    """document: what --json prints; profile: the its tables with those that were found."""

    document: dict[str, Any]
    sections: tuple[Section, ...]
    profile: dict[str, Any] | None

    def toml(self) -> str:
        """The profile file. Raises UsageError when there is no profile to put the tables into."""
        if self.profile is None:
            raise UsageError(
                "the queue and the power of an engine are tables of its profile, and none was given",
                place="--output",
                hint="--profile P, from `agentctl calibrate steps`, log or prior",
            )
        return toml_text(self.profile, f"Queue and power added by agentctl {__version__}.")


def calibrate_lps(
    trace: Trace | None,
    profile: Profile | None = None,
    tables: Mapping[str, Any] | None = None,
    *,
    source: str | None = None,
    limit: int | None = None,
    power: Sequence[Path] = (),
    steps: Sequence[Path] = (),
) -> LpsCalibration:
    """The [lps] and [power] tables of an engine.

    trace    request log: who came and went when, for the queue; and when the engine was busy, for the power
    profile  its coefficients give the queue of the trace's mean request; `tables`: the same as in its file
    source   log | profile: where the queue is taken from; default: the log where it has end-to-end times
    limit    max_num_seqs of the engine; default: the profile's
    power    samples (power_samples.py); steps: step logs of the same time (step_logs.py)

    Raises InputError, UsageError, ConfigError.
    """
    if trace is None and not power:
        raise UsageError("nothing to calibrate from", expected="a TRACE, or power samples with --power")
    if steps and not power:
        raise UsageError(
            "tells the phases of power samples, and there are none", place="--steps", hint="--power FILE"
        )
    limit = limit if limit is not None else (profile.max_num_seqs if profile else None)
    log = read_log(trace) if trace else None
    queue = None if log is None else _queue(log, profile, source, limit)
    samples = read_power(power) if power else None
    watts = None if samples is None else _power(samples, steps, log, profile)
    found: dict[str, Any] = {}
    if queue is not None:
        found["lps"] = queue.table
    if samples is not None and watts is not None:
        found["power"] = power_table(watts, samples.inputs)
    sections = [queue_section(queue)] if queue else []
    sections += [power_section(watts)] if watts else []
    document = {
        "schema": CALIBRATE_SCHEMA,
        "source": "lps",
        "profile": profile.name if profile else None,
        "lps": None if queue is None else _told(queue),
        "power": None if watts is None else {**asdict(watts)},
        "tables": found,
        "provenance": {
            "agentctl_version": __version__,
            **({"trace_digest": log.digest} if log else {}),
            **({"inputs": samples.inputs} if samples else {}),
        },
    }
    return LpsCalibration(document, tuple(sections), _with(tables, found))


def _queue(log: Log, profile: Profile | None, source: str | None, limit: int | None) -> Queue:
    if source not in (None, *SOURCES):
        raise UsageError(f"is {source!r}", place="--from", expected=" or ".join(SOURCES))
    timed = bool(np.isfinite(log.e2e).any())
    source = source or ("log" if timed or profile is None else "profile")
    if source == "log" and not timed:
        raise InputError(
            "the log has no end-to-end times, and a queue is read from them",
            hint="give a profile with --profile: the queue then follows from its coefficients",
        )
    if source == "profile" and profile is None:
        raise UsageError("none was given", place="--profile", expected="a profile, for --from profile")
    computed = log.prompt - np.where(np.isfinite(log.cached), log.cached, 0.0)
    fit = _fit(log, computed, limit) if source == "log" else None
    from_coefficients = None
    if profile is not None and _is_identified(profile, required=source == "profile"):
        request = log.mean_request
        engine = replace(profile, max_num_seqs=limit)
        shape = (request.prompt, request.output, request.hit, request.scv, request.prompt_scv)
        from_coefficients = from_profile(engine, *shape)
    if fit is not None:
        table, model = lps_table(fit), fit.model()
    else:
        assert from_coefficients is not None and profile is not None
        model = from_coefficients
        beside = {"source": "coefficients", "profile": profile.name, **asdict(log.mean_request)}
        table = {**curve_table(model), "fit": beside}
    table["fit"]["trace_digest"] = log.digest
    return Queue(
        source=source,
        fit=fit,
        model=model,
        other=from_coefficients if fit is not None else None,
        rate_per_s=log.rate_per_s,
        load=estimate(model, log.rate_per_s),
        n_engines=log.n_engines,
        placement_known=log.labels is not None,
        cached_known=bool(np.isfinite(log.cached).all()),
        request=log.mean_request,
        table=table,
    )


def _fit(log: Log, computed: np.ndarray, limit: int | None) -> LpsFit:
    return fit_lps(log.arrival, log.e2e, log.output, prefill_tokens=computed, engine=log.labels, limit=limit)


def _is_identified(profile: Profile, required: bool) -> bool:
    """Whether its coefficients mean something one by one; raises UsageError where that is `required`."""
    if profile.predictive_only and required:
        raise UsageError(
            "its coefficients reproduce a log together and are not known one by one (predictive_only)",
            place=f"profile {profile.name}",
            hint="--from log",
        )
    return not profile.predictive_only


def _power(
    samples: PowerSamples, steps: Sequence[Path], log: Log | None, profile: Profile | None
) -> PowerFit:
    if profile is not None and samples.n_gpus != profile.tensor_parallel:
        raise InputError(
            f"power samples of {samples.n_gpus} GPUs for an engine of {profile.tensor_parallel}",
            expected="those of one engine, with a column `gpu` where it has several",
        )
    spans, evidence = _evidence(samples, steps, log)
    return phase_power(samples, spans, evidence)


def _evidence(samples: PowerSamples, steps: Sequence[Path], log: Log | None) -> tuple[Spans | None, str]:
    """What tells the phases: the samples themselves, else steps, else requests."""
    if (samples.phase >= 0).any():
        return None, "phase"
    if steps:
        spans = spans_of_steps(read_step_logs(steps, warm_up=0, max_wait=np.inf).steps)
        _check_clocks(samples.is_absolute, bool(spans.start[0] > ABSOLUTE_S), "steps")
        return spans, "steps"
    if log is None:
        raise UsageError(
            "the samples do not name their phase",
            place="--power",
            hint="--steps FILES or a TRACE of the same time tell it, or a column `phase`",
        )
    if log.n_engines > 1:
        raise InputError(
            f"a log of {log.n_engines} engines does not tell when this one was busy", hint="--steps FILES"
        )
    known = np.isfinite(log.e2e)
    if not known.all():
        raise InputError(
            f"{int((~known).sum()):,} requests have no end: nobody knows when the engine was busy",
            hint="--steps FILES",
        )
    _check_clocks(samples.is_absolute, log.origin_s is not None, "log")
    start = log.arrival + (log.origin_s or 0.0)
    return spans_of_requests(start, start + log.e2e), "requests"


def _check_clocks(ours: bool, theirs: bool, what: str) -> None:
    if ours != theirs:
        words = {True: "dates", False: "times from a start of their own"}
        raise InputError(
            f"power samples have {words[ours]}, the {what} {words[theirs]}", expected="one clock for both"
        )


def _with(tables: Mapping[str, Any] | None, found: Mapping[str, Any]) -> dict[str, Any] | None:
    """The profile's tables with those that were found in the place of older ones."""
    if tables is None:
        return None
    merged = {**copy.deepcopy(dict(tables)), **found}
    parse_profile(merged, "profile", "calibrated")
    return {"schema": PROFILE_SCHEMA, **merged}


def _told(queue: Queue) -> dict[str, Any]:
    model = queue.model
    return {
        "from": queue.source,
        "size_steps": model.size,
        "scv": model.scv,
        "limit": model.limit,
        "step_s": _steps_at(model),
        "other_step_s": None if queue.other is None else _steps_at(queue.other),
        "saturation_rate_per_s": model.saturation_rate,
        "rate_per_s": queue.rate_per_s,
        "at_rate": asdict(queue.load),
        "fit": None if queue.fit is None else asdict(queue.fit),
        "mean_request": asdict(queue.request),
        "engines": queue.n_engines,
    }


def _steps_at(model: Lps) -> list[dict[str, float]]:
    """Seconds of a step with 1, 2, 4, ... in service, up to the limit."""
    n = 1
    result = []
    while n <= (model.limit or len(model.capacity)):
        result.append({"n": n, "step_s": n / model.capacity[min(n, len(model.capacity)) - 1]})
        n *= 2
    return result
