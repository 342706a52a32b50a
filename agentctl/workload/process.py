"""When sessions (or requests) start: Poisson, deterministic, or Poisson with a rate that switches (MMPP-2).

The n-th start is where the expected number of starts, the integral of the rate, reaches a sum of n
exponential draws of mean 1. A draw is a hash of the seed and its number: policies that are compared meet the
same arrivals, a longer trace begins like a shorter one, at another rate the same draws are only stretched,
and with a ratio of 1 the MMPP is the Poisson process. Starts are absolute: a late one delays no other.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentctl.errors import UsageError
from agentctl.estimators.mmpp import Mmpp2

F64 = NDArray[np.float64]

KINDS = ("poisson", "deterministic", "mmpp")
UNITS = ("sessions", "requests")
ORDERS = ("trace", "shuffled")
BURSTS = {
    "ratio": 4.0,
    "high_share": 0.2,
    "correlation_s": 2.0,
}  # latency-aware routing paper (SFS), its code
PER = {"s": 1.0, "min": 60.0, "h": 3600.0}
LEAST_RATE, MOST_RATE = 1e-6, 1e6  # per second
MOST_RATIO = 1e6
MOST_SWITCHES = 1 << 22  # of the rate, in one run

GAPS, STAYS, PHASE = range(3)  # what is drawn


@dataclass(frozen=True)
class Process:
    """
    rate           starts per second, on average; None: as in the trace
    of             sessions (their turns follow by the replay mode) | requests (each by itself)
    order          trace: who started first starts first | shuffled
    ratio          mmpp: the high rate over the low one
    high_share     mmpp: share of the time with the high rate
    correlation_s  mmpp: in which the rate forgets its state (to 1/e)

    Raises UsageError for values that make no process.
    """

    kind: str = "poisson"
    rate: float | None = None
    of: str = "sessions"
    order: str = "trace"
    ratio: float = BURSTS["ratio"]
    high_share: float = BURSTS["high_share"]
    correlation_s: float = BURSTS["correlation_s"]

    def __post_init__(self) -> None:
        words = (
            ("--arrivals", self.kind, KINDS),
            ("--arrivals-of", self.of, UNITS),
            ("--arrivals order", self.order, ORDERS),
        )
        for place, value, known in words:
            if value not in known:
                raise UsageError(f"is {value!r}", place=place, expected=" or ".join(known))
        _within("--rate", self.rate, LEAST_RATE, MOST_RATE, "a second")
        _within("--arrivals ratio", self.ratio, 1.0, MOST_RATIO)
        if not 0 < self.high_share < 1:
            raise UsageError(
                f"is {self.high_share:g}", place="--arrivals high_share", expected="a share between 0 and 1"
            )
        if not 0 < self.correlation_s < math.inf:
            raise UsageError(
                f"is {self.correlation_s:g}", place="--arrivals correlation_s", expected="seconds above 0"
            )

    @property
    def per_s(self) -> float:
        assert self.rate is not None, "arranging a workload fills the rate in"
        return self.rate

    @property
    def bursts(self) -> Mmpp2:
        """The two rates of an mmpp and how often they change."""
        return Mmpp2.bursty(self.per_s, self.ratio, self.high_share, self.correlation_s)

    def scaled(self, load: float) -> Process:
        """At a multiple of the rate; bursts last as long as before."""
        return replace(self, rate=self.per_s * load)

    def starts(self, n: int, seed: int) -> F64:
        """The first n starts, s from 0, rising. Raises UsageError when the rate switches too often."""
        if self.kind == "deterministic":
            return np.arange(n) / self.per_s
        expected = np.cumsum(_exponential(seed, GAPS, n))  # starts until then
        return expected / self.per_s if self.kind == "poisson" else self._in_bursts(expected, seed)

    def _in_bursts(self, expected: F64, seed: int) -> F64:
        """When so many starts are expected, the rate beginning in its stationary state."""
        bursts = self.bursts
        stay_s = np.array([1 / bursts.to_high, 1 / bursts.to_low])  # low, high
        begins_high = uniform(seed, PHASE, 1)[0] < self.high_share
        n = 64
        while True:
            if n > MOST_SWITCHES:
                raise UsageError(
                    f"the rate switches more than {MOST_SWITCHES:,} times",
                    place="--arrivals correlation_s",
                    expected="a longer correlation time: bursts so short are no bursts",
                )
            state = (np.arange(n) + begins_high) % 2
            stay = _exponential(seed, STAYS, n) * stay_s[state]
            until, starts_until = np.cumsum(stay), np.cumsum(stay * bursts.rates[state])
            if not expected.size or starts_until[-1] >= expected[-1]:
                break
            n *= 2
        within = np.searchsorted(starts_until, expected)
        since = np.concatenate([[0.0], until])[within]
        left = expected - np.concatenate([[0.0], starts_until])[within]
        return since + left / bursts.rates[state[within]]

    def dispersion(self, window_s: float = math.inf) -> float:
        """Variance over mean of the number of starts in windows of this length: 1 is Poisson."""
        if self.kind == "deterministic":
            return 0.0 if window_s == math.inf else math.nan  # it depends on where a window begins
        return self.bursts.dispersion(window_s) if self.kind == "mmpp" else 1.0

    def words(self) -> str:
        """`Poisson arrivals of 6 requests/s`."""
        rate = f"{self.per_s:.4g} {self.of}/s"
        if self.kind == "mmpp":
            low, high = self.bursts.rates
            told = (
                f"MMPP-2 arrivals of {rate} on average ({low:.3g}/s, and {high:.3g}/s for "
                f"{100 * self.high_share:.3g} % of the time, correlation time {self.correlation_s:g} s)"
            )
        else:
            told = f"{self.kind.capitalize() if self.kind == 'poisson' else self.kind} arrivals of {rate}"
        return told + (", in random order" if self.order == "shuffled" else "")

    def facts(self) -> dict[str, Any]:
        """For JSON: what does not belong to the kind is null."""
        known = {key: value for key, value in asdict(self).items() if key != "rate"}
        if self.kind != "mmpp":
            known |= dict.fromkeys(BURSTS)
        low, high = self.bursts.rates if self.kind == "mmpp" else (None, None)
        return known | {
            "rate_per_s": self.per_s,
            "low_rate_per_s": None if low is None else float(low),
            "high_rate_per_s": None if high is None else float(high),
            "dispersion": self.dispersion(),
        }


def parse_process(arrivals: str | None, rate: str | None, of: str | None) -> Process | None:
    """What --arrivals, --rate and --arrivals-of ask for; None: arrivals as logged. Raises UsageError."""
    if arrivals is None:
        given = " and ".join(flag for flag, one in (("--rate", rate), ("--arrivals-of", of)) if one)
        if given:
            raise UsageError("not without --arrivals", place=given, expected=f"--arrivals {'|'.join(KINDS)}")
        return None
    kind, _, rest = arrivals.strip().partition(":")
    settings: dict[str, Any] = {}
    known = {"order": ORDERS, **(BURSTS if kind == "mmpp" else {})}
    if kind not in KINDS:
        raise UsageError(f"is {arrivals!r}", place="--arrivals", expected=" or ".join(KINDS))
    for pair in filter(None, rest.split(",")):
        key, _, value = (part.strip() for part in pair.partition("="))
        if key not in known:
            hint = "ratio, high_share and correlation_s belong to mmpp" if key in BURSTS else None
            raise UsageError(
                f"{kind} has no {key!r}", place="--arrivals", expected=", ".join(known), hint=hint
            )
        if key in settings:
            raise UsageError(f"{key} is given twice", place="--arrivals")
        settings[key] = value if key == "order" else _number(value, f"--arrivals {key}")
    return Process(kind, parse_rate(rate) if rate else None, of or "sessions", **settings)


def parse_rate(text: str) -> float:
    """`6/s`, `360/min` or `20/h` per second; raises UsageError."""
    number, slash, unit = (part.strip() for part in text.partition("/"))
    if not slash or unit not in PER:
        raise UsageError(f"cannot read {text!r}", place="--rate", expected="such as 6/s, 360/min or 20/h")
    return _number(number, "--rate") / PER[unit]


def uniform(seed: int, purpose: int, n: int) -> F64:
    """A number in (0, 1) for each of 0 to n - 1: SplitMix64 of seed, purpose and number."""
    with np.errstate(over="ignore"):
        start = _mixed(_mixed(np.uint64(seed % 2**64)) + np.uint64(purpose))
        bits = _mixed(start + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _exponential(seed: int, purpose: int, n: int) -> F64:
    return -np.log(uniform(seed, purpose, n))


def _mixed(x: Any) -> Any:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _number(text: str, place: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise UsageError(f"cannot read {text!r}", place=place, expected="a number") from error


def _within(place: str, value: float | None, least: float, most: float, unit: str = "") -> None:
    if value is not None and not least <= value <= most:
        expected = f"{least:g} to {most:g} {unit}".strip()
        raise UsageError(f"is {value:g} {unit}".strip(), place=place, expected=expected)
