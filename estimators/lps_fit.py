"""Parameters of limited processor sharing from a request log: arrivals, end-to-end times, output tokens.

Whoever knows when requests came and went knows how many shared the engine at any time. Within its time in
service a request got `output` steps, each of fixed + decode*n seconds with n in service, and every request
that started meanwhile, itself included, held the engine up by its prefill:

    service time = fixed * output + decode * output * n + prefill * starts        (n: mean over its steps)

Spread over its steps a prefill adds prefill/output to each, so that a step takes fixed + each*n seconds with
each = decode + prefill/output. Non-negative, robust (Huber) least squares on relative errors; n over steps
follows from n over time and the step time itself, hence a few rounds. Intervals: jackknife over blocks of
time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import t as t_distribution

from agentctl.errors import InputError, UsageError
from agentctl.estimators.lps import Lps, step_capacity
from agentctl.estimators.lps_history import History, histories

FEWEST = 50  # requests
BLOCKS = 20  # of time, for intervals and for the held-out error
ROUNDS = 6
HUBER = 0.1  # relative errors above this count linearly
LEAST_VARIATION = 0.05  # of the number in service: below, fixed and each cannot be told apart
BURSTY = 2.0  # variance of counts over that of Poisson arrivals
LONGEST_CURVE = 4096


@dataclass(frozen=True)
class Parameter:
    """A fitted value and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class LpsFit:
    """What a log tells about one engine as a queue.

    fixed_s, each_s   seconds of a step: fixed + each*n with n in service, prefill of the residents included
    output_tokens     mean size of a request, in steps; scv of it
    limit             most in service, as given (None: not given)
    peak              most in service at once in the log: nothing is known beyond
    rate_per_s        arrivals per second and engine
    mape, median_ape  error of service times on blocks of time that were not fitted, given who shared
    dispersion        variance over mean of arrivals in windows of one mean service time (Poisson: 1); None
                      when the log is too short to tell
    rows, dropped     requests fitted; requests without an end or an output
    caveats           what the log cannot tell, in words
    """

    fixed_s: Parameter
    each_s: Parameter
    output_tokens: Parameter
    scv: Parameter
    limit: int | None
    peak: int
    rate_per_s: float
    mape: float
    median_ape: float
    dispersion: float | None
    rows: int
    dropped: int
    caveats: tuple[str, ...]

    def model(self) -> Lps:
        """The queue, for `estimate` and its kin."""
        curve = step_capacity(self.fixed_s.value, self.each_s.value, self.limit or LONGEST_CURVE)
        return Lps(self.output_tokens.value, curve, self.limit, self.scv.value)


def fit_lps(
    arrival_s: np.ndarray,
    e2e_s: np.ndarray,
    output_tokens: np.ndarray,
    *,
    prefill_tokens: np.ndarray | None = None,
    engine: np.ndarray | None = None,
    limit: int | None = None,
) -> LpsFit:
    """Fit one engine, or several alike, from arrays over requests (seconds, tokens; NaN: unknown).

    prefill_tokens   prompt tokens that had to be computed; without them all prefills count as equally long
    engine           which engine served each request (any labels); without them one engine served all
    limit            the engine's max_num_seqs. Requests beyond it are taken to wait in order of arrival

    Raises InputError when the log has fewer than 50 usable requests, values that cannot be, a number in
    service that hardly varies, or ends that contradict the limit.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"is {limit}", place="limit", expected="at least one request in service")
    seen = histories(arrival_s, e2e_s, output_tokens, prefill_tokens, engine, limit)
    output = seen.output
    if output.size < FEWEST:
        raise InputError(f"{output.size} usable requests", expected=f"at least {FEWEST}")
    theta = _rounds(seen)
    columns = seen.columns(*_step(theta, output))
    if np.std(columns[:, 1] / output) < LEAST_VARIATION * np.mean(columns[:, 1] / output):
        raise InputError(
            "the number of requests in service hardly varies, so the parts of a step cannot be told apart",
            expected="a log with quiet and busy times",
        )
    block = np.empty(output.size, dtype=np.int64)
    block[np.argsort(seen.arrival, kind="stable")] = np.arange(output.size) * BLOCKS // output.size
    left_out, errors = np.empty((BLOCKS, 4)), np.empty(output.size)
    for b in range(BLOCKS):
        kept, held = block != b, block == b
        without = _least_squares(columns[kept], seen.service[kept], theta)
        errors[held] = np.abs(columns[held] @ without / seen.service[held] - 1)
        left_out[b] = _parameters(without, output[kept])
    fixed, each, mean, scv = _intervals(np.array(_parameters(theta, output)), left_out)
    return LpsFit(
        fixed_s=fixed,
        each_s=each,
        output_tokens=mean,
        scv=scv,
        limit=limit,
        peak=seen.peak,
        rate_per_s=seen.rate_per_s,
        mape=float(errors.mean()),
        median_ape=float(np.median(errors)),
        dispersion=seen.dispersion,
        rows=output.size,
        dropped=seen.dropped,
        caveats=_caveats(seen, limit, fixed, each),
    )


def _rounds(seen: History) -> np.ndarray:
    """Seconds per step, per step and resident, per mean prefill: n over steps and the fit, in turns."""
    fixed, each = 1.0, 0.0  # at first n over steps is n over time
    for _ in range(ROUNDS):
        theta = _least_squares(seen.columns(fixed, each), seen.service)
        fixed, each = _step(theta, seen.output)
    return theta


def _least_squares(columns: np.ndarray, service: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    relative = columns / service[:, None]
    scale = 1 / relative.mean(axis=0)
    scaled = relative * scale
    guess = np.full(3, 1 / 3) if start is None else np.maximum(start / scale, 1e-6)
    found = least_squares(
        lambda x: scaled @ x - 1, guess, jac=lambda x: scaled, bounds=(0, np.inf), loss="huber", f_scale=HUBER
    )
    return found.x * scale


def _step(theta: np.ndarray, output: np.ndarray) -> tuple[float, float]:
    fixed, decode, prefill = theta
    return float(fixed), float(decode + prefill / output.mean())


def _parameters(theta: np.ndarray, output: np.ndarray) -> tuple[float, float, float, float]:
    mean = float(output.mean())
    return *_step(theta, output), mean, float(output.var() / mean**2)


def _intervals(values: np.ndarray, left_out: np.ndarray) -> list[Parameter]:
    """Jackknife over blocks of time (Efron and Tibshirani 1993, chapter 11), not below 0."""
    spread = ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0) * (BLOCKS - 1) / BLOCKS
    half = t_distribution.ppf(0.975, BLOCKS - 1) * np.sqrt(spread)
    return [
        Parameter(float(v), float(max(0, v - h)), float(v + h)) for v, h in zip(values, half, strict=True)
    ]


def _caveats(seen: History, limit: int | None, fixed: Parameter, each: Parameter) -> tuple[str, ...]:
    found = []
    if limit is None:
        found.append(f"no limit was given: at most {seen.peak} were in service, beyond is extrapolation")
    elif seen.peak < limit:
        found.append(f"at most {seen.peak} of {limit} were in service, beyond is extrapolation")
    for name, part in (("fixed", fixed), ("per request", each)):
        if part.high - part.low > part.value:
            found.append(f"the {name} part of a step is not known to 50 %")
    if seen.dispersion is not None and seen.dispersion > BURSTY:
        found.append(
            f"arrivals vary {seen.dispersion:.1f} times as much as Poisson arrivals: waits will be longer"
        )
    return tuple(found)
