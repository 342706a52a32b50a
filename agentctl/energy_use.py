"""Energy of a simulated run: what each pool drew in which phase, what it served for it, and who says so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from agentctl.analyzers.words import percent
from agentctl.cluster import Cluster, Pool
from agentctl.metrics import Counts, Run, measure_of, span_s
from agentctl.pool_power import power_of
from agentctl.present import Section, Table, Value
from agentctl.sim.outcome import EngineEnergy, Outcome

PHASES = ("prefill", "decode", "mixed")
ROUNDING = 1e-3  # of a cap
OF_RUN = (
    "total_energy_j", "idle_energy_ratio", "energy_per_session_j", "tokens_per_j", "computed_tokens_per_j",
    "output_tokens_per_j",
)  # fmt: skip
SAID = {"measured": "measured", "literature": "literature", "fitted": "fitted to published figures"}


def energy_facts(cluster: Cluster, outcome: Outcome, run: Run) -> dict[str, Any]:
    """The whole run's, and one entry per pool; null with its reason where nobody knows."""
    span = span_s(run)
    pools = [_pool(pool, p, outcome, run, span) for p, pool in enumerate(cluster.pools)]
    return {
        **{name: measure_of(name, run) for name in OF_RUN},
        "mean_w": _over(measure_of("total_energy_j", run), span),
        "span_s": span,
        "pools": pools,
    }


def _pool(pool: Pool, p: int, outcome: Outcome, run: Run, span: float | None) -> dict[str, Any]:
    model = power_of(pool)
    facts: dict[str, Any] = {
        "name": pool.name,
        "gpu": pool.profile.gpu,
        "power_cap_w": pool.power_cap_w,
        "sm_clock_mhz": pool.sm_clock_mhz,
        "source": None,
        "clock_source": None,
        "statement": None,
    }
    if isinstance(model, str):
        return {**facts, "reason": model}
    facts |= {"source": model.source, "clock_source": model.clock_source, "statement": model.statement}
    engines = [one for e, one in enumerate(outcome.energy) if outcome.pool_of_engine[e] == p]
    idle_j = None if span is None else sum(one.idle_w for one in engines) * span
    busy_j = _known(sum(one.busy_j for one in engines))
    total = None if idle_j is None or busy_j is None else idle_j + busy_j
    prefills, decodes = (run.done & (outcome.pool_of_engine[engine] == p) for engine in _engines(outcome))
    prompt, found = (int(of[prefills].sum()) for of in (run.prompt_tokens, run.cached_tokens))
    output, here = int(run.output_tokens[decodes].sum()), prefills | decodes
    return {
        **facts,
        "idle_w": engines[0].idle_w,
        "energy_j": total,
        "idle_j": idle_j,
        **{f"{phase}_j": _known(sum(getattr(one, f"{phase}_j") for one in engines)) for phase in PHASES},
        **{f"{phase}_w": _watts(engines, phase) for phase in PHASES},
        "slowed_s": sum(one.slowed_s for one in engines),
        "over_cap_w": _over_cap(model.cap_w, (_watts(engines, phase) for phase in PHASES)),
        "mean_w": _over(total, span),
        "energy_per_session_j": _over(total, float(np.unique(run.session[here]).size)),
        "tokens_per_j": _over(prompt + output, total),
        "computed_tokens_per_j": _over(prompt - found + output, total),
        "output_tokens_per_j": _over(output, total),
    }


def _engines(outcome: Outcome) -> tuple[Counts, Counts]:
    """Where prompts were computed, and where the rest was: whose tokens they are."""
    return outcome.engine, outcome.engine if outcome.decode_engine is None else outcome.decode_engine


def _watts(engines: Sequence[EngineEnergy], phase: str) -> float | None:
    """Mean power of an engine of the pool in steps of this phase, idle included."""
    joules, seconds = (sum(getattr(one, f"{phase}_{unit}") for one in engines) for unit in ("j", "s"))
    return _known(engines[0].idle_w + joules / seconds) if seconds > 0 else None


def _over_cap(cap_w: float, watts: Iterable[float | None]) -> float:
    """By how much the highest mean of a phase is above the cap: the lowest clock is not low enough."""
    over = max((one - cap_w for one in watts if one is not None), default=0.0)
    return over if over > ROUNDING * cap_w else 0.0


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _over(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def energy_section(energy: dict[str, Any]) -> Section:
    pools = energy["pools"]
    known = [pool for pool in pools if "reason" not in pool]
    sources = sorted({_authority(pool) for pool in known})
    sentence = "What all engines drew is not known."
    if energy["tokens_per_j"] is not None:
        sentence = (
            f"{energy['tokens_per_j']:,.3g} tokens a joule with cached tokens, "
            f"{energy['computed_tokens_per_j']:,.3g} without; {energy['energy_per_session_j']:,.0f} J a "
            f"session; {percent(energy['idle_energy_ratio'])} of the energy is idle power."
        )
    sentence += f" Watts: {'; '.join(sources)}."
    head = (
        ("pool", ""), ("energy", "j"), ("mean", "w"), ("idle", "w"), ("prefill", "w"), ("decode", "w"),
        ("mixed", "w"), ("a session", "j"), ("with cached", "tokens_per_j"), ("without", "tokens_per_j"),
    )  # fmt: skip
    keys = (
        "name", "energy_j", "mean_w", "idle_w", "prefill_w", "decode_w", "mixed_w", "energy_per_session_j",
        "tokens_per_j", "computed_tokens_per_j",
    )  # fmt: skip
    rows: tuple[tuple[Value, ...], ...] = tuple(tuple(pool.get(key) for key in keys) for pool in pools)
    warnings = tuple(f"pool {pool['name']}: {pool['reason']}" for pool in pools if "reason" in pool)
    warnings += tuple(
        f"pool {pool['name']}: a cap of {pool['power_cap_w']:g} W a GPU is not kept, engines draw "
        f"{pool['over_cap_w']:.3g} W more at their lowest clock"
        for pool in known
        if pool["over_cap_w"]
    )
    return Section("energy", "Energy", sentence, tables=(Table(head, rows),), warnings=warnings)  # type: ignore[arg-type]


def _authority(pool: dict[str, Any]) -> str:
    said = SAID[pool["source"]]
    if pool["power_cap_w"] is None and pool["sm_clock_mhz"] is None:
        return said
    if pool["clock_source"] is None:
        return f"{said} (the cap changes nothing)"
    return f"{said} (caps and clocks: {SAID[pool['clock_source']]})"


def power_words(cluster: Cluster) -> list[str]:
    """What an assumption says of pools whose power is known."""
    said = []
    for pool in cluster.pools:
        model = power_of(pool)
        if isinstance(model, str):
            continue
        limits = []
        if pool.power_cap_w is not None:
            limits.append(f"capped at {pool.power_cap_w:g} W a GPU")
        if pool.sm_clock_mhz is not None:
            limits.append(f"SM clock locked at {pool.sm_clock_mhz:g} MHz")
        told = f"power of pool {pool.name} ({SAID[model.source]}): {' '.join(model.statement.split())}"
        if limits and model.clock_source:
            told += f"; {', '.join(limits)}: the effect is {SAID[model.clock_source]}, not measured"
        said.append(told)
    return said


def power_words_beside(base: Cluster, variants: Sequence[tuple[str, Cluster]]) -> list[str]:
    """The same of variants, (what is set, cluster), where it is not so in `base`: each once."""
    said = power_words(base)
    own: dict[str, str] = {}
    for label, cluster in variants:
        for words in power_words(cluster):
            if words not in said:
                own.setdefault(words, f"with {label}: {words}" if label else words)
    return list(own.values())
