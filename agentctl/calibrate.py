"""Calibration from step logs: the fit, the profile that it makes, and what it says to a reader."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from agentctl import __version__
from agentctl.calibrate_routers import router_settings_of, routers_section
from agentctl.calibrate_sections import foreign, sections_of
from agentctl.errors import ConfigError, InputError, UsageError
from agentctl.estimators.batch_model import BatchModel, fit_batch_model
from agentctl.estimators.batch_terms import MODELS, OPTIONAL, batch_time_of, values_of
from agentctl.estimators.step_logs import StepLog, read_step_logs
from agentctl.present import Section
from agentctl.profile import PROFILE_SCHEMA, Profile, parse_profile
from agentctl.profile_file import toml_text, without_none

CALIBRATE_SCHEMA = "agentctl/calibrate/1"
ABSOLUTE_S = 1e9  # times beyond are unix seconds


@dataclass(frozen=True)
class Engine:
    """What a step log does not say of its engine; None is unknown and left out of the profile."""

    model: str | None = None
    gpu: str | None = None
    tensor_parallel: int | None = None
    kv_blocks: int | None = None
    block_tokens: int | None = None
    kv_bytes_per_token: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None


@dataclass(frozen=True)
class Calibration:
    """document: what --json prints; profile: the tables of the TOML file, or why there is none."""

    document: dict[str, Any]
    sections: tuple[Section, ...]
    fitted: BatchModel
    profile: dict[str, Any] | None
    why_no_profile: InputError | UsageError | None

    def toml(self) -> str:
        """The profile file; raises the error that says why the data make none."""
        if self.why_no_profile is not None:
            raise self.why_no_profile
        assert self.profile is not None
        share = self.document["held_out"]["mape"]
        return toml_text(
            self.profile, f"Batch time measured step by step; held-out error {100 * share:.1f} %."
        )


def calibrate_steps(
    paths: Sequence[Path],
    model: str = "hinge",
    terms: Sequence[str] | None = None,
    engine: Engine | None = None,
    prior: Profile | None = None,
    **reading: Any,
) -> Calibration:
    """Fit `model` to the step logs in `paths`; `reading` goes to read_step_logs.

    prior   a profile whose coefficients the fit is drawn to, and which fills what the data cannot see
    Raises InputError for logs that cannot be used, UsageError for an unknown model or term.
    """
    log = read_step_logs(paths, **reading)
    known = values_of(prior.batch_time, _prior_names(model)) if prior else {}
    known = {name: value for name, value in known.items() if value > 0}
    fitted = fit_batch_model(log.steps, model, terms, known)
    why = _why_no_profile(fitted, known)
    tables = None if why else profile_tables(fitted, log, engine or Engine(), prior)
    routers = router_settings_of(tables)
    document = _document(fitted, log, tables) | {"routers": routers}
    sections = (*sections_of(fitted, log, known), *routers_section(routers))
    return Calibration(document, sections, fitted, tables, why)


def _prior_names(model: str) -> tuple[str, ...]:
    if model == "legacy":
        raise UsageError("legacy takes no prior", place="--prior", hint="--model hinge or eq9 does")
    return (*MODELS[model], *(OPTIONAL if model == "hinge" else ())) if model in MODELS else ()


def _why_no_profile(fitted: BatchModel, prior: Mapping[str, float]) -> InputError | UsageError | None:
    if fitted.model == "legacy":
        return UsageError(
            "the six-term legacy model is never simulated, and no profile holds it",
            hint="--model hinge or --model eq9",
        )
    filled = [name for name, known in fitted.coefficients.items() if known.status == "prior"]
    refused = [name for name in fitted.missing if name in prior]
    if refused or (filled and foreign(fitted, prior)):
        differs = ", ".join(foreign(fitted, prior)) or f"{', '.join(refused)} cannot be what it says"
        return UsageError(
            f"is of another engine than these steps ({differs}), and {', '.join(refused or filled)} would "
            "come from it alone",
            place="--prior",
            expected="a profile of this model on this GPU",
            hint="agentctl calibrate prior --model config.json --gpu NAME makes one",
        )
    if fitted.missing:
        return InputError(
            f"the steps do not show {_in_words(fitted)}, and a profile needs them",
            hint="add logs with prefill of several lengths and decodes of several contexts, "
            "or fill in from another profile with --prior P",
        )
    values = [known.value for known in fitted.coefficients.values()]
    if any(value is not None and not math.isfinite(value) for value in values):
        return InputError("the fit did not converge to finite coefficients")
    return None


def _in_words(fitted: BatchModel) -> str:
    """Missing coefficients, those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for name in fitted.missing:
        reasons.setdefault(fitted.coefficients[name].status, []).append(name)
    return ", ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())


def profile_tables(fitted: BatchModel, log: StepLog, engine: Engine, prior: Profile | None) -> dict[str, Any]:
    """The tables of a profile file, checked as it will be when it is read."""
    coefficients = batch_time_of(fitted.model, fitted.values)._asdict()
    from_prior = [name for name, known in fitted.coefficients.items() if known.status == "prior"]
    tables: dict[str, Any] = {
        "schema": PROFILE_SCHEMA,
        **{key: value for key, value in asdict(engine).items() if value is not None},
        "batch_time": {
            **{key: value if isinstance(value, str) else float(value) for key, value in coefficients.items()},
            "fit": _fit_table(fitted),
        },
        "provenance": {
            "source": "measured",
            "tool": f"agentctl {__version__}",
            "method": "steps",
            "formats": list(log.formats),
            "recorded": recorded(log.steps.time_s),
            "prior": prior.name if prior else None,
            "from_prior": from_prior or None,
            "inputs": dict(log.inputs),
        },
    }
    try:
        parse_profile(without_none(tables), "profile", "calibrated")
    except ConfigError as error:
        raise InputError(f"the fit makes no valid profile: {error.message}", hint=error.hint) from error
    return tables


def _fit_table(fitted: BatchModel) -> dict[str, Any]:
    return {
        "rows": fitted.rows,
        "mape": fitted.held_out.mape,
        "median_ape": fitted.held_out.median_ape,
        "bias": fitted.held_out.bias,
        "r2": fitted.held_out.r2,
        "mape_with_stalls": fitted.held_out_with_stalls.mape,
        "condition": finite(fitted.condition),
        "stall_share": fitted.stalls / (fitted.rows + fitted.stalls),
        "stall_delay_s": fitted.stall_delay_s,
        "box": {name: list(ends) for name, ends in fitted.box.items()},
        "status": {name: known.status for name, known in fitted.coefficients.items()},
        "covariance": {"names": list(fitted.names), "matrix": fitted.covariance.tolist()},
        "by_region": {
            name: {"rows": one.rows, "mape": one.mape, "median_ape": one.median_ape, "bias": one.bias}
            for name, one in fitted.regions.items()
        },
    }


def recorded(time_s: np.ndarray) -> str | None:
    """When the last step began, if the log's times are of the calendar: a date that the data give."""
    last = float(time_s[-1]) if len(time_s) else math.nan
    if not last > ABSOLUTE_S:
        return None
    return datetime.fromtimestamp(last, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _document(fitted: BatchModel, log: StepLog, tables: dict[str, Any] | None) -> dict[str, Any]:
    fit = _fit_table(fitted)
    return {
        "schema": CALIBRATE_SCHEMA,
        "source": "steps",
        "model": fitted.model,
        "coefficients": {
            name: {
                "unit": "s",
                "value": known.value,
                "standard_error": known.standard_error,
                "status": known.status,
                "separable": known.separable,
            }
            for name, known in fitted.coefficients.items()
        },
        "missing": fitted.missing,
        "held_out": asdict(fitted.held_out),
        "held_out_with_stalls": asdict(fitted.held_out_with_stalls),
        "regions": {name: asdict(one) for name, one in fitted.regions.items()},
        "steps": {
            "read": log.read, "set_aside": log.set_aside, "fitted": fitted.rows, "stalls": fitted.stalls,
            "stall_delay_s": fitted.stall_delay_s, "by_kind": fitted.kinds,
            "loop_s": log.loop_s,
        },
        "condition": fit["condition"],
        "covariance": fit["covariance"],
        "box": fit["box"],
        "candidates": fitted.tried,
        "batch_time": tables["batch_time"] if tables else None,
        "notes": list(log.notes),
        "provenance": {
            "agentctl_version": __version__, "inputs": dict(log.inputs), "formats": list(log.formats),
        },
    }  # fmt: skip
