"""What a simulated cluster keeps of power and energy beside the rest of its state (agentctl.sim.state).

A cluster of which no engine's power is known has one record of each, and nothing looks at them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.cluster import Cluster
from agentctl.estimators.power_model import PowerModel
from agentctl.pool_power import power_of
from agentctl.sim.outcome import EngineEnergy


def _record(**fields: str) -> np.dtype:
    return np.dtype(list(fields.items()), align=True)


# Watts of one engine, above idle_w; agentctl.estimators.power_step says what each is for.
POWER = _record(
    is_known="?", is_free="?", by_phase="?",
    idle_w="f8", prefill_w="f8", decode_w="f8", mixed_w="f8", pairs_w="f8", weights_s="f8",
    memory_clock_share="f8", exponent="f8", least_ratio="f8", lock="f8", cap_w="f8",
)  # fmt: skip
SIZE = _record(most="f8", weights_w="f8", tokens_w="f8")  # by the tokens of a batch
USE = _record(most="f8", read_w="f8")  # by the share of a step in which memory is read
# What an engine has drawn above idle, and how long its steps took, by phase.
METER = _record(
    prefill_j="f8", decode_j="f8", mixed_j="f8", prefill_s="f8", decode_s="f8", mixed_s="f8",
    slowed_s="f8",  # of that, what cap and lock have added
)  # fmt: skip


class EnergyState(NamedTuple):
    """Fields of State."""

    power: NDArray  # POWER [engine]
    sizes: NDArray  # SIZE [engine, class]
    uses: NDArray  # USE [engine, class]
    energy: NDArray[np.float64]  # [request] joules above idle
    meters: NDArray  # METER [engine]


def make_energy(cluster: Cluster | None, n_engines: int, n_requests: int) -> EnergyState:
    models: list[Any] = []
    for pool in cluster.pools if cluster else ():
        models += [power_of(pool)] * pool.engines
    if not any(isinstance(model, PowerModel) for model in models):
        models, n_requests = ["nobody asks"], 1
    n = len(models)
    power, known = np.zeros(n, POWER), [m for m in models if isinstance(m, PowerModel)]
    sizes = np.full((n, max((len(m.sizes) for m in known), default=1)), math.nan, SIZE)
    uses = np.full((n, max((len(m.uses) for m in known), default=1)), math.nan, USE)
    for e, model in enumerate(models):
        if isinstance(model, PowerModel):
            _set_power(power[e], model)
            for j, one in enumerate(model.sizes):
                sizes[e, j] = one
            for j, use in enumerate(model.uses):
                uses[e, j] = use
    power, sizes, uses, meters = (a.view(np.recarray) for a in (power, sizes, uses, np.zeros(n, METER)))
    return EnergyState(power, sizes, uses, np.zeros(n_requests), meters)


def _set_power(record: Any, model: PowerModel) -> None:
    record["is_known"], record["is_free"] = True, model.is_free
    record["by_phase"] = model.phases is not None
    for name in ("idle_w", "pairs_w", "weights_s", "memory_clock_share", "least_ratio", "lock", "cap_w"):
        record[name] = getattr(model, name)
    record["exponent"] = model.clock_exponent
    if model.phases:
        for name in ("prefill_w", "decode_w", "mixed_w"):
            record[name] = getattr(model.phases, name)


def energy_of_engines(s: Any) -> tuple[EngineEnergy, ...]:
    """Of the engines of a state."""
    found = []
    for power, meter in zip(s.power, s.meters, strict=True):
        drawn = {name: float(meter[name]) for name in EngineEnergy._fields if name != "idle_w"}
        idle_w = float(power["idle_w"]) if power["is_known"] else math.nan
        if not power["is_known"]:
            drawn |= {name: math.nan for name in drawn}
        found.append(EngineEnergy(idle_w, **drawn))
    return tuple(found)
