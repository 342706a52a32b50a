"""Calibration from outside: an endpoint is probed, what was seen is fitted, and another load judges."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentctl import __version__
from agentctl.calibrate import CALIBRATE_SCHEMA, Engine
from agentctl.calibrate_endpoint_mixed import Mixed, judge_mixed
from agentctl.calibrate_endpoint_sections import sections_of
from agentctl.endpoint.client import STALL_S, Client
from agentctl.endpoint.dialect import MOST_TRIALS, PROMPTS, find_dialect
from agentctl.endpoint.measured import Measured, dialect_of, new_measured, new_salt, read_measured
from agentctl.endpoint.plan import Plan, make_plan
from agentctl.endpoint.probe import Progress, probe
from agentctl.endpoint.rows import Read, read_rows
from agentctl.endpoint.server import ask_server, check_quiet, short
from agentctl.errors import ConfigError, InputError, UsageError
from agentctl.estimators.batch_terms import batch_time_of
from agentctl.estimators.endpoint_fit import EndpointFit, fit_endpoint
from agentctl.present import Section
from agentctl.profile import PROFILE_SCHEMA, parse_profile
from agentctl.profile_file import toml_text, without_none

MOST_CONTEXT = 4352  # tokens of the longest probe, where the engine takes more
LEAST_CONTEXT = 256


@dataclass(frozen=True)
class Asked:
    """What is asked of the endpoint. model: its name there; None: the only one that it serves."""

    requests: int = 200
    seconds: float = 300.0
    model: str | None = None
    prompts: str = "auto"  # auto: token ids where they are taken | tokens | text
    max_context: int | None = None  # None: as the server says, at most MOST_CONTEXT
    max_width: int = 16
    seed: int = 0

    def plan(self, max_context: int, trials: int = 1) -> Plan:
        """`trials`: requests that were spent on how to ask."""
        left = self.requests - trials
        return make_plan(left, self.seconds, max_context, self.max_width, seed=self.seed)


@dataclass(frozen=True)
class EndpointCalibration:
    """document: what --json prints; profile: the tables of the TOML file, or why there is none."""

    document: dict[str, Any]
    sections: tuple[Section, ...]
    fitted: EndpointFit
    mixed: Mixed
    profile: dict[str, Any] | None
    why_no_profile: InputError | None
    engine: Engine  # what is known of it

    def toml(self) -> str:
        """The profile file; raises the error that says why the rows make none."""
        if self.why_no_profile is not None:
            raise self.why_no_profile
        assert self.profile is not None
        return toml_text(self.profile, "Batch time as seen by a client of the engine's API.")


def measure(
    base: str,
    path: Path,
    asked: Asked,
    key: str | None = None,
    note: Callable[[str], None] = lambda said: None,
    progress: Progress | None = None,
) -> Measured:
    """Probe the endpoint at `base` (of address.base_url) into the file `path`, or go on where it stands.

    A file that is complete is read, and nothing is sent. Ctrl-C keeps what was seen. Raises InputError for an
    endpoint that cannot be probed, UsageError for a file of another plan.
    """
    asked.plan(MOST_CONTEXT)  # says whether the budget can be met, before anybody is asked
    if asked.prompts not in PROMPTS:
        raise UsageError(f"is {asked.prompts!r}", place="--prompts", expected="auto, tokens or text")
    older = read_measured(path) if path.is_file() and path.stat().st_size else None
    if older is not None:
        plan = asked.plan(*_asked_of(older, path))
        dialect = dialect_of(older.header, f"{path}:1")
        if plan.digest != older.header["plan"] or asked.prompts not in ("auto", dialect.prompts):
            raise UsageError(
                "was measured with another budget, width, context, seed or kind of prompts",
                place=str(path), hint="give the same flags, or another file with --measured",
            )  # fmt: skip
        if all(step.name in older.steps for step in plan.steps):
            note(f"{path} is complete: nothing is sent")
            return older
    return asyncio.run(measured_from(base, path, asked, key, note, progress, older))


def _asked_of(measured: Measured, path: Path) -> tuple[int, int]:
    """Longest context and trials of a file; raises InputError."""
    tokens, trials = measured.header.get("max_context"), measured.header.get("trials")
    if type(tokens) is not int or not LEAST_CONTEXT <= tokens <= MOST_CONTEXT:
        raise InputError("holds no usable max_context", place=f"{path}:1")
    if type(trials) is not int or not 0 <= trials <= MOST_TRIALS:
        raise InputError("holds no usable trials", place=f"{path}:1")
    return tokens, trials


async def measured_from(
    base: str,
    path: Path,
    asked: Asked,
    key: str | None = None,
    note: Callable[[str], None] = lambda said: None,
    progress: Progress | None = None,
    older: Measured | None = None,
    stall_s: float = STALL_S,
    cpu_time: Callable[[], float] = time.process_time,
) -> Measured:
    """The same in a loop that runs already; `older`: what the file holds."""
    async with Client(base, key, stall_s) as client:
        measured = older or await _begin(client, path, asked, note)
        client.dialect = dialect_of(measured.header, f"{path}:1")
        plan = asked.plan(*_asked_of(measured, path))
        note(f"{plan.n_requests} requests, {asked.seconds:.0f} s at most; what is measured goes to {path}")
        measured.open()
        try:
            await probe(plan, client, measured, progress, cpu_time, note)
        finally:
            measured.close()
    return measured


async def _begin(client: Client, path: Path, asked: Asked, note: Callable[[str], None]) -> Measured:
    """A new file: the model and its limits as the server says, and how it is asked."""
    server = await ask_server(client, asked.model)
    limits = [one for one in (asked.max_context, server.max_model_len, MOST_CONTEXT) if one is not None]
    if min(limits) < LEAST_CONTEXT:
        fact = f"is {min(limits)} tokens"
        raise UsageError(fact, place="--max-context", expected=f"{LEAST_CONTEXT} at least")
    salt = new_salt()
    await check_quiet(client)
    dialect, trials = await find_dialect(
        client, server.model, asked.prompts, salt, server.kind == "llama.cpp", note
    )
    facts = {
        "max_context": min(limits), "trials": trials, "dialect": dialect.as_header(), "kind": server.kind,
        "limits": server.limits, "agentctl": __version__,
    }  # fmt: skip
    plan = asked.plan(min(limits), trials)
    return new_measured(path, plan, server.model, facts, salt)


def calibrate_endpoint(
    measured: Measured, engine: Engine | None = None, seed: int = 0
) -> EndpointCalibration:
    """Fit what was measured. `engine`: what is known of it, such as its max_num_batched_tokens."""
    engine = _with_said(engine or Engine(), measured.header.get("limits"))
    read = read_rows(measured)
    fitted = fit_endpoint(read.rows, engine.max_num_batched_tokens, seed)
    batch_time = batch_time_of("hinge", fitted.batch_terms)
    mixed = judge_mixed(read.mixed, fitted, batch_time, engine)
    why = _why_no_profile(fitted)
    named = replace(
        engine,
        model=engine.model or short(str(measured.header["model"])),
        max_num_batched_tokens=fitted.budget,
    )
    inputs = {measured.path.name: hashlib.sha256(measured.path.read_bytes()).hexdigest()}
    tables = None if why else _profile(fitted, batch_time._asdict(), mixed, named, inputs)
    document = _document(fitted, read, mixed, tables, inputs)
    return EndpointCalibration(document, sections_of(fitted, read, mixed), fitted, mixed, tables, why, named)


def _with_said(engine: Engine, said: Any) -> Engine:
    """With limits that the server told, where nobody else did."""
    known = said if isinstance(said, dict) else {}
    names = ("kv_blocks", "block_tokens", "max_num_seqs", "max_num_batched_tokens")
    told = {name: known[name] for name in names if type(known.get(name)) is int}
    return replace(engine, **{name: n for name, n in told.items() if getattr(engine, name) is None})


def _why_no_profile(fitted: EndpointFit) -> InputError | None:
    if not fitted.missing:
        return None
    why = ", ".join(f"{name} ({fitted.coefficients[name].status})" for name in fitted.missing)
    hint = "see which requests were set aside and why; the same command goes on if the budget ended it"
    if any(fitted.coefficients[name].status == "not identified" for name in fitted.missing):
        hint = "the machine was busy or too few decodes were of use: probe again when it is quiet"
    return InputError(f"what was measured does not show {why}, and a profile needs them", hint=hint)


def _profile(
    fitted: EndpointFit, batch_time: dict[str, Any], mixed: Mixed, engine: Engine, inputs: dict[str, str]
) -> dict[str, Any]:
    """The tables of a profile file, checked as it will be when it is read."""
    tables = {
        "schema": PROFILE_SCHEMA,
        **{key: value for key, value in vars(engine).items() if value is not None},
        "batch_time": {
            **{key: value if isinstance(value, str) else float(value) for key, value in batch_time.items()},
            "fit": {
                "rows": len(fitted.rows),
                "mape": fitted.held_out.mape,
                "median_ape": fitted.held_out.median_ape,
                "bias": fitted.held_out.bias,
                "condition": fitted.condition,
                "request_overhead_s": fitted.overhead_s,
                "chunk_budget": fitted.budget_status,
                "status": {name: one.status for name, one in fitted.coefficients.items()},
                "at_most": {
                    name: one.at_most for name, one in fitted.coefficients.items() if one.at_most is not None
                },
                "covariance": {"names": list(fitted.names), "matrix": fitted.covariance.tolist()},
                "by_region": {
                    name: {"rows": one.rows, "mape": one.mape, "median_ape": one.median_ape, "bias": one.bias}
                    for name, one in fitted.by_kind.items()
                },
                "mixed_load": {key: value for key, value in mixed._asdict().items() if value is not None},
            },
        },
        "provenance": {
            "source": "measured", "method": "endpoint", "tool": f"agentctl {__version__}", "inputs": inputs,
        },
    }  # fmt: skip
    tables = without_none(tables)
    try:
        parse_profile(tables, "profile", "calibrated")
    except ConfigError as error:
        raise InputError(f"the fit makes no valid profile: {error.message}", hint=error.hint) from error
    return tables


def _document(
    fitted: EndpointFit, read: Read, mixed: Mixed, tables: dict[str, Any] | None, inputs: dict[str, str]
) -> dict[str, Any]:
    return {
        "schema": CALIBRATE_SCHEMA,
        "source": "endpoint",
        "model": "hinge",
        "coefficients": {name: {"unit": "s", **one._asdict()} for name, one in fitted.coefficients.items()},
        "missing": fitted.missing,
        "held_out": vars(fitted.held_out),
        "regions": {name: vars(one) for name, one in fitted.by_kind.items()},
        "mixed_load": mixed._asdict(),
        "requests": {"read": read.read, "set_aside": read.set_aside, "rows": len(fitted.rows)},
        "chunk_budget": {"tokens": fitted.budget, "status": fitted.budget_status},
        "graph_stairs": fitted.stairs._asdict() if fitted.stairs else None,
        "condition": fitted.condition,
        "covariance": {"names": list(fitted.names), "matrix": fitted.covariance.tolist()},
        "candidates": fitted.tried,
        "batch_time": tables["batch_time"] if tables else None,
        "provenance": {"agentctl_version": __version__, "inputs": inputs},
    }
