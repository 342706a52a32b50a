"""The [lps] table of a profile: what a queue needs, and where it came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from agentctl.estimators.lps import Lps, step_capacity
from agentctl.estimators.lps_fit import LONGEST_CURVE, LpsFit
from agentctl.toml import build

INTERVALS = ("fixed_s", "each_s", "output_tokens", "scv")


@dataclass(frozen=True)
class LpsTable:
    """The keys of [lps]: a step takes fixed_s + each_s*n seconds with n in service, prefill spread over it.

    A request takes output_tokens steps on average. `fit` is the table beside them and never computed with.
    """

    fixed_s: Annotated[float, Meta(ge=0)]
    each_s: Annotated[float, Meta(ge=0)]
    output_tokens: Annotated[float, Meta(gt=0)]
    scv: Annotated[float, Meta(ge=0)] = 1.0
    limit: Annotated[int, Meta(ge=1)] | None = None  # omitted: no limit is known
    fit: dict[str, Any] = dataclasses.field(default_factory=dict)

    def model(self) -> Lps:
        curve = step_capacity(self.fixed_s, self.each_s, self.limit or LONGEST_CURVE)
        return Lps(self.output_tokens, curve, self.limit, self.scv)


def parse_lps(table: Mapping[str, Any], place: str) -> LpsTable:
    """The [lps] table of a profile (`profile.lps`). `place` stands in error messages; raises ConfigError."""
    return build(LpsTable, table, place)


def lps_table(fit: LpsFit) -> dict[str, Any]:
    """A fit as the [lps] table of a profile, intervals and errors in [lps.fit]; unknown is left out."""
    known = {name: value for name, value in dataclasses.asdict(fit).items() if value is not None}
    values = {name: known.pop(name) for name in INTERVALS}
    limit = {"limit": known.pop("limit")} if "limit" in known else {}
    intervals = {f"{name}_interval": [value["low"], value["high"]] for name, value in values.items()}
    rest = {**known, "caveats": list(fit.caveats), **intervals}
    return {**{name: value["value"] for name, value in values.items()}, **limit, "fit": rest}
