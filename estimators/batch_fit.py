"""Coefficients of a batch-time model from steps: relative errors, robust, none negative.

The sum over steps of g * huber(T/y - 1) is minimised over coefficients >= 0, T the model and y the measured
time. Relative errors, because a step of 10 ms counts as much as one of 1 s for who waits for tokens; Huber
(threshold 10 %), because some steps are disturbed; g evens out what traffic happened to hold: a kind of step
(prefill only, decode only, mixed) of n rows weighs sqrt(n). Iteratively reweighted non-negative least squares
(Lawson & Hanson) on the normal equations.

The hinge max(gpu, host) is fitted as a max-affine function (Magnani & Boyd 2009): steps belong to the part
that is longer, each part is fitted to its steps, until none changes sides; the best of several starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import nnls

from agentctl.estimators.batch_terms import HOST, design
from agentctl.estimators.steps import KINDS, Floats, Steps

HUBER = 0.1  # relative error beyond which a step counts linearly
PRIOR_SPREAD = 0.5  # a prior is believed to this share of its value
MOST_ROUNDS = 60
STARTS = (0.05, 0.25, 0.5, 0.75)  # shares of the steps that the host bounds at the start
SAME = 1e-6


@dataclass(frozen=True)
class Coefficients:
    """`values[i]` >= 0 belongs to `names[i]`; those of the host are one affine part, the others the other."""

    names: tuple[str, ...]
    values: Floats
    loss: float = field(default=np.inf, compare=False)

    @property
    def is_host(self) -> np.ndarray:
        return np.array([name in HOST for name in self.names])

    def parts(self, steps: Steps) -> tuple[Floats, Floats]:
        """Seconds of the gpu's part and of the host's, float64[n] each."""
        terms = design(steps, self.names) * self.values
        return terms[:, ~self.is_host].sum(axis=1), terms[:, self.is_host].sum(axis=1)

    def predict(self, steps: Steps) -> Floats:
        """Seconds of each step."""
        return np.maximum(*self.parts(steps))

    def jacobian(self, steps: Steps) -> Floats:
        """d(T/y)/d(values), float64[n, k]: the columns of the part that bounds a step, over its time."""
        gpu, host = self.parts(steps)
        bounds = np.where(self.is_host[None, :], (host > gpu)[:, None], (host <= gpu)[:, None])
        return design(steps, self.names) * bounds / steps.seconds[:, None]


def weights(steps: Steps) -> Floats:
    """g: the rows of a kind weigh sqrt(their number) together; the mean is 1."""
    kind = steps.kind
    weight = 1 / np.sqrt(np.maximum(np.bincount(kind, minlength=len(KINDS)), 1))[kind]
    return weight / weight.mean()


def fit(steps: Steps, names: Sequence[str], prior: Mapping[str, float] | None = None) -> Coefficients:
    """The coefficients `names`; `prior` draws those that it names to its values, as strongly as ten steps
    of their own would that spread by PRIOR_SPREAD."""
    names = tuple(names)
    problem = _Problem(steps, names, prior or {})
    host = np.array([name in HOST for name in names])
    if not host.any():
        values = problem.solve()
        return Coefficients(names, values, problem.loss(values, host))
    starts = [np.zeros(len(steps), bool)]
    starts += [steps.seconds <= np.quantile(steps.seconds, share) for share in STARTS]
    found = [_alternate(problem, host, start) for start in starts]
    return min(found, key=lambda one: one.loss)


def _alternate(problem: _Problem, host: np.ndarray, is_host_bound: np.ndarray) -> Coefficients:
    """From one assignment of steps to parts: fit, assign and weigh anew, until the coefficients stay."""
    best = Coefficients(problem.names, np.zeros(len(problem.names)))
    robust, before = np.ones(len(is_host_bound)), best.values
    for _ in range(MOST_ROUNDS):
        active = np.where(host[None, :], is_host_bound[:, None], ~is_host_bound[:, None])
        values = problem.solve_once(problem.rows * active, robust)
        loss = problem.loss(values, host)
        if loss < best.loss:
            best = Coefficients(problem.names, values, loss)
        if np.allclose(values, before, rtol=SAME, atol=0):
            break
        gpu, host_part = problem.parts(values, host)
        robust, is_host_bound, before = _robust(np.maximum(gpu, host_part) - 1), host_part > gpu, values
    return best


def _robust(error: Floats) -> Floats:
    """Huber's weights."""
    return np.minimum(1, HUBER / np.maximum(np.abs(error), 1e-12))


class _Problem:
    """Rows T/y = 1 with scaled columns, and the prior's rows below them."""

    def __init__(self, steps: Steps, names: tuple[str, ...], prior: Mapping[str, float]) -> None:
        self.names = names
        rows = design(steps, names) / steps.seconds[:, None]
        scale = np.sqrt((rows**2).mean(axis=0))
        self.scale = np.where(scale > 0, scale, 1.0)
        self.rows, self.weight = rows / self.scale, weights(steps)
        known = np.array([prior.get(name, 0.0) for name in names]) * self.scale
        pull = np.where(known > 0, (HUBER / (PRIOR_SPREAD * np.where(known > 0, known, 1.0))) ** 2, 0.0)
        self.prior_values, self.prior_pull = known, 10 * pull

    def solve(self) -> Floats:
        """All columns in every step: the coefficients where Huber's weights no longer change."""
        robust = np.ones(len(self.rows))
        values = np.zeros(self.rows.shape[1])
        for _ in range(MOST_ROUNDS):
            values = self.solve_once(self.rows, robust)
            now = _robust(self.rows @ (values * self.scale) - 1)
            if np.abs(now - robust).max() < SAME:
                break
            robust = now
        return values

    def solve_once(self, rows: Floats, robust: Floats) -> Floats:
        return self._least_squares(rows, self.weight * robust) / self.scale

    def _least_squares(self, rows: Floats, weight: Floats) -> Floats:
        gram = (rows * weight[:, None]).T @ rows + np.diag(self.prior_pull)
        right = rows.T @ weight + self.prior_pull * self.prior_values
        ridge = 1e-13 * max(float(np.trace(gram)), 1e-300)  # an unseen column stays solvable, and at 0
        lower = np.linalg.cholesky(gram + ridge * np.eye(len(gram)))
        return nnls(lower.T, np.linalg.solve(lower, right))[0]

    def parts(self, values: Floats, host: np.ndarray) -> tuple[Floats, Floats]:
        terms = self.rows * (values * self.scale)
        return terms[:, ~host].sum(axis=1), terms[:, host].sum(axis=1)

    def loss(self, values: Floats, host: np.ndarray) -> float:
        gpu, host_part = self.parts(values, host)
        error = np.abs(np.maximum(gpu, host_part) - 1)
        huber = np.where(error <= HUBER, error**2 / 2, HUBER * (error - HUBER / 2))
        drawn = self.prior_pull * (values * self.scale - self.prior_values) ** 2 / 2
        return float((self.weight * huber).sum() + drawn.sum())
