"""What a calibration from a request log writes: the tables of a profile, and the document of --json."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentctl import __version__
from agentctl.calibrate import CALIBRATE_SCHEMA, Engine
from agentctl.calibrate_log_sections import Told, box_of
from agentctl.profile import PROFILE_SCHEMA, parse_profile
from agentctl.profile_file import without_none
from agentctl.trace import Trace


def named_engine(engine: Engine, trace: Trace) -> Engine:
    """With the model that the log names, where nobody gave one and the log names no other."""
    names = trace.requests(["model"])["model"].drop_nulls().cast(str).unique()
    if engine.model is not None or len(names) != 1:
        return engine
    return replace(engine, model=names[0])


def log_profile(told: Told, engine: Engine, trace: Trace, seed: int) -> dict[str, Any]:
    pool = told.run.cluster.pools[0]
    kv_blocks, why_kv = _kv_blocks(told)
    given = {key: value for key, value in vars(engine).items() if value is not None}
    tables: dict[str, Any] = {
        "schema": PROFILE_SCHEMA,
        **given,
        "kv_blocks": kv_blocks,
        "block_tokens": pool.block_tokens,
        "max_num_batched_tokens": pool.max_num_batched_tokens,
        "max_num_seqs": pool.max_num_seqs,
        "max_model_len": pool.max_model_len,
        "batch_time": {
            **told.batch_time._asdict(),
            "fit": {
                "requests": told.judged["fitted"].requests,
                "interval": {
                    name: list(ends) for name, ends in told.fit.interval.items() if None not in ends
                },
                **{
                    name: {key: value for key, value in one._asdict().items() if value is not None}
                    for name, one in told.judged.items()
                },
                "condition": told.fit.condition,
                "box": {name: [low, high] for name, (low, _, high) in box_of(told).items()},
            },
        },
        "provenance": {
            "source": "fitted-from-log",
            "predictive_only": True,
            "statement": "fitted to a request log by simulation: reproduces the run, single coefficients are "
            "not measured",
            "kv_blocks": why_kv,
            "tool": f"agentctl {__version__}",
            "method": "log",
            "seed": seed,
            "prior": told.prior.name if told.prior else None,
            "inputs": {"trace": trace.digest},
        },
    }
    tables = without_none(tables)
    parse_profile(tables, "profile", "calibrated")
    return tables


def _kv_blocks(told: Told) -> tuple[int, str | None]:
    """Of the engine and, where nobody said it, what the number is."""
    pool, prior = told.run.cluster.pools[0], told.prior
    if not told.unlimited:
        return pool.kv_blocks, None
    used = f"at most {told.peak_tokens:,} tokens were in use at once in the log's run"
    if prior and prior.kv_blocks and prior.block_tokens == pool.block_tokens:
        is_enough = prior.kv_blocks * pool.block_tokens > told.peak_tokens
        return (prior.kv_blocks, f"the prior's; {used}") if is_enough else (pool.kv_blocks, used)
    return pool.kv_blocks, f"not known: as many as the log's requests would fill if none were evicted; {used}"


def log_document(told: Told, tables: dict[str, Any] | None, trace: Trace, seed: int) -> dict[str, Any]:
    fit, run, placement = told.fit, told.run, told.run.placement
    return {
        "schema": CALIBRATE_SCHEMA,
        "source": "log",
        "predictive_only": True,
        "coefficients": {
            name: {
                "unit": "s", "value": value, "low": fit.interval[name][0], "high": fit.interval[name][1],
                "searched": [told.boxes[name].low, told.boxes[name].high], "prior": told.boxes[name].prior,
                "status": told.status(name),
            }
            for name, value in fit.values.items()
        },
        "errors": {name: one._asdict() for name, one in told.judged.items()},
        "fit": {
            "cost": fit.cost, "noise": fit.noise, "latencies": fit.n_errors,
            "independent": fit.n_independent, "runs": fit.n_runs, "searches": list(fit.starts),
            "condition": fit.condition, "rugged": fit.is_rugged, "floor_s": told.floor_s,
        },
        "run": {
            "requests": run.workload.n_requests, "replay": run.workload.replay, "counts": run.workload.counts,
            "engines": run.cluster.n_engines,
            "engines_named": list(placement.names) if placement else [],
            "placed_by": run.policy_name,
            "placement_guessed": placement.n_guessed if placement else None,
            "hits_as_logged": run.hits_as_logged,
            "peak_kv_tokens": told.peak_tokens,
            "box": {name: list(ends) for name, ends in box_of(told).items()},
            "preemptions": int(told.outcome.preemptions.sum()),
        },
        "batch_time": tables["batch_time"] if tables else None,
        "provenance": {
            "agentctl_version": __version__, "trace_digest": trace.digest, "seed": seed,
            "prior": told.prior.name if told.prior else None,
        },
    }  # fmt: skip
