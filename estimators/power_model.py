"""What an engine draws while it does what: from its measured phases, or from what is published of its GPU.

Nothing is guessed for a GPU of which nothing is published: it is unknown until it was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from agentctl.estimators.power import PowerTable
from agentctl.toml import build, read_toml

TABLE = Path(__file__).with_name("power_presets.toml")
Watts = Annotated[float, Meta(gt=0)]
Source = Literal["measured", "literature", "fitted"]


@dataclass(frozen=True)
class GpuPower:
    """One GPU; what each key means stands at the top of power_presets.toml."""

    source: Source
    statement: str
    idle_w: Watts
    top_mhz: Watts
    least_mhz: Watts
    clock_exponent: Watts
    memory_clock_share: Annotated[float, Meta(ge=0, le=1)]
    compute_w: Watts | None = None
    memory_w: Watts | None = None
    gemm_w: list[tuple[float, float]] | None = None
    read_w: list[tuple[float, float]] | None = None
    pairs_w: Watts | None = None


@dataclass(frozen=True)
class Phases:
    """Measured watts above idle, of the whole engine; NaN: not measured."""

    prefill_w: float
    decode_w: float
    mixed_w: float


@dataclass(frozen=True)
class PowerModel:
    """One engine, all its GPUs: watts above idle where they are not named otherwise.

    source    of the watts; `clock_source`: of what caps and clocks do; None: nobody knows
    sizes     (most tokens in the batch, watts of reading weights, watts of multiplying)
    uses      (largest share of a step in which memory is read, watts of reading KV)
    weights_s seconds in which a batch reads the weights
    cap_w, lock  of all GPUs; the clock as a share of the highest
    """

    source: Source
    statement: str
    idle_w: float
    weights_s: float
    sizes: tuple[tuple[float, float, float], ...]
    uses: tuple[tuple[float, float], ...]
    pairs_w: float
    phases: Phases | None = None
    clock_source: Source | None = None
    clock_exponent: float = 2.0
    memory_clock_share: float = 0.0
    least_ratio: float = 0.0
    cap_w: float = math.inf
    lock: float = 1.0

    @property
    def most_w(self) -> float:
        """No step draws more than this above idle at full clock; NaN: unknown."""
        if self.phases:
            return max(self.phases.prefill_w, self.phases.decode_w, self.phases.mixed_w)
        of_sizes = max(max(weights, tokens) for _, weights, tokens in self.sizes)
        return max(of_sizes, self.pairs_w, *(watts for _, watts in self.uses))

    @property
    def is_free(self) -> bool:
        """Neither cap nor lock ever changes anything."""
        return self.lock == 1.0 and (self.cap_w == math.inf or self.idle_w + self.most_w <= self.cap_w)


@cache
def presets() -> dict[str, GpuPower]:
    tables = read_toml(TABLE)
    return {name: build(GpuPower, table, f"{TABLE.name}: [{name}]") for name, table in tables.items()}


def published(gpu: GpuPower, weights_s: float, n_gpus: int) -> PowerModel:
    """The model of an engine on `n_gpus` of them."""
    idle = gpu.idle_w

    def above(classes: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        ends = [most for most, _ in classes[:-1]] + [math.inf]
        return [(end, n_gpus * (watts - idle)) for end, (_, watts) in zip(ends, classes, strict=True)]

    if gpu.gemm_w and gpu.read_w and gpu.pairs_w:
        sizes = tuple((most, watts, watts) for most, watts in above(gpu.gemm_w))
        uses, pairs = tuple(above(gpu.read_w)), n_gpus * (gpu.pairs_w - idle)
    else:
        assert gpu.compute_w is not None and gpu.memory_w is not None
        memory, pairs = n_gpus * gpu.memory_w, n_gpus * gpu.compute_w
        sizes, uses = ((math.inf, memory, pairs),), ((math.inf, memory),)
    return with_clocks(
        PowerModel(gpu.source, gpu.statement, n_gpus * idle, weights_s, sizes, uses, pairs), gpu
    )


def measured(table: PowerTable, weights_s: float) -> PowerModel | str:
    """From a profile's [power]; or why not."""
    if table.idle_w is None:
        return "its [power] has no idle_w"
    watts = [table.busy_w if own is None else own for own in (table.prefill_w, table.decode_w, table.mixed_w)]
    if all(one is None for one in watts):
        return "its [power] has no watts of any phase"
    above = Phases(*(math.nan if one is None else max(one - table.idle_w, 0.0) for one in watts))
    nothing = ((math.inf, 0.0, 0.0),), ((math.inf, 0.0),)
    said = f"[power] of the profile: {table.source}, by phase"
    return PowerModel(table.source, said, table.idle_w, weights_s, *nothing, 0.0, above)


def with_clocks(model: PowerModel, gpu: GpuPower) -> PowerModel:
    """What caps and clocks do, as published of the GPU."""
    return replace(
        model,
        clock_source=gpu.source,
        clock_exponent=gpu.clock_exponent,
        memory_clock_share=gpu.memory_clock_share,
        least_ratio=gpu.least_mhz / gpu.top_mhz,
    )
