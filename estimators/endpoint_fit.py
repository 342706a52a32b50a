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
WEAK = 0.5  # standard error over value, from which a value is not claimed
OPTIONAL = ("delta", "b_past", "b_context_mixed")  # a batch-time model is one without them
NEGLIGIBLE = 0.1  # of the time of each row
AT_MOST = 1.645  # standard errors above the value: 95 %, one-sided
CAPTURED = (  # sizes of captured graphs up to the widest plateau: vLLM's, coarser ones, powers of two
    (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64), (1, 8, 16, 24, 32, 40, 48, 56, 64), (1, 2, 4, 8, 16, 32, 64),
)  # fmt: skip
STAIRS_WORTH = 0.3  # by which stairs must be nearer than a line
STAIRS_LEAST = 0.005  # and at least so much of a time
BUDGETS = (256, 512, 1024, 2048, 4096, 8192, 16384)  # tokens of a batch that engines are started with
BUDGET_WORTH = 0.1  # by which one of them must explain times better than no chunking, and than any other
LEAST_CHUNKS = 2  # of a prefill, to say anything about the budget


class Row(NamedTuple):
    """A duration and what was computed in it.

    batches   of the engine; 0: as many as the prefill has chunks
    n_decode  decodes in each batch, context their KV tokens together
    new, past  prefill tokens, and those that were cached before them
    chunks    batches that were seen to carry the prefill; 0: not seen
    """

    kind: str  # cold | suffix | plateau | inject
    cell: str  # rows of one cell are repeats, or share a set-up
    seconds: float
    batches: int = 0
    n_decode: int = 0
    context: float = 0.0
    new: int = 0
    past: int = 0
    chunks: int = 0

    @property
    def is_first_token(self) -> bool:
        return self.kind in ("cold", "suffix")


class Stairs(NamedTuple):
    """Widths padded to `sizes`, as captured graphs do: mean held-out error of plateaus by a line, and so."""

    sizes: tuple[int, ...]
    error_line: float
    error: float
    seen: bool


class Estimate(NamedTuple):
    """value None: the rows do not show it, and it is not claimed; `status` says why.

    bounded         it cannot be told from 0, and at most (`at_most`, 95 % one-sided) it is so little of the
                    times measured that it is taken as 0
    not identified  its error is above half of its value, and it may be much: others may stand for it
    """

    value: float | None
    standard_error: float | None
    separable: float
    status: str  # ok | bounded | not identified | not seen | not separable
    at_most: float | None = None


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
    stairs: Stairs | None = None  # None: too few widths were asked for

    @property
    def missing(self) -> list[str]:
        return [
            name for name in NEEDED
            if self.coefficients[name].value is None and self.coefficients[name].status != "bounded"
        ]  # fmt: skip

    @property
    def values(self) -> dict[str, float]:
        """Those that are known."""
        return {name: one.value for name, one in self.coefficients.items() if one.value is not None}

    @property
    def overhead_s(self) -> float | None:
        """The wait of each request that is no part of a batch."""
        delta = self.coefficients["delta"]
        return 0.0 if delta.status == "bounded" else delta.value

    @property
    def batch_terms(self) -> dict[str, float]:
        """Of a batch-time model: those that are known, and 0 for what is bounded."""
        found = {name: value for name, value in self.values.items() if name != "delta"}
        return {**found, **{name: 0.0 for name in NEEDED if self.coefficients[name].status == "bounded"}}


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
    draws = _bootstrap(rows, names, found, seed)
    condition, share = _identify(design(rows, names, found), rows)
    drawn = np.sqrt(np.diag(_covariance(draws)))  # of all terms together: what one trades with another
    spread = np.maximum(drawn, _spread(design(rows, names, found), rows, share))
    unsure = _unsure(rows, names, found, spread, share)
    kept = [i for i, name in enumerate(names) if name not in unsure]
    covariance = (_covariance(draws) + np.diag(spread**2 - drawn**2))[np.ix_(kept, kept)]
    share, spread = share[kept], spread[kept]
    names = tuple(names[i] for i in kept)
    values = _solve(design(rows, names, found), rows)
    predicted = _held_out(design(rows, names, found), rows)
    kinds = np.array([row.kind for row in rows])
    seconds = _seconds(rows)
    every = {kind: errors(predicted[kinds == kind], seconds[kinds == kind]) for kind in _kinds(rows)}
    total = errors(predicted, seconds)
    assert total is not None
    known = {name: Estimate(None, None, 0.0, why) for name, why in gone.items()} | unsure
    for i, name in enumerate(names):
        known[name] = _estimate(float(values[i]), float(spread[i]), float(share[i]))
    order = {name: known[name] for name in (*BASE, "b_context_mixed") if name in known}
    return EndpointFit(
        order, names, covariance, condition, found, budget_status, total,
        {kind: one for kind, one in every.items() if one}, rows, predicted, tried,
        find_stairs(rows, names, found),
    )  # fmt: skip


def _unsure(
    rows: Sequence[Row], names: Sequence[str], budget: int | None, spread: F64, shares: F64
) -> dict[str, Estimate]:
    """Terms that are left out since their error is above half of their value: the optional ones, and those
    that are no more than NEGLIGIBLE of any time even at their bound. Others stay, and are not claimed."""
    columns = design(rows, names, budget)
    values, found = _solve(columns, rows), {}
    for i, name in enumerate(names):
        at_most = float(values[i] + AT_MOST * spread[i])
        is_small = bool((at_most * columns[:, i] <= NEGLIGIBLE * _seconds(rows)).all())
        if spread[i] >= WEAK * values[i] and name != "b0" and (is_small or name in OPTIONAL):
            status = "bounded" if is_small else "not identified"
            found[name] = Estimate(None, float(spread[i]), float(shares[i]), status, at_most)
    return found


def _estimate(value: float, error: float, share: float) -> Estimate:
    if error >= WEAK * value:
        return Estimate(None, error, share, "not identified")
    return Estimate(value, error, share, "ok")


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


def _spread(columns: F64, rows: Sequence[Row], shares: F64) -> F64:
    """Standard errors by least squares: few rows drawn again do not show which terms stand for others."""
    relative = columns / _seconds(rows)[:, None]
    weights = _weights(rows)
    error = relative @ _solve(columns, rows) - 1
    variance = (weights * np.minimum(np.abs(error), 5 * HUBER) ** 2).sum() / max(len(rows) - len(shares), 1)
    sizes = (weights[:, None] * relative**2).sum(axis=0)
    return np.sqrt(variance / np.maximum(sizes * shares, 1e-300))


def _held_out(columns: F64, rows: Sequence[Row]) -> F64:
    """Seconds of each row by a fit without the rows of its fold; cells stay whole."""
    cells = {cell: i for i, cell in enumerate(dict.fromkeys(row.cell for row in rows))}
    fold = np.array([cells[row.cell] % FOLDS for row in rows])
    predicted = np.empty(len(rows))
    for number in range(FOLDS):
        out = fold == number
        if out.any():
            others = [row for row, left in zip(rows, out, strict=True) if not left]
            predicted[out] = columns[out] @ _solve(columns[~out], others)
    return predicted


def _score(rows: Sequence[Row], names: Sequence[str], budget: int | None) -> float:
    error = np.abs(_held_out(design(rows, names, budget), rows) / _seconds(rows) - 1)
    return float(np.average(np.minimum(error, 5 * HUBER), weights=_weights(rows)))


def _budget(rows: Sequence[Row]) -> tuple[int | None, str]:
    """Tokens of a batch: by the chunks that were counted beside decodes, else by what explains the times.

    None: no prompt was seen to be cut, or more than one usual size would do.
    """
    counted = [row for row in rows if row.chunks >= LEAST_CHUNKS]
    if counted:
        fits = [
            one
            for one in BUDGETS
            if all(-(-row.new // (one - row.n_decode)) == row.chunks for row in counted)
        ]
        return (fits[0], "found") if len(fits) == 1 else (None, "not seen")
    names = tuple(name for name in BASE if name not in _unseen(rows, BASE, None))
    scores: dict[int | None, float] = {
        budget: _score(rows, names, budget)
        for budget in (None, *BUDGETS)
        if budget is None or any(row.new > budget for row in rows)
    }
    best, *others = sorted(scores, key=lambda one: scores[one])
    if best is None or any(scores[best] > scores[one] * (1 - BUDGET_WORTH) - EXACT for one in others):
        return None, "not seen"
    return best, "found"


def _bootstrap(rows: Sequence[Row], names: Sequence[str], budget: int | None, seed: int) -> F64:
    """The coefficients of resampled rows, each kind by itself, float64[draws, names]."""
    random = np.random.default_rng(seed)
    kinds = np.array([row.kind for row in rows])
    groups = [np.flatnonzero(kinds == kind) for kind in _kinds(rows)]
    columns = design(rows, names, budget)
    draws = np.empty((DRAWS, len(names)))
    for i in range(DRAWS):
        drawn = np.concatenate([random.choice(group, len(group)) for group in groups])
        draws[i] = _solve(columns[drawn], [rows[j] for j in drawn])
    return draws


def _covariance(draws: F64) -> F64:
    return np.atleast_2d(np.cov(draws, rowvar=False))


def find_stairs(rows: Sequence[Row], names: Sequence[str], budget: int | None) -> Stairs | None:
    """Do decodes cost as much as the next captured size? Each usual set of sizes against the line."""
    plain = np.array([row.kind == "plateau" for row in rows])
    widths = {row.n_decode for row in rows if row.kind == "plateau"}
    found: list[Stairs] = []
    if not widths:
        return None
    line = _width_error(rows, rows, names, budget, plain)
    for sizes in CAPTURED:
        if len(widths & set(sizes)) >= 2 and widths - set(sizes):
            padded = [_padded(row, sizes) if row.kind == "plateau" else row for row in rows]
            error = _width_error(padded, rows, names, budget, plain)
            found.append(Stairs(sizes, line, error, error < line * (1 - STAIRS_WORTH) - STAIRS_LEAST))
    return min(found, key=lambda one: one.error, default=None)


def _padded(row: Row, sizes: Sequence[int]) -> Row:
    larger = [size for size in sizes if size >= row.n_decode]
    return row._replace(n_decode=larger[0]) if larger else row


def _width_error(
    asked: Sequence[Row],
    rows: Sequence[Row],
    names: Sequence[str],
    budget: int | None,
    which: NDArray[np.bool_],
) -> float:
    """Mean held-out error of plateaus, with the widths that `asked` has."""
    predicted = _held_out(design(asked, names, budget), rows)
    return float(np.abs(predicted / _seconds(rows) - 1)[which].mean())
