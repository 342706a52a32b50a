"""Service level objectives: what a run must hold, as one expression.

    METRIC [pNN | mean] < EXPR            ttft p95 < 2s
    METRIC < EXPR @ NN%                   ttft < 1s + 62.5us*prompt_tokens @ 95%

METRIC is ttft, tpot, e2e or session; `<=` may stand for `<`. EXPR is a sum of numbers with a unit (s ms
us), each perhaps times prompt_tokens, uncached_tokens or output_tokens of the request. `p95 < x` and
`< x @ 95%` are the same (nearest rank); without either, every request must hold it. A rejected or
unfinished request misses; a one-token output has no TPOT and leaves TPOT objectives.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentctl.errors import UsageError
from agentctl.metrics import METRICS, Floats, Run, nearest_rank
from agentctl.toml import suggestion

# SMetric's objectives (arXiv 2607.08565, v2): TTFT as a line over the prompt, TPOT for streaming.
DEFAULT_SLOS = ("ttft <= 1s + 62.5us*prompt_tokens @ 95%", "tpot <= 20ms @ 95%")

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
FACTORS = ("prompt_tokens", "uncached_tokens", "output_tokens")
SLO_METRICS = {"ttft": "ttft_s", "tpot": "tpot_s", "e2e": "e2e_s", "session": "session_s"}

_PLUS = re.compile(r"(?<![0-9.]e)\+")  # not the one of 1e+3
_MICRO = str.maketrans("µμ", "uu")  # the sign of its own, and the Greek letter
_SHAPE = re.compile(
    r"\s*(?P<metric>[a-z0-9_]+)\s*(?P<stat>[a-z]+[0-9.]*)?\s*(?P<op><=?)\s*(?P<expr>[^@<>]+?)"
    r"\s*(?:@\s*(?P<percent>[0-9.]+)\s*(?P<sign>%?)\s*)?"
)
_TERM = re.compile(
    r"\s*(?P<number>(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(?P<unit>[a-zµ]*)\s*(?:\*\s*(?P<factor>[a-z_]+)\s*)?"
)


@dataclass(frozen=True)
class Term:
    """`seconds`, or `seconds` per token of `factor`."""

    seconds: float
    factor: str | None = None


@dataclass(frozen=True)
class Slo:
    """One objective. `percent` of the requests (sessions) must be within the limit; None: their mean must."""

    text: str
    metric: str  # key of SLO_METRICS
    terms: tuple[Term, ...]
    inclusive: bool  # <=
    percent: float | None

    def limit_s(
        self,
        prompt_tokens: NDArray[np.int64],
        uncached_tokens: NDArray[np.int64],
        output_tokens: NDArray[np.int64],
    ) -> Floats:
        """The limit of each request in seconds."""
        factors = dict(zip(FACTORS, (prompt_tokens, uncached_tokens, output_tokens), strict=True))
        limit = np.zeros(prompt_tokens.size)
        for term in self.terms:
            limit = limit + (term.seconds * factors[term.factor] if term.factor else term.seconds)
        return limit

    def applies(self, run: Run) -> NDArray[np.bool_]:
        """Requests (sessions for `session`) that the objective counts."""
        if self.metric == "session":
            return np.ones(run.n_sessions, dtype=bool)
        return run.output_tokens > 1 if self.metric == "tpot" else np.ones(run.done.size, dtype=bool)

    def within(self, run: Run) -> NDArray[np.bool_]:
        """Requests (sessions) inside the limit; NaN is outside."""
        value, limit = self._values(run)
        return value <= limit if self.inclusive else value < limit

    def attained(self, run: Run) -> float | None:
        """Share of the requests (sessions) that are inside the limit; None when the objective counts none."""
        counted = self.applies(run)
        return float(self.within(run)[counted].sum() / counted.sum()) if counted.any() else None

    def score(self, run: Run) -> float | None:
        """By how much it holds: attained minus wanted share; for a mean, 1 - mean/limit. Below 0: a miss."""
        counted = self.applies(run)
        if not counted.any():
            return None
        if self.percent is not None:
            n = int(counted.sum())
            return float((self.within(run)[counted].sum() - nearest_rank(n, self.percent)) / n)
        value, limit = self._values(run)
        if np.isnan(value[counted]).any():
            return -1.0  # a miss has no finite time
        return float(1 - value[counted].mean() / limit[counted].mean())

    def holds(self, run: Run) -> bool | None:
        """None when the objective counts no request of this run."""
        score = self.score(run)
        if score is None:
            return None
        return score >= 0 if self.inclusive or self.percent is not None else score > 0

    def requests_within(self, run: Run) -> NDArray[np.bool_]:
        """Per request: not outside this objective (its session, for `session`). A mean binds no request."""
        if self.percent is None:
            return np.ones(run.done.size, dtype=bool)
        within = self.within(run) | ~self.applies(run)
        return within[run.session] if self.metric == "session" else within

    def _values(self, run: Run) -> tuple[Floats, Floats]:
        value = METRICS[SLO_METRICS[self.metric]].compute(run)
        if self.metric == "session":
            return value, np.full(run.n_sessions, sum(term.seconds for term in self.terms))
        uncached = run.prompt_tokens - run.cached_tokens
        return value, self.limit_s(run.prompt_tokens, uncached, run.output_tokens)


def requests_within_all(slos: Sequence[Slo], run: Run) -> NDArray[np.bool_]:
    """Finished requests that meet every objective: those whose tokens count."""
    within = run.done.copy()
    for slo in slos:
        within &= slo.requests_within(run)
    return within


def score_all(slos: Sequence[Slo], run: Run) -> float | None:
    """The worst score: all objectives must hold, so the first to fail decides. None: nothing to judge."""
    scores = [score for slo in slos if (score := slo.score(run)) is not None]
    return min(scores) if scores else None


def parse_slos(texts: Sequence[str]) -> tuple[Slo, ...]:
    """The objectives, or the default ones when there are none."""
    return tuple(parse_slo(text) for text in (texts or DEFAULT_SLOS))


def parse_slo(text: str) -> Slo:
    """Raises UsageError that quotes the expression and says what is wrong in it."""
    place = f"slo {text!r}"
    shape = _SHAPE.fullmatch(text.lower().translate(_MICRO))
    if not shape:
        raise UsageError(
            "cannot be read",
            place=place,
            expected="METRIC [pNN|mean] < EXPR, or METRIC < EXPR @ NN%",
            hint='for example "ttft p95 < 2s" or "tpot < 20ms @ 99%"',
        )
    if shape["metric"] not in SLO_METRICS:
        hint = suggestion(shape["metric"], SLO_METRICS)
        raise UsageError(f"unknown metric {shape['metric']}", place=place, hint=hint)
    percent = _percent(shape, place)
    terms = tuple(_term(part, place) for part in _PLUS.split(shape["expr"]))
    if shape["metric"] == "session" and any(term.factor for term in terms):
        raise UsageError("a session has no tokens of one request", place=place, expected="seconds only")
    if all(term.seconds == 0 for term in terms):
        raise UsageError("the limit is 0", place=place, expected="a time above 0")
    inclusive = shape["op"] == "<="
    return Slo(" ".join(text.split()), shape["metric"], terms, inclusive, percent)


def _percent(shape: re.Match[str], place: str) -> float | None:
    """The share in percent that must hold; None for a mean."""
    stat, at = shape["stat"], shape["percent"]
    if stat and at:
        raise UsageError("says the share twice", place=place, expected=f"{stat} or @ {at}%, not both")
    if stat == "mean":
        return None
    if stat and not re.fullmatch(r"p\d+(\.\d+)?", stat):
        raise UsageError(f"unknown statistic {stat}", place=place, expected="pNN or mean")
    if at and not shape["sign"]:
        raise UsageError(f"@ {at} has no percent sign", place=place, expected="@ NN%, such as @ 95%")
    if not stat and not at:
        return 100.0
    digits = stat[1:] if stat else at
    if not re.fullmatch(r"\d+(\.\d+)?", digits) or not 0 < float(digits) <= 100:
        raise UsageError(f"{digits} % is no share", place=place, expected="above 0, at most 100")
    return float(digits)


def _term(part: str, place: str) -> Term:
    match = _TERM.fullmatch(part)
    if not match:
        expected = "a number with a unit, perhaps * prompt_tokens"
        raise UsageError(f"cannot read {part.strip()!r}", place=place, expected=expected)
    if match["unit"] not in SECONDS:
        fact = f"{match['number']} has no unit" if not match["unit"] else f"unknown unit {match['unit']}"
        raise UsageError(fact, place=place, expected="s, ms or us")
    factor = match["factor"]
    if factor is not None and factor not in FACTORS:
        raise UsageError(f"unknown factor {factor}", place=place, hint=suggestion(factor, FACTORS))
    seconds = float(match["number"]) * SECONDS[match["unit"]]
    if not math.isfinite(seconds):
        raise UsageError(f"{match['number']} is not finite", place=place)
    return Term(seconds, factor)
