"""Batch-time coefficients from what a client sees: times to first tokens and between tokens, jointly.

A time to first token holds a wait of its own (`delta`: network, HTTP, tokenising) and its chunks' batches; a
time between tokens holds one batch. Only both tell delta from b0. Relative errors, Huber's weights
beyond 10 %, no coefficient negative (Lawson & Hanson), as in batch_fit; their errors by resampling rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from agentctl.errors import InputError
from agentctl.estimators.batch_errors import Errors, errors

F64 = NDArray[np.float64]

BASE = ("delta", "b0", "b_prefill", "b_decode", "b_context", "b_attention", "b_past")
NEEDED = ("b0", "b_prefill", "b_decode", "b_context", "b_attention")
HUBER = 0.1
DRAWS = 200
FOLDS = 5
WORTH = 0.01  # b_context_mixed stays when it lowers the held-out error by this share
EXACT = 1e-6  # differences below are rounding
INSEPARABLE = 1e-4  # share of a column that the others do not explain
WEAK = 0.5  # standard error over value
BUDGETS = (256, 512, 1024, 2048, 4096, 8192, 16384)  # tokens of a batch that engines are started with
BUDGET_WORTH = 0.03  # by which one of them must explain better than no chunking


class Row(NamedTuple):
    """A duration and what was computed in it.

    batches   of the engine; 0: as many as the prefill has chunks
    n_decode  decodes in each batch, context their KV tokens together
    new, past  prefill tokens, and those that were cached before them
    """

    kind: str  # cold | suffix | plateau | inject
    cell: str  # rows of one cell are repeats, or share a set-up
    seconds: float
    batches: int = 0
    n_decode: int = 0
    context: float = 0.0
    new: int = 0
    past: int = 0

    @property
    def is_first_token(self) -> bool:
        return self.kind in ("cold", "suffix")


class Estimate(NamedTuple):
    """value None: the rows do not show it, `status` says why."""

    value: float | None
    standard_error: float | None
    separable: float
    status: str  # ok | weak | zero | not seen | not separable


@dataclass(frozen=True)
class EndpointFit:
    coefficients: dict[str, Estimate]
    names: tuple[str, ...]  # the order of `covariance`
    covariance: F64
    condition: float
    budget: int | None  # tokens of a batch, given or found; None: no prompt showed one
    budget_status: str  # given | found | not seen
    held_out: Errors
    by_kind: dict[str, Errors]
    rows: tuple[Row, ...]
    predicted: F64  # held out
    tried: dict[str, float] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        return [name for name in NEEDED if self.coefficients[name].value is None]

    @property
    def values(self) -> dict[str, float]:
        """Those that are known."""
        return {name: one.value for name, one in self.coefficients.items() if one.value is not None}


def design(rows: Sequence[Row], names: Sequence[str], budget: int | None) -> F64:
    """What each coefficient multiplies, float64[rows, names]."""
    split = "b_context_mixed" in names
    return np.array([[_columns(row, budget, split)[name] for name in names] for row in rows])


def _columns(row: Row, budget: int | None, split: bool) -> dict[str, float]:
    room = max(1, (budget or 10**9) - row.n_decode)
    chunks = -(-row.new // room)
    batches = max(row.batches, chunks)
    plain = batches - chunks
    return {
        "delta": float(row.is_first_token),
        "b0": batches,
        "b_prefill": row.new,
        "b_decode": batches * row.n_decode,
        "b_context": (plain if split else batches) * row.context,
        "b_context_mixed": chunks * row.context,
        "b_attention": row.new * row.past + row.new * (row.new + 1) / 2,
        "b_past": chunks * row.past + room * chunks * (chunks - 1) / 2,
    }


def fit_endpoint(rows: Sequence[Row], budget: int | None = None, seed: int = 0) -> EndpointFit:
    """Fit to rows of at least two kinds; `budget`: max_num_batched_tokens, where it is known.

    Raises InputError where there are too few rows to fit anything.
    """
    rows = tuple(rows)
    if len(rows) < 8:
        raise InputError(
            f"{len(rows)} usable rows are too few to fit coefficients to",
            expected="8 at least",
            hint="see which were set aside and why; --budget allows more requests",
        )
    found, budget_status = (budget, "given") if budget else _budget(rows)
    gone = _unseen(rows, BASE, found)
    names = tuple(name for name in BASE if name not in gone)
    tried = {"base": _score(rows, names, found)}
    split = (*names, "b_context_mixed")
    if any(row.kind == "inject" for row in rows) and not _unseen(rows, split, found):
        tried["b_context_mixed"] = _score(rows, split, found)
        if tried["b_context_mixed"] < tried["base"] * (1 - WORTH) - EXACT:
            names = split
    values = _solve(design(rows, names, found), rows)
    covariance = _bootstrap(rows, names, found, seed)
    condition, share = _identify(design(rows, names, found), rows)
    predicted = _held_out(rows, names, found)
    kinds = np.array([row.kind for row in rows])
    seconds = _seconds(rows)
    every = {kind: errors(predicted[kinds == kind], seconds[kinds == kind]) for kind in _kinds(rows)}
    total = errors(predicted, seconds)
    assert total is not None
    known = {name: Estimate(None, None, 0.0, why) for name, why in gone.items()}
    for i, name in enumerate(names):
        known[name] = _estimate(float(values[i]), float(np.sqrt(covariance[i, i])), float(share[i]))
    order = {name: known[name] for name in (*BASE, "b_context_mixed") if name in known}
    return EndpointFit(
        order, names, covariance, condition, found, budget_status, total,
        {kind: one for kind, one in every.items() if one}, rows, predicted, tried,
    )  # fmt: skip


def _estimate(value: float, error: float, share: float) -> Estimate:
    return Estimate(value, error, share, "zero" if value == 0 else "weak" if error > WEAK * value else "ok")


def _seconds(rows: Sequence[Row]) -> F64:
    return np.array([row.seconds for row in rows])


def _kinds(rows: Sequence[Row]) -> list[str]:
    return sorted({row.kind for row in rows})


def _weights(rows: Sequence[Row]) -> F64:
    """The n rows of a kind weigh sqrt(n) together, as in batch_fit; the mean is 1."""
    counts = {row.kind: 0 for row in rows}
    for row in rows:
        counts[row.kind] += 1
    weights = np.array([1 / np.sqrt(counts[row.kind]) for row in rows])
    return weights / weights.mean()


def _solve(columns: F64, rows: Sequence[Row]) -> F64:
    """Coefficients >= 0, by iteratively reweighted least squares of relative errors."""
    relative = columns / _seconds(rows)[:, None]
    scale = np.sqrt((relative**2).mean(axis=0))
    scale[scale == 0] = 1.0
    weights, robust = _weights(rows), np.ones(len(rows))
    values = np.zeros(columns.shape[1])
    for _ in range(40):
        root = np.sqrt(weights * robust)
        new = nnls(relative / scale * root[:, None], root)[0] / scale
        error = np.abs(relative @ new - 1)
        robust = np.minimum(1.0, HUBER / np.maximum(error, 1e-12))
        if np.allclose(new, values, rtol=1e-7, atol=0):
            break
        values = new
    return new


def _unseen(rows: Sequence[Row], names: Sequence[str], budget: int | None) -> dict[str, str]:
    """{coefficient: why the rows do not show it}."""
    columns = design(rows, names, budget)
    gone = {name: "not seen" for i, name in enumerate(names) if not columns[:, i].any()}
    for name in reversed(names):  # the optional ones last named go first
        kept = [one for one in names if one not in gone]
        if name in kept and _identify(design(rows, kept, budget), rows)[1][kept.index(name)] < INSEPARABLE:
            gone[name] = "not separable"
    return gone


def _identify(columns: F64, rows: Sequence[Row]) -> tuple[float, F64]:
    """Condition of the scaled design, and the share of each column that the others do not explain."""
    scaled = columns / _seconds(rows)[:, None] * np.sqrt(_weights(rows))[:, None]
    scaled = scaled / np.maximum(np.sqrt((scaled**2).sum(axis=0)), 1e-300)
    values, vectors = np.linalg.eigh(scaled.T @ scaled)
    values = np.maximum(values, 1e-13)
    return float(np.sqrt(values[-1] / values[0])), 1 / ((vectors**2) / values).sum(axis=1)


def _held_out(rows: Sequence[Row], names: Sequence[str], budget: int | None) -> F64:
    """Seconds of each row by a fit without the rows of its fold; cells stay whole."""
    cells = {cell: i for i, cell in enumerate(dict.fromkeys(row.cell for row in rows))}
    fold = np.array([cells[row.cell] % FOLDS for row in rows])
    columns, predicted = design(rows, names, budget), np.empty(len(rows))
    for number in range(FOLDS):
        out = fold == number
        if out.any():
            others = [row for row, left in zip(rows, out, strict=True) if not left]
            predicted[out] = columns[out] @ _solve(columns[~out], others)
    return predicted


def _score(rows: Sequence[Row], names: Sequence[str], budget: int | None) -> float:
    error = np.abs(_held_out(rows, names, budget) / _seconds(rows) - 1)
    return float(np.average(np.minimum(error, 5 * HUBER), weights=_weights(rows)))


def _budget(rows: Sequence[Row]) -> tuple[int | None, str]:
    """The batch's tokens whose chunks explain the times best; None: none does much better."""
    names = tuple(name for name in BASE if name not in _unseen(rows, BASE, None))
    scores: dict[int | None, float] = {
        budget: _score(rows, names, budget)
        for budget in (None, *BUDGETS)
        if budget is None or any(row.new > budget for row in rows)
    }
    best = min(scores, key=lambda one: scores[one])
    if best is None or scores[best] > scores[None] * (1 - BUDGET_WORTH) - EXACT:
        return None, "not seen"
    return best, "found"


def _bootstrap(rows: Sequence[Row], names: Sequence[str], budget: int | None, seed: int) -> F64:
    """Covariance of the coefficients over resampled rows, each kind by itself."""
    random = np.random.default_rng(seed)
    kinds = np.array([row.kind for row in rows])
    groups = [np.flatnonzero(kinds == kind) for kind in _kinds(rows)]
    columns = design(rows, names, budget)
    draws = np.empty((DRAWS, len(names)))
    for i in range(DRAWS):
        drawn = np.concatenate([random.choice(group, len(group)) for group in groups])
        draws[i] = _solve(columns[drawn], [rows[j] for j in drawn])
    return np.atleast_2d(np.cov(draws, rowvar=False))
