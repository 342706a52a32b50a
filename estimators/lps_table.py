"""The [lps] table of a profile: what a queue needs, and where it came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from agentctl.errors import ConfigError
from agentctl.estimators.lps import Lps, step_capacity
from agentctl.estimators.lps_fit import LONGEST_CURVE, LpsFit
from agentctl.toml import build

INTERVALS = ("fixed_s", "each_s", "output_tokens", "scv")
CURVE_ERROR = 1e-4  # of a step's time between two points of a curve that is written


@dataclass(frozen=True)
class LpsTable:
    """The keys of [lps]: how long a step takes with n in service, prefill spread over it.

    fixed_s, each_s    fixed_s + each_s*n seconds
    curve_n, curve_s   seconds at some n, in order; linear in n between them, and from the last on as between
                       the last two
    A request takes output_tokens steps on average. `fit` is the table beside them and never computed with.
    """

    output_tokens: Annotated[float, Meta(gt=0)]
    fixed_s: Annotated[float, Meta(ge=0)] | None = None
    each_s: Annotated[float, Meta(ge=0)] | None = None
    curve_n: tuple[Annotated[int, Meta(ge=1)], ...] = ()
    curve_s: tuple[Annotated[float, Meta(gt=0)], ...] = ()
    scv: Annotated[float, Meta(ge=0)] = 1.0
    limit: Annotated[int, Meta(ge=1)] | None = None  # omitted: no limit is known
    fit: dict[str, Any] = dataclasses.field(default_factory=dict)

    def model(self) -> Lps:
        longest = self.limit or LONGEST_CURVE
        if self.fixed_s is not None and self.each_s is not None:
            curve = step_capacity(self.fixed_s, self.each_s, longest)
        else:
            n = np.arange(1, longest + 1)
            curve = tuple((n / _between(n, self.curve_n, self.curve_s)).tolist())
        return Lps(self.output_tokens, curve, self.limit, self.scv)


def parse_lps(table: Mapping[str, Any], place: str) -> LpsTable:
    """The [lps] table of a profile (`profile.lps`). `place` stands in error messages; raises ConfigError."""
    found = build(LpsTable, table, place)
    straight = found.fixed_s is not None and found.each_s is not None
    n = found.curve_n
    curved = len(n) == len(found.curve_s) > 0 and list(n) == sorted(set(n))
    half = (found.fixed_s is None) != (found.each_s is None)
    if straight == curved or half or (straight and (n or found.curve_s)):
        raise ConfigError(
            "does not say how long a step takes",
            place=place,
            expected="fixed_s and each_s, or curve_n and curve_s of the same length, n rising",
        )
    return found


def lps_table(fit: LpsFit) -> dict[str, Any]:
    """A fit as the [lps] table of a profile, intervals and errors in [lps.fit]; unknown is left out."""
    known = {name: value for name, value in dataclasses.asdict(fit).items() if value is not None}
    values = {name: known.pop(name) for name in INTERVALS}
    limit = {"limit": known.pop("limit")} if "limit" in known else {}
    intervals = {f"{name}_interval": [value["low"], value["high"]] for name, value in values.items()}
    rest = {**known, "caveats": list(fit.caveats), **intervals}
    return {
        **{name: value["value"] for name, value in values.items()},
        **limit,
        "fit": {"source": "log", **rest},
    }


def curve_table(model: Lps) -> dict[str, Any]:
    """A queue as the [lps] table of a profile: its step times at as few n as give the others to 0.01 %."""
    n = np.arange(1, len(model.capacity) + 1)
    step = n / np.asarray(model.capacity)
    at = _corners(n, step)
    limit = {} if model.limit is None else {"limit": model.limit}
    curve = {"curve_n": n[at].tolist(), "curve_s": step[at].tolist()}
    return {**curve, "output_tokens": model.size, "scv": model.scv, **limit}


def _corners(n: np.ndarray, step: np.ndarray) -> list[int]:
    """Positions between which `step` is as good as straight: the farthest reach of each line in turn."""
    at = [0]
    while at[-1] < n.size - 1:
        first, last = at[-1], n.size - 1
        while last > first + 1 and not _is_straight(n[first : last + 1], step[first : last + 1]):
            last = first + (last - first) // 2
        at.append(last)
    return at


def _is_straight(n: np.ndarray, step: np.ndarray) -> bool:
    line = np.interp(n, n[[0, -1]], step[[0, -1]])
    return bool((np.abs(line / step - 1) <= CURVE_ERROR).all())


def _between(n: np.ndarray, curve_n: tuple[int, ...], curve_s: tuple[float, ...]) -> np.ndarray:
    slope = (curve_s[-1] - curve_s[-2]) / (curve_n[-1] - curve_n[-2]) if len(curve_n) > 1 else 0.0
    beyond = curve_s[-1] + slope * (n - curve_n[-1])
    return np.where(n > curve_n[-1], beyond, np.interp(n, curve_n, curve_s))
