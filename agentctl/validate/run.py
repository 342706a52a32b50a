"""The library function behind `agentctl validate`: a log's run simulated, compared and told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from agentctl import __version__
from agentctl.cluster import Cluster, cluster_of, with_profile
from agentctl.coverage import coverage
from agentctl.engine_meta import UNLIMITED
from agentctl.errors import ConfigError, UsageError
from agentctl.logged import blocks_for_all, engines_in
from agentctl.profile import Profile
from agentctl.result import RunResult
from agentctl.simulate import cluster_facts, current_policy, trace_facts
from agentctl.trace import Trace
from agentctl.validate import words
from agentctl.validate.back_test import (
    FAIL,
    HIT_FAIL,
    HIT_WARN,
    WARN,
    BackTest,
    back_test,
    is_placed,
    wrong_kind,
)
from agentctl.validate.compare import Bin, Errors, Hits
from agentctl.validate.intervals import CONFIDENCE, SEED
from agentctl.validate.sections import sections_of

VALIDATE_SCHEMA = "agentctl/validate/1"
EXIT = {"OK": 0, "WARN": 0, "FAIL": 3, "UNVALIDATED": 0}


def validate(
    trace: Trace,
    *,
    profile: Profile | None = None,
    cluster: Cluster | None = None,
    engines: int | None = None,
    kv_blocks: int | str | None = None,
    current: str | None = None,
    strict: bool = False,
) -> RunResult:
    """Simulate what `trace` logged and compare.

    profile, cluster  one of them is needed; both: the cluster's limits, the profile's batch times. A profile
                      alone: as many engines as the log names
    engines           number of engines, in place of the cluster's or the log's
    kv_blocks         of an engine, or "unlimited" (never full), where a profile alone does not say it
    current           `POLICY`, `POLICY:key=value,...` or a cluster file: places the requests where the log
                      does not say which engine served them

    The document has schema `agentctl/validate/1`. Exit code 3: the simulator does not reproduce the log (V1
    fails), or, with `strict`, it does so only roughly or could not be validated. Raises InputError,
    ConfigError, UsageError.
    """
    base = cluster_for(trace, profile, cluster, engines, kv_blocks)
    if wrong := wrong_kind(trace, base):
        raise wrong
    policy = current_policy(current, base)[1] if current else None
    if policy is not None and is_placed(trace, base.n_engines):
        policy = None  # the log's own placement is better
    return result_of(trace, base, back_test(trace, base, policy), strict)


def result_of(trace: Trace, base: Cluster, test: BackTest, strict: bool = False) -> RunResult:
    """Document, sections and exit code of a back-test."""
    exit_code = 3 if strict and test.status != "OK" else EXIT[test.status]
    document = {
        "schema": VALIDATE_SCHEMA,
        "agentctl_version": __version__,
        "exit_code": exit_code,
        **_compared(trace, base, test),
    }
    outcome = test.compared.outcome.table() if test.compared else None
    return RunResult(document, sections_of(test, document), exit_code, outcome)


def cluster_for(
    trace: Trace,
    profile: Profile | None,
    cluster: Cluster | None,
    engines: int | None,
    kv_blocks: int | str | None,
) -> Cluster:
    names = engines_in(trace)
    if cluster is not None:
        if kv_blocks is not None:
            raise UsageError(
                "belongs to a profile alone", place="--kv-blocks", hint="kv_blocks of the [[pool]]"
            )
        base = with_profile(cluster, profile) if profile else cluster
        return base.with_engines(engines) if engines else base
    if profile is None:
        raise UsageError("neither is given", place="--profile, --cluster", expected="at least one of them")
    blocks = profile.kv_blocks if kv_blocks is None else kv_blocks
    if blocks is None:
        raise ConfigError(
            "missing",
            place=f"profile {profile.name}: kv_blocks",
            hint="--kv-blocks N (the engine prints it at start), or unlimited if its KV cache was never full",
        )
    if blocks == UNLIMITED:
        blocks = blocks_for_all(trace, profile.block_tokens or 1)
    return cluster_of(replace(profile, kv_blocks=int(blocks)), engines or max(1, len(names)))


def verdict_of(test: BackTest) -> dict[str, Any]:
    """V1 for a document."""
    return {
        "status": test.status,
        "statement": words.statement(test),
        "error": None if test.error is None else test.error._asdict(),
        "of": None if test.worst is None else {"latency": test.worst[0], "percentile": test.worst[1]},
        "hit_gap": test.hit_gap,
        "limits": {"warn": WARN, "fail": FAIL, "hit_warn": HIT_WARN, "hit_fail": HIT_FAIL},
        "why_not": test.why_not,
    }


def _compared(trace: Trace, cluster: Cluster, test: BackTest) -> dict[str, Any]:
    found = test.compared
    if found is None:
        return {
            "trace": {"name": trace.name, "digest": trace.digest},
            "cluster": cluster_facts(cluster),
            "verdict": verdict_of(test),
            "placement": None,
            "requests": trace.n_requests,
            "warnings": [],
        }
    workload, blocks = found.outcome.workload, found.blocks
    return {
        "trace": trace_facts(workload),
        "cluster": cluster_facts(found.cluster),
        "verdict": verdict_of(test),
        "placement": {
            "by": "log" if found.policy is None else "policy",
            "policy": found.policy,
            "engines": list(found.engines),
            "guessed": found.n_guessed,
        },
        "replay": workload.replay,
        "requests": workload.n_requests,
        "rejected": found.rejected,
        "counts": workload.counts,
        "latencies": {name: _errors(one) for name, one in found.errors.items()},
        "hit_ratio": _hits(found.hits),
        "hit_ratio_missing": found.no_hits,
        "engine_state": {name: asdict(gauge) for name, gauge in found.gauges.items()},
        "load_bins": [_bin(one) for one in found.bins],
        "intervals": {
            "confidence": CONFIDENCE, "blocks": blocks.n, "block_s": blocks.length_s, "caveat": blocks.caveat,
            "draws": len(blocks.drawn), "seed": SEED,
        },
        "coverage": [
            asdict(one) for one in coverage(found.outcome, found.cluster.pools[0].profile.fit)
        ],
        "in_sample": found.in_sample,
        "warnings": list(words.warnings(test)),
    }  # fmt: skip


def _errors(one: Errors) -> dict[str, Any]:
    return {
        "n": one.n,
        "logged": one.logged._asdict(),
        "simulated": one.simulated._asdict(),
        "error": {name: value._asdict() for name, value in one.error.items()},
        "bias": one.bias._asdict(),
        "mape": one.mape._asdict(),
        "median_ape": one.median_ape,
        "gap_s": one.gap_s._asdict(),
    }


def _hits(hits: Hits | None) -> Mapping[str, Any] | None:
    return None if hits is None else {**asdict(hits), "gap": hits.gap._asdict()}


def _bin(one: Bin) -> dict[str, Any]:
    return {
        "load": [one.least, one.most],
        "requests": one.requests,
        "latencies": {name: _errors(errors) for name, errors in one.errors.items()},
        "hit_ratio": _hits(one.hits),
    }
