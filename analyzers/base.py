"""What an analyzer is, what it may be asked, and how the analyzers of this folder are found.

An analyzer is a module of this folder with four names: `NAME` (its key in the JSON), `ORDER` (its place in
the report), `analyze(trace, options)` and `describe(result)`. Nothing is registered by hand: a new file is a
new analyzer. Modules without `NAME` are helpers of the others.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import pkgutil
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agentctl.estimators.batch_time import BatchTime
    from agentctl.present import Section
    from agentctl.trace import Trace


class Objective(Protocol):
    """What `attainability` needs of an agentctl.slo.Slo (which lies above the analyzers)."""

    @property
    def text(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def inclusive(self) -> bool: ...
    @property
    def percent(self) -> float | None: ...
    def limit_s(
        self,
        prompt_tokens: NDArray[np.int64],
        uncached_tokens: NDArray[np.int64],
        output_tokens: NDArray[np.int64],
    ) -> NDArray[np.float64]: ...


@dataclass(frozen=True)
class AnalyzeOptions:
    """What a user may turn. The thresholds are conventions, so every result prints the ones it used."""

    engines: tuple[int, ...] = (2, 4, 8, 16, 32)  # cluster sizes of the balance tests
    reuse_within_s: tuple[float, ...] = (10.0, 100.0, 1000.0)
    idle_timeouts_s: tuple[float, ...] = (1, 5, 10, 30, 60, 120, 300, 480, 900, 1800, 3600, 7200, 14400)
    first_turn_share: float = 0.5  # two-phase: median share of a session's uncached prefill spent in turn 0
    later_hit_share: float = 0.8  # two-phase: median share of its prompt that a later turn finds cached
    long_append_tokens: int = 8192  # an append longer than this is as heavy as a first turn
    top_sessions: tuple[float, ...] = (0.01, 0.05, 0.10, 0.25)
    count_windows_s: tuple[float, ...] = (
        1.0,
        10.0,
        60.0,
        600.0,
    )  # burstiness: counts per window of this length
    kv_tokens_per_engine: int | None = None  # KV pool of one engine; None: pools of engines are left out
    batch_time: BatchTime | None = None  # the engine whose limits `attainability` tests
    engine_name: str | None = None  # what to call it
    max_num_batched_tokens: int = 8192
    slos: tuple[str, ...] = ()  # SLO expressions; none: the default of agentctl.slo
    objectives: tuple[Objective, ...] = ()  # the same, parsed: agentctl.analyze fills them in


class Analyzer(Protocol):
    """The names that make a module of this folder an analyzer."""

    NAME: str
    ORDER: int

    def analyze(self, trace: Trace, options: AnalyzeOptions) -> Any:
        """The numbers: a frozen dataclass whose fields carry their units; unknown is None."""

    def describe(self, result: Any) -> Section:
        """The same numbers for a reader: a sentence, its evidence, what was assumed."""


@cache
def analyzers() -> tuple[Analyzer, ...]:
    """Every analyzer of this folder, in report order; each is imported on the first call."""
    package = importlib.import_module(__package__)
    found = [
        importlib.import_module(f"{__package__}.{module.name}")
        for module in pkgutil.iter_modules(package.__path__)
    ]
    named = [cast(Analyzer, module) for module in found if hasattr(module, "NAME")]
    return tuple(sorted(named, key=lambda analyzer: (analyzer.ORDER, analyzer.NAME)))


def as_json(result: Any) -> Any:
    """A result as plain JSON values: dataclasses become objects, NaN and infinity become null."""
    if dataclasses.is_dataclass(result):
        return {field.name: as_json(getattr(result, field.name)) for field in dataclasses.fields(result)}
    if isinstance(result, dict):
        return {str(key): as_json(value) for key, value in result.items()}
    if isinstance(result, (list, tuple)):
        return [as_json(value) for value in result]
    if hasattr(result, "item"):  # a numpy scalar
        return as_json(result.item())
    if isinstance(result, float) and not math.isfinite(result):
        return None
    return result
