"""One batch-time model fitted to steps, with all that must be said beside its coefficients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agentctl.errors import InputError, UsageError
from agentctl.estimators import batch_errors as judge
from agentctl.estimators.batch_errors import Errors
from agentctl.estimators.batch_fit import PRIOR_SPREAD, Coefficients, fit
from agentctl.estimators.batch_terms import MODELS, NEEDED, OPTIONAL, column
from agentctl.estimators.steps import KINDS, Floats, Steps

MOST_COMPARED = 2000  # steps of a kind on which candidate terms are compared
WORTH = 0.01  # an optional term stays when it lowers the held-out error by this share
FAR = 3.0  # errors or spreads from which the data contradict a prior
WEAK = 0.5  # standard error over value from which a coefficient is barely known
WHY = {  # when a column has no row, or is not in the log
    "b_token": "no step computes tokens", "b_prefill": "no step has prefill",
    "b_decode": "no step has decodes",
    "b_context": "no decode has a known context", "b_attention": "no prefill chunk has a known context",
}  # fmt: skip


@dataclass(frozen=True)
class Known:
    """One coefficient: its value, or why there is none."""

    value: float | None
    standard_error: float | None
    separable: float  # share of its column that no other explains
    status: str  # ok | weak | zero | prior | not seen | not separable


@dataclass(frozen=True)
class BatchModel:
    model: str  # eq9 | hinge | legacy
    coefficients: dict[str, Known]
    names: tuple[str, ...]  # the order of `covariance`
    covariance: Floats
    condition: float
    held_out: Errors
    held_out_with_stalls: Errors
    regions: dict[str, Errors]
    rows: int  # that were fitted
    kinds: dict[str, int]
    stalls: int
    stall_delay_s: float | None  # mean excess of a stall
    box: dict[str, tuple[float, float]]  # calibrated ranges, of what is known
    tried: dict[str, float]  # held-out error of the candidates that were compared
    predicted: Floats  # held out, of `steps`
    steps: Steps  # without stalls

    @property
    def values(self) -> dict[str, float | None]:
        return {name: known.value for name, known in self.coefficients.items()}

    @property
    def missing(self) -> list[str]:
        """Coefficients that a profile needs and the data do not give."""
        needed = [*NEEDED, "b_token"]
        return [name for name, known in self.coefficients.items() if known.value is None and name in needed]


def fit_batch_model(
    steps: Steps,
    model: str = "hinge",
    terms: Sequence[str] | None = None,
    prior: Mapping[str, float] | None = None,
) -> BatchModel:
    """Fit `model` to checked steps.

    terms   optional terms of the hinge; None: those that lower the error on held-out steps
    prior   {coefficient: value} that the fit is drawn to, and that stands for what the data cannot see
    Raises InputError when the data can give no coefficient at all, UsageError for an unknown model or term.
    """
    if model not in MODELS:
        raise UsageError(f"unknown model {model!r}", expected=" or ".join(MODELS))
    base = MODELS[model]
    _check_terms(model, terms)
    prior = dict(prior or {})
    gone = _unusable(steps, base, prior)
    core = tuple(name for name in base if name not in gone)
    _check_legacy(model, gone)
    prior = _uncontradicted(steps, core, prior)
    first = fit(steps, core, prior)
    is_stall = judge.stalls(steps, first)
    calm = steps.at(~is_stall)
    names, tried = _choose(calm, core, model, terms, prior)
    if names != core:  # steps that a simpler model cannot explain are no stalls
        is_stall = judge.stalls(steps, fit(steps, names, prior))
        calm = steps.at(~is_stall)
    names, more = _drop_inseparable(calm, names, prior)
    gone |= more
    fitted = fit(calm, names, prior)
    predicted = judge.held_out(calm, names, prior)
    everything = np.empty(len(steps))
    everything[~is_stall] = predicted
    everything[is_stall] = fitted.predict(steps.at(is_stall))
    found, all_found = judge.errors(predicted, calm.seconds), judge.errors(everything, steps.seconds)
    assert found is not None and all_found is not None
    identified = judge.identify(calm, fitted)
    covariance = judge.covariance(calm, fitted)
    excess = steps.seconds[is_stall] - everything[is_stall]
    return BatchModel(
        model=model,
        coefficients=_known(fitted, covariance, identified.separable, gone, prior),
        names=fitted.names,
        covariance=covariance,
        condition=identified.condition,
        held_out=found,
        held_out_with_stalls=all_found,
        regions=judge.by_region(predicted, calm),
        rows=len(calm),
        kinds={name: int((calm.kind == number).sum()) for number, name in enumerate(KINDS)},
        stalls=int(is_stall.sum()),
        stall_delay_s=float(excess.mean()) if is_stall.any() else None,
        box=_box(calm),
        tried=tried,
        predicted=predicted,
        steps=calm,
    )


def _check_terms(model: str, terms: Sequence[str] | None) -> None:
    if terms and model != "hinge":
        raise UsageError(f"{model} has no optional terms", hint="--model hinge has them")
    for name in terms or ():
        if name not in OPTIONAL:
            raise UsageError(f"no optional term {name!r}", expected=", ".join(OPTIONAL))


def _unusable(steps: Steps, names: Sequence[str], prior: Mapping[str, float]) -> dict[str, str]:
    """{coefficient: why the data do not show it}."""
    columns = {name: column(steps, name, names) for name in names}
    gone = {
        name: WHY.get(name, "not in the log")
        for name, values in columns.items()
        if not np.isfinite(values).all() or not values.any()
    }
    if len(gone) == len(names) or not np.isfinite(steps.tokens).all():
        raise InputError(
            "no step says what it computed",
            expected="prefill tokens and number of decodes of every step",
            hint="map the columns with --map, or record with agentctl's vLLM recorders",
        )
    return gone


def _uncontradicted(steps: Steps, names: tuple[str, ...], prior: dict[str, float]) -> dict[str, float]:
    """Without what the data alone put far away, by their error and the prior's spread."""
    if not prior:
        return prior
    alone = fit(steps, names)
    error = np.sqrt(np.diag(judge.covariance(steps, alone)))
    return {
        name: value
        for name, value in prior.items()
        if name not in names
        or abs(alone.values[names.index(name)] - value)
        <= max(FAR * error[names.index(name)], FAR * PRIOR_SPREAD * value)
    }


def _check_legacy(model: str, gone: Mapping[str, str]) -> None:
    if model == "legacy" and gone:
        raise InputError(
            f"the log does not give {', '.join(gone)} of the six-term model",
            expected="the composition of every step, request by request",
            hint="agentctl.recorders.vllm_scheduler writes it; --model hinge needs sums only",
        )


def _choose(
    steps: Steps,
    core: tuple[str, ...],
    model: str,
    terms: Sequence[str] | None,
    prior: Mapping[str, float],
) -> tuple[tuple[str, ...], dict[str, float]]:
    """Terms of the model, and the held-out error of each candidate: one more while that pays."""
    if model != "hinge" or terms is not None:
        wanted = tuple(name for name in OPTIONAL if name in (terms or ()))
        for name, why in _unusable(steps, (*core, *wanted), {}).items():
            raise InputError(f"{name} cannot be fitted: {why}", hint="leave it out of --terms")
        return (*core, *wanted), {}
    steps = steps.at(_thinned(steps))
    usable = [
        name
        for name in ("b_context_mixed", "b_past", "h0")
        if not _unusable(steps, (*core, name), {}).keys() & {name, "b_context"}
        and (name != "b_context_mixed" or "b_context" in core)
    ]
    names, best = core, judge.score(judge.held_out(steps, core, prior), steps)
    tried = {"base": best}
    while usable:
        scores = {name: judge.score(judge.held_out(steps, (*names, name), prior), steps) for name in usable}
        name = min(scores, key=lambda one: (scores[one], one))
        tried |= {"+".join((*names[len(core) :], one)): value for one, value in scores.items()}
        if scores[name] > best * (1 - WORTH):
            break
        names, best = (*names, name), scores[name]
        usable.remove(name)
        if name == "h0":
            usable.append("h_seq")
    return names, tried


def _thinned(steps: Steps) -> np.ndarray:
    """Positions of at most about MOST_COMPARED steps of a kind, evenly over the log."""
    rows = [np.flatnonzero(steps.kind == number) for number in range(len(KINDS))]
    return np.sort(np.concatenate([one[:: -(-len(one) // MOST_COMPARED) or 1] for one in rows]))


def _drop_inseparable(
    steps: Steps, names: tuple[str, ...], prior: Mapping[str, float]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Without coefficients whose column the others explain: their values would be anybody's guess."""
    gone: dict[str, str] = {}
    order = (
        "h_seq",
        "b_past",
        "b_context_mixed",
        "b_attention",
        "b_decode",
        "b_context",
        "b_token",
        "b_prefill",
    )
    while True:
        model = Coefficients(names, np.ones(len(names)))
        gpu = tuple(name for name in names if name not in ("h0", "h_seq"))
        share = judge.identify(steps, Coefficients(gpu, model.values[: len(gpu)])).separable
        bad = [name for name in order if share.get(name, 1.0) < judge.INSEPARABLE and name not in prior]
        if not bad:
            return names, gone
        names = tuple(name for name in names if name != bad[0])
        gone[bad[0]] = "not separable: in these steps it always goes with other terms"


def _known(
    fitted: Coefficients,
    covariance: Floats,
    separable: Mapping[str, float],
    gone: Mapping[str, str],
    prior: Mapping[str, float],
) -> dict[str, Known]:
    known = {}
    for position, name in enumerate(fitted.names):
        value, error = float(fitted.values[position]), float(np.sqrt(max(covariance[position, position], 0)))
        status = "zero" if value == 0 else "weak" if error > WEAK * value else "ok"
        known[name] = Known(value, error if value else None, separable[name], status)
    for name, why in gone.items():
        known[name] = Known(prior[name], None, 0.0, "prior") if name in prior else Known(None, None, 0.0, why)
    return known


def _box(steps: Steps) -> dict[str, tuple[float, float]]:
    ranges = {}
    for name in ("prefill_tokens", "prefill_context", "n_prefill", "n_decode", "decode_context"):
        values = getattr(steps, name)
        if np.isfinite(values).all():
            ranges[name] = (float(values.min()), float(values.max()))
    return ranges
