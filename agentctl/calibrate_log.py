"""Calibration from a request log alone: the coefficients with which a simulation of the run reproduces it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.analyzers.words import count
from agentctl.calibrate import Engine
from agentctl.calibrate_log_document import log_document, log_profile, named_engine
from agentctl.calibrate_log_scale import Scale, scale_of, sought_box
from agentctl.calibrate_log_sections import Told, sections_of
from agentctl.cluster import Cluster, Pool
from agentctl.engine_meta import UNLIMITED, Limits
from agentctl.errors import InputError, UsageError
from agentctl.estimators.batch_terms import MODELS, OPTIONAL, batch_time_of
from agentctl.estimators.batch_time import BatchTime
from agentctl.estimators.simulated_fit import STARTS, Box, SimulatedFit, fit_simulated
from agentctl.logged import LoggedRun, blocks_for_all, engines_in
from agentctl.policies.base import load_policy
from agentctl.present import Section
from agentctl.profile import MOST, Profile
from agentctl.profile_file import toml_text
from agentctl.trace import Trace

F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]
Note = Callable[[str], None]

MOST_REQUESTS = 1000  # fitted by default: the simulator runs some thousand times
LEAST_REQUESTS = 20
TERMS = ("b_context_mixed",)  # beside the base of the hinge, by default


@dataclass(frozen=True)
class LogCalibration:
    """document: what --json prints; profile: the tables of the TOML file, or why there is none."""

    document: dict[str, Any]
    sections: tuple[Section, ...]
    fitted: SimulatedFit
    batch_time: BatchTime
    profile: dict[str, Any] | None
    why_no_profile: InputError | None

    def toml(self) -> str:
        """The profile file; raises the error that says why the log makes none."""
        if self.why_no_profile is not None:
            raise self.why_no_profile
        assert self.profile is not None
        return toml_text(
            self.profile,
            "Reproduces the run that it was fitted to. Its coefficients are not known one by one.",
        )


class Errors(NamedTuple):
    """Of simulated against logged times; bias: of the means."""

    requests: int
    ttft_mape: float | None
    ttft_median: float | None
    ttft_bias: float | None
    ttft_p90_bias: float | None
    e2e_mape: float | None
    e2e_median: float | None
    e2e_bias: float | None


def calibrate_log(
    trace: Trace,
    limits: Limits,
    model: str = "hinge",
    terms: Sequence[str] | None = None,
    engine: Engine | None = None,
    prior: Profile | None = None,
    engines: int | None = None,
    policy: str | None = None,
    requests: int | None = None,
    share: float = 1.0,
    seed: int = 0,
    note: Note = lambda said: None,
) -> LogCalibration:
    """Fit `model` to the latencies in `trace`.

    prior     coefficients that the fit is drawn to, by the intervals in its [batch_time.fit] if it has them
    engines   how many served, if the log does not name them; more than one needs `policy`, which placed them
    requests  of the trace's start that are simulated; default: MOST_REQUESTS
    share     of these, by arrival, whose latencies are fitted; the others are judged

    Raises InputError for a log without latencies, placement or limits, UsageError for what does not fit.
    """
    names = _names(model, terms)
    run = _prepare(trace, limits, engines, policy, requests)
    scale = scale_of(run, str(trace.path))
    boxes = {name: sought_box(name, scale, prior) for name in names}
    n = run.workload.n_requests
    fitted_rows = np.arange(n) < max(round(share * n), LEAST_REQUESTS)
    half = np.arange(n) < fitted_rows.sum() // 2
    _check_measured(run, half, str(trace.path))
    _check_fits(run, str(trace.path))
    fit = _fit(run, boxes, model, scale, fitted_rows, seed, note, intervals=True)
    note("fitting to the first half alone, to judge by the rest")
    other = _fit(run, boxes, model, scale, half, seed, note, intervals=False)
    batch_time = _batch_time(model, fit.values)
    judged = {
        "fitted": _judge(run, batch_time, fitted_rows),
        "held_out": _judge(run, _batch_time(model, other.values), fitted_rows & ~half),
    }
    if not fitted_rows.all():
        judged["later"] = _judge(run, batch_time, ~fitted_rows)
    outcome = run.simulate(batch_time)
    told = Told(
        trace.n_requests, fit, boxes, batch_time, judged, run, outcome, scale.floor_s, fitted_rows,
        _peak_tokens(outcome, run.cluster.pools[0]), prior, limits.kv_blocks == UNLIMITED,
    )  # fmt: skip
    why = _why_no_profile(fit, prior)
    tables = None if why else log_profile(told, named_engine(engine or Engine(), trace), trace, seed)
    return LogCalibration(
        log_document(told, tables, trace, seed), sections_of(told), fit, batch_time, tables, why
    )


def _names(model: str, terms: Sequence[str] | None) -> tuple[str, ...]:
    """Coefficients to fit, in the order of the model."""
    if model not in ("eq9", "hinge"):
        raise UsageError(f"is {model!r}", place="--model", expected="eq9 or hinge: what can be simulated")
    chosen = tuple((TERMS if model == "hinge" else ()) if terms is None else terms)
    for term in chosen:
        if term not in OPTIONAL:
            raise UsageError(f"no term {term!r}", place="--terms", expected=", ".join(OPTIONAL))
    if model == "eq9" and set(chosen) - {"b_past"}:
        raise UsageError("eq9 takes b_past alone", place="--terms", hint="--model hinge has all terms")
    return (*MODELS[model], *(term for term in OPTIONAL if term in chosen))


def _batch_time(model: str, values: Mapping[str, float]) -> BatchTime:
    found = batch_time_of(model, values)
    return found._replace(model="hinge") if found.b_past else found  # not a term of Eq. 9


def _prepare(
    trace: Trace, limits: Limits, engines: int | None, policy: str | None, requests: int | None
) -> LoggedRun:
    """The run, ready to be simulated. Raises for limits that are not known."""
    missing = [
        f"--{name.replace('_', '-')}"
        for name in ("max_num_seqs", "max_num_batched_tokens", "kv_blocks")
        if getattr(limits, name) is None
    ]
    if missing:
        raise UsageError(
            "a request log does not say what the engine was started with",
            expected=", ".join(missing),
            hint="the engine prints them at start; --kv-blocks unlimited if its KV cache was never full",
        )
    block_tokens = limits.block_tokens or _block_tokens(trace.block_tokens)
    named = engines_in(trace)
    n_engines = engines or max(len(named), 1)
    chosen = load_policy(policy) if policy else None
    if n_engines > 1 and not named and chosen is None:
        raise UsageError(
            f"the log does not say which of the {n_engines} engines served a request",
            place="--engines",
            expected="--policy NAME, the policy that placed them, or a log that names engines",
        )
    if limits.kv_blocks == UNLIMITED:
        kv_blocks = blocks_for_all(trace, block_tokens)
    else:
        kv_blocks = int(limits.kv_blocks)  # type: ignore[arg-type]
    pool = Pool(
        "main", Profile(BatchTime(b0=1.0)), kv_blocks, block_tokens, engines=n_engines,
        max_num_batched_tokens=limits.max_num_batched_tokens or 0, max_num_seqs=limits.max_num_seqs or 0,
        max_model_len=limits.max_model_len,
    )  # fmt: skip
    most = MOST_REQUESTS if requests is None else requests
    run = LoggedRun(trace, Cluster((pool,)), chosen, replay=None, requests=most)
    if run.workload.n_requests < LEAST_REQUESTS:
        raise InputError(
            f"{count(run.workload.n_requests, 'request')}: too few to fit coefficients to",
            place=str(trace.path),
            expected=f"{LEAST_REQUESTS} at least, better some hundred",
        )
    return run


def _block_tokens(of_trace: int | None) -> int:
    return of_trace if of_trace and of_trace % 16 else 16


def _check_measured(run: LoggedRun, rows: Mask, place: str) -> None:
    for name, values in (("ttft_s", run.logged.ttft_s), ("e2e_s", run.logged.e2e_s)):
        known = int(np.isfinite(values[rows]).sum())
        if known < LEAST_REQUESTS // 2:
            raise InputError(
                f"{known} of the first {int(rows.sum()):,} requests have {name}",
                place=place,
                expected=f"{LEAST_REQUESTS // 2} at least: half of the requests that are fitted",
            )


def _check_fits(run: LoggedRun, place: str) -> None:
    """That half of the requests can be served by the engine at all."""
    pool = run.cluster.pools[0]
    most = min(pool.usable_blocks * pool.block_tokens + 1, pool.max_model_len or MOST**2)
    requests = run.workload.requests
    over = int((requests.prompt_tokens + requests.output_tokens > most).sum())
    if 2 * over > requests.prompt_tokens.size:
        raise InputError(
            f"{over:,} of {requests.prompt_tokens.size:,} requests are longer than the engine can hold",
            place=place,
            expected=f"at most {most:,} tokens: {pool.kv_blocks:,} blocks of {pool.block_tokens} tokens"
            + (f", max_model_len {pool.max_model_len:,}" if pool.max_model_len else ""),
            hint="are the limits those of the log's engine, and the token counts in tokens?",
        )


def _fit(
    run: LoggedRun, boxes: Mapping[str, Box], model: str, scale: Scale, rows: Mask, seed: int, note: Note,
    intervals: bool,
) -> SimulatedFit:  # fmt: skip
    logged = run.logged
    has_ttft, has_e2e = rows & np.isfinite(logged.ttft_s), rows & np.isfinite(logged.e2e_s)

    def errors(values: dict[str, float]) -> list[F64]:
        ttft, e2e = run.latencies(_batch_time(model, values))
        return [
            _error(ttft[has_ttft], logged.ttft_s[has_ttft], scale.floor_s),
            _error(e2e[has_e2e], logged.e2e_s[has_e2e], scale.floor_s),
        ]

    return fit_simulated(errors, boxes, seed, intervals, STARTS if intervals else STARTS - 1, note)


def _error(simulated: F64, logged: F64, floor_s: float) -> F64:
    """Relative to the logged time, or to the floor where that is longer; a rejected request errs by 1."""
    return np.nan_to_num((simulated - logged) / np.hypot(logged, floor_s), nan=1.0)


def _judge(run: LoggedRun, batch_time: BatchTime, rows: Mask) -> Errors:
    ttft, e2e = run.latencies(batch_time)
    mape, median, bias, p90 = _compare(ttft[rows], run.logged.ttft_s[rows])
    return Errors(int(rows.sum()), mape, median, bias, p90, *_compare(e2e[rows], run.logged.e2e_s[rows])[:3])


def _compare(simulated: F64, logged: F64) -> tuple[float | None, ...]:
    known = np.isfinite(logged) & np.isfinite(simulated) & (logged > 0)
    if not known.any():
        return None, None, None, None
    s, m = simulated[known], logged[known]
    apart = np.abs(s / m - 1)
    p90 = np.quantile(s, 0.9) / np.quantile(m, 0.9) - 1
    return tuple(map(float, (apart.mean(), np.median(apart), s.mean() / m.mean() - 1, p90)))


def _peak_tokens(outcome: Any, pool: Pool) -> int:
    """KV tokens that requests in service held at most at once in one engine, as if each held all of its own
    from admission on, and no more than there are."""
    requests, most = outcome.workload.requests, 0
    for engine in range(outcome.n_engines):
        here = outcome.done & (outcome.engine == engine)
        held = (requests.prompt_tokens + requests.output_tokens)[here]
        times = np.concatenate([outcome.finish_s[here], outcome.scheduled_s[here]])
        change = np.concatenate([-held, held])
        order = np.argsort(times, kind="stable")
        most = max(most, int(np.cumsum(change[order]).max(initial=0)))
    return min(most, int(pool.usable_blocks * pool.block_tokens))


def _why_no_profile(fit: SimulatedFit, prior: Profile | None) -> InputError | None:
    if fit.unseen and prior is None:
        return InputError(
            f"the log does not show {', '.join(fit.unseen)}: the errors hardly change with it",
            hint="a log with more load and other lengths, or a prior: --model-config config.json "
            "with --gpu NAME, or --prior P",
        )
    return None
